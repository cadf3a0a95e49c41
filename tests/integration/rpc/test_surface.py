"""The gRPC surface through real grpc.aio servers on Unix sockets, in front of facades that a test drives."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from kblockd._proto.kblock.v1 import (
    approval_service_pb2,
    approval_service_pb2_grpc,
    execution_service_pb2,
    execution_service_pb2_grpc,
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    types_pb2,
)
from kblockd.domain.errors import Aborted, Reason
from kblockd.domain.outcome import Finding
from kblockd.domain.principal import View
from kblockd.policy.deciding import PolicyFailure
from kblockd.rpc.identity import LoopbackListener, UnixListener
from kblockd.rpc.server import SERVICES, RpcServer
from kblockd.rpc.sockets import UnsafeSocket
from tests.unit.rpc.fakes import (
    AGENT,
    APPROVAL,
    COMPLETED,
    EVENTS,
    HEX,
    LEAD,
    OPERATOR,
    Daemon,
    FakePolicies,
    running,
)
from tests.unit.rpc.test_convert import WRONG, Change, minimal

ALL = View(frozenset({"*"}), frozenset({"*"}))


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with running(tmp_path) as serving:
        yield serving


@pytest.fixture
async def channel(daemon: Daemon) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(daemon.target()) as opened:
        yield opened


@pytest.fixture
def stub(channel: aio.Channel) -> execution_service_pb2_grpc.ExecutionServiceStub:
    return execution_service_pb2_grpc.ExecutionServiceStub(channel)


def request(**fields: object) -> execution_service_pb2.ExecutionServiceExecuteRequest:
    return execution_service_pb2.ExecutionServiceExecuteRequest(envelope=minimal(), **fields)


class Refusal:
    """What a client got instead of an answer."""

    code: str
    info: error_details_pb2.ErrorInfo
    fields: dict[str, str]

    def read(self, error: aio.AioRpcError) -> None:
        self.code = error.code().name
        data = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        status = status_pb2.Status.FromString(data)
        assert status.code == error.code().value[0]
        assert status.message == error.details()
        self.info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        for detail in status.details:
            detail.Unpack(self.info)
            detail.Unpack(bad)
        self.fields = {v.field: v.description for v in bad.field_violations}


@contextmanager
def refused(code: str, reason: str) -> Iterator[Refusal]:
    refusal = Refusal()
    with pytest.raises(aio.AioRpcError) as caught:
        yield refusal
    refusal.read(caught.value)
    assert (refusal.code, refusal.info.reason) == (code, reason)
    assert refusal.info.domain == "kblockd"


# Execute


async def test_execute_delegates_and_answers(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    answer = await stub.Execute(request(wait=Duration(seconds=3)))
    assert answer.outcome.status == types_pb2.CALL_STATUS_COMPLETED
    assert answer.outcome.receipt_dsse == COMPLETED.receipt_dsse
    ((principal, envelope, wait, trace),) = daemon.executions.calls
    assert principal == AGENT
    assert (envelope.operation, wait) == ("payment.refund.create", 3.0)
    assert len(trace.trace_id) == 32
    assert [row.name for row in trace.rows] == ["authenticate"]


@pytest.mark.parametrize(("field", "change", "word"), WRONG, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(WRONG)])
async def test_idm_19_a_wrong_value_of_each_field_reaches_nobody(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub, field: str, change: Change, word: str
) -> None:
    """IDM-19, CAN-13, R006, R673: INVALID_ARGUMENT with BadRequest, over the wire, and nothing was executed."""
    envelope = minimal()
    change(envelope)
    reason = "UNKNOWN_SCHEMA_VERSION" if field == "schema_version" else "INVALID_FIELD"
    with refused("INVALID_ARGUMENT", reason) as refusal:
        await stub.Execute(execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope))
    assert word in refusal.fields[f"envelope.{field}".rstrip(".")]
    assert refusal.info.metadata["executed"] == "false"
    assert refusal.info.metadata["consumed"] == "false"
    assert not daemon.executions.calls


async def test_a_missing_envelope_a_wrong_wait_and_an_unknown_field(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await stub.Execute(execution_service_pb2.ExecutionServiceExecuteRequest())
    assert "envelope" in refusal.fields
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await stub.Execute(request(wait=Duration(seconds=-1)))
    assert "wait" in refusal.fields
    strange = request()
    strange.MergeFromString(b"\xfa\x3f\x01x")
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await stub.Execute(strange)
    assert "1023" in refusal.fields["request"]
    assert not daemon.executions.calls


async def test_bytes_that_do_not_parse_are_the_callers_fault(channel: aio.Channel) -> None:
    raw = channel.unary_unary("/kblock.v1.ExecutionService/Execute")
    with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await raw(b"\xff\xff\xff")


async def test_a_refusal_of_the_pipeline_arrives_whole(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """R668, R673, R674."""
    daemon.executions.answers = [Aborted(Reason.TARGET_BUSY, "busy", retryable=True, execution_id="exec_9")]
    with refused("ABORTED", "TARGET_BUSY") as refusal:
        await stub.Execute(request())
    assert refusal.info.metadata["retryable"] == "true"
    assert refusal.info.metadata["execution_id"] == "exec_9"


async def test_a_defect_is_internal_without_detail(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    daemon.executions.answers = [RuntimeError("a secret")]
    with refused("INTERNAL", "INTERNAL") as refusal:
        await stub.Execute(request())
    assert "secret" not in str(refusal.info)
    assert refusal.info.metadata["correlation_id"].startswith("err_")


async def test_rpc_02_an_inner_cancellation_is_a_status_at_once(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """RPC-02: an internal CancelledError never leaves the client waiting; the client sets no deadline."""
    daemon.executions.answers = [asyncio.CancelledError()]
    async with asyncio.timeout(10):
        with refused("INTERNAL", "INTERNAL"):
            await stub.Execute(request())


async def test_rpc_02_a_cancelled_inner_task_is_a_status_at_once(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lease_lost(*_: object) -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    monkeypatch.setattr(daemon.executions, "execute", lease_lost)
    async with asyncio.timeout(10):
        with refused("INTERNAL", "INTERNAL"):
            await stub.Execute(request())


async def test_rpc_07_a_cancelled_call_only_stops_waiting_and_leaves_nothing(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """RPC-07, R186: cancelled and dropped calls leave no task and no entry behind."""
    daemon.executions.hold = asyncio.Event()
    calls = [stub.Execute(request()) for _ in range(50)]
    while len(daemon.executions.calls) < 50:
        await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await asyncio.gather(*(call.code() for call in calls))
    async with asyncio.timeout(10):
        await daemon.server._in_flight.idle()
    assert not daemon.server._in_flight._running


async def test_the_traceparent_of_the_caller_is_continued(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    metadata = (("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"), ("baggage", "secret=1"))
    await stub.Execute(request(), metadata=metadata)
    trace = daemon.executions.calls[0][3]
    assert (trace.trace_id, trace.parent_span_id, trace.parent_sampled) == ("ab" * 16, "cd" * 8, True)


async def test_a_request_beyond_the_limit_is_refused(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    envelope = minimal()
    envelope.arguments_json = b"x" * (5 << 20)
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Execute(execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not daemon.executions.calls


# Identity


async def test_apr_08_the_principal_is_that_of_the_socket(daemon: Daemon) -> None:
    """APR-08, R010, R011: one socket, one principal; nothing in a request can change it."""
    for name, principal in (("agent", AGENT), ("lead", LEAD), ("operator", OPERATOR)):
        async with aio.insecure_channel(daemon.target(name)) as channel:
            stub = execution_service_pb2_grpc.ExecutionServiceStub(channel)
            await stub.Execute(request(), metadata=(("principal", "local:operator"),))
        assert daemon.executions.calls[-1][0] == principal


async def test_a_denied_caller_is_refused_before_its_request_is_read(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    daemon.engine.result = {"allow": False, "tenants": [], "agents": [], "reasons": []}
    with refused("PERMISSION_DENIED", "PERMISSION_DENIED"):
        await stub.Execute(execution_service_pb2.ExecutionServiceExecuteRequest())
    ((who, method, _),) = daemon.executions.refusals
    assert (who, method) == ("local:agent", "/kblock.v1.ExecutionService/Execute")


async def test_a_policy_that_is_down_refuses_every_method(daemon: Daemon, channel: aio.Channel) -> None:
    daemon.engine.failure = PolicyFailure(Reason.POLICY_DOWN, "x")
    for service in SERVICES:
        for method in service.methods:
            path = f"/{service.full_name}/{method.name}"
            with refused("UNAVAILABLE", "POLICY_DOWN"):
                if method.server_streaming:
                    await channel.unary_stream(path)(b"").read()
                else:
                    await channel.unary_unary(path)(b"")
    assert not daemon.executions.calls


async def test_sockets_have_their_mode_and_go_away(tmp_path: Path) -> None:
    """R010: the file's mode is the identity's protection."""
    async with running(tmp_path) as daemon:
        names = sorted(os.listdir(tmp_path))
        assert names == ["agent.sock", "lead.sock", "operator.sock"]
        assert {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in names} == {0o600}
        assert daemon.server.targets[0] == daemon.target()
    assert os.listdir(tmp_path) == []


async def test_an_unsafe_folder_refuses_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    safe, unsafe = tmp_path / "safe", tmp_path / "unsafe"
    safe.mkdir(mode=0o700)
    unsafe.mkdir()
    unsafe.chmod(0o777)
    server = server_for(Daemon(safe), UnixListener(safe / "a.sock", AGENT), UnixListener(unsafe / "b.sock", LEAD))
    with pytest.raises(UnsafeSocket, match="others may write"):
        await server.start()
    assert os.listdir(safe) == []
    assert os.listdir(unsafe) == []


async def test_a_second_daemon_does_not_take_a_live_socket(daemon: Daemon) -> None:
    with pytest.raises(UnsafeSocket, match="another process listens"):
        await server_for(daemon, UnixListener(daemon.folder / "agent.sock", LEAD)).start()
    async with aio.insecure_channel(daemon.target()) as channel:
        await execution_service_pb2_grpc.ExecutionServiceStub(channel).Execute(request())
    assert daemon.executions.calls[-1][0] == AGENT


async def test_the_development_listener_works_and_says_so_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = Daemon(tmp_path)
    server = server_for(daemon, LoopbackListener(AGENT))
    await server.start()
    try:
        assert "DEVELOPMENT ONLY" in caplog.text
        assert "local:agent" in caplog.text
        async with aio.insecure_channel(server.targets[0]) as channel:
            await execution_service_pb2_grpc.ExecutionServiceStub(channel).Execute(request())
    finally:
        await server.stop(0)
    assert daemon.executions.calls[-1][0] == AGENT


def server_for(daemon: Daemon, *listeners: UnixListener | LoopbackListener) -> RpcServer:
    template = daemon.server
    return RpcServer(
        listeners, daemon.executions, daemon.approvals, daemon.ledger, daemon.engine,
        template._authorizer._clock, template._ids, template._tracing, policies=FakePolicies(daemon.engine),
        candidates=daemon.candidates, admission=template._admission,
    )  # fmt: skip


# The other methods


async def test_get_by_id_and_by_key(daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub) -> None:
    kind = execution_service_pb2.ExecutionServiceGetRequest
    answer = await stub.Get(kind(execution_id="exec_1"))
    assert answer.outcome.output_json == COMPLETED.output_json
    assert [event.ledger_index for event in answer.events] == [event.ledger_index for event in EVENTS]
    await stub.Get(kind(caller_key="key-1"))
    assert daemon.executions.asked == [("get", ALL, AGENT, "exec_1", ""), ("get", ALL, AGENT, "", "key-1")]
    for wrong in (kind(), kind(execution_id=" "), kind(caller_key="")):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await stub.Get(wrong)
    with refused("NOT_FOUND", "NOT_FOUND"):
        await stub.Get(kind(execution_id="exec_none"))


async def test_list_pages(daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub) -> None:
    kind = execution_service_pb2.ExecutionServiceListRequest
    answer = await stub.List(kind(page_size=1000, states=["held", "succeeded"]))
    assert answer.next_page_token == "next"
    assert not answer.outcomes[0].output_json
    assert daemon.executions.asked == [("list", ALL, 100, "", ("held", "succeeded"))]
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await stub.List(kind(states=["nowhere"]))
    assert "states[0]" in refusal.fields


async def test_resolve(daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub) -> None:
    kind = execution_service_pb2.ExecutionServiceResolveRequest
    await stub.Resolve(kind(execution_id="e", finding=execution_service_pb2.FINDING_EFFECT_ABSENT, reason="looked"))
    assert daemon.executions.asked == [("resolve", AGENT, "e", Finding.ABSENT, "looked")]
    for wrong in (
        kind(finding=execution_service_pb2.FINDING_UNPROVABLE, reason="r"),
        kind(execution_id="e", reason="r"),
        kind(execution_id="e", finding=77, reason="r"),
        kind(execution_id="e", finding=execution_service_pb2.FINDING_UNPROVABLE),
    ):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await stub.Resolve(wrong)


async def test_approvals(daemon: Daemon, channel: aio.Channel) -> None:
    stub = approval_service_pb2_grpc.ApprovalServiceStub(channel)
    shown = (await stub.Get(approval_service_pb2.ApprovalServiceGetRequest(approval_id="appr_1"))).approval
    assert shown.summary == APPROVAL.summary
    listed = await stub.List(approval_service_pb2.ApprovalServiceListRequest(states=["pending"]))
    assert not listed.approvals[0].arguments_json
    fields = {
        "approval_id": "appr_1", "action_sha256": shown.action_sha256, "presented_sha256": shown.presented_sha256,
        "verdict": approval_service_pb2.VERDICT_APPROVE, "reason": "fine",
    }  # fmt: skip
    kind = approval_service_pb2.ApprovalServiceDecideRequest
    answer = await stub.Decide(kind(**fields))
    assert (answer.approval.state, answer.approval_dsse) == ("approved", b'{"payload":"approval"}')
    assert daemon.approvals.decided == [(AGENT, "appr_1", HEX, "cd" * 32, "approve", "fine")]
    for missing in ("approval_id", "action_sha256", "presented_sha256", "verdict"):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await stub.Decide(kind(**{**fields, missing: type(fields[missing])()}))
        assert missing in refusal.fields
    with refused("FAILED_PRECONDITION", "SHOWN_DIFFERS"):
        await stub.Decide(kind(**{**fields, "presented_sha256": HEX}))
    assert len(daemon.approvals.decided) == 2


async def test_an_approval_is_revoked_once_and_never_without_a_reason(daemon: Daemon, channel: aio.Channel) -> None:
    stub = approval_service_pb2_grpc.ApprovalServiceStub(channel)
    kind = approval_service_pb2.ApprovalServiceRevokeRequest
    for missing in (kind(reason="r"), kind(approval_id="appr_1"), kind(approval_id="appr_1", reason=" \n")):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await stub.Revoke(missing)
    assert not daemon.approvals.revoked
    answer = await stub.Revoke(kind(approval_id="appr_1", reason="r"))
    assert (answer.approval_id, answer.execution_id, answer.ledger_index) == ("appr_1", APPROVAL.execution_id, 7)
    assert daemon.approvals.revoked == [(AGENT, "appr_1", "r")]
    with refused("FAILED_PRECONDITION", "APPROVAL_NOT_VALID") as late:
        await stub.Revoke(kind(approval_id="appr_1", reason="r"))
    assert late.info.metadata["consumed"] == "true"


async def test_the_ledger(daemon: Daemon, channel: aio.Channel) -> None:
    stub = ledger_service_pb2_grpc.LedgerServiceStub(channel)
    read = ledger_service_pb2.LedgerServiceReadRequest
    answer = await stub.Read(read(from_index=1, limit=2))
    assert [leaf.index for leaf in answer.leaves] == [1, 2]
    assert answer.next_index == 3
    answer = await stub.Read(read(from_index=3))
    assert [leaf.index for leaf in answer.leaves] == [3, 4]
    assert not answer.HasField("next_index")
    answer = await stub.Read(read(execution_id="exec_1", from_index=2, limit=1))
    assert [leaf.index for leaf in answer.leaves] == [3]
    assert answer.next_index == 4
    assert daemon.ledger.prefixes == (
        ("execution", "exec_1"), ("receipt", "exec_1"), ("refusal", "exec_1"), ("approval", "appr_1"),
    )  # fmt: skip
    checkpoint = await stub.GetCheckpoint(ledger_service_pb2.LedgerServiceGetCheckpointRequest())
    assert checkpoint.checkpoint == "checkpoint 5\n"
    proof = ledger_service_pb2.LedgerServiceGetInclusionProofRequest
    assert (await stub.GetInclusionProof(proof(index=4))).tlog_proof.startswith("c2sp.org/tlog-proof@v1")
    assert (await stub.GetInclusionProof(proof(index=4, tree_size=5))).tlog_proof
    consistency = ledger_service_pb2.LedgerServiceGetConsistencyProofRequest
    assert len((await stub.GetConsistencyProof(consistency(old_size=2))).hashes) == 3
    for method, wrong in (
        (stub.GetInclusionProof, proof(index=5)),
        (stub.GetInclusionProof, proof(index=1, tree_size=4)),
        (stub.GetConsistencyProof, consistency()),
        (stub.GetConsistencyProof, consistency(old_size=4, new_size=3)),
        (stub.GetConsistencyProof, consistency(old_size=4, new_size=6)),
    ):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await method(wrong)


async def test_a_ledger_read_shows_only_what_the_caller_may_see(daemon: Daemon, channel: aio.Channel) -> None:
    """kblockd/rpc/README.md#who-calls: the filter is applied to every row that is read."""
    daemon.engine.result = {"allow": True, "tenants": ["acme"], "agents": ["local:agent"], "reasons": []}
    stub = ledger_service_pb2_grpc.LedgerServiceStub(channel)
    answer = await stub.Read(ledger_service_pb2.LedgerServiceReadRequest())
    assert [leaf.index for leaf in answer.leaves] == [1, 3, 4]
    with refused("NOT_FOUND", "NOT_FOUND"):
        await stub.Read(ledger_service_pb2.LedgerServiceReadRequest(execution_id="exec_none"))


async def test_a_receipt_and_its_absence(daemon: Daemon, channel: aio.Channel) -> None:
    stub = ledger_service_pb2_grpc.LedgerServiceStub(channel)
    kind = ledger_service_pb2.LedgerServiceGetReceiptRequest
    answer = await stub.GetReceipt(kind(execution_id="exec_1"))
    assert (answer.receipt_dsse, answer.tlog_proof) == (COMPLETED.receipt_dsse, COMPLETED.receipt_proof)
    daemon.executions.stored = replace(COMPLETED, receipt_dsse=b"", no_receipt_reason="held")
    with refused("FAILED_PRECONDITION", "NO_RECEIPT") as refusal:
        await stub.GetReceipt(kind(execution_id="exec_1"))
    assert refusal.info.metadata["execution_id"] == "exec_1"


# Streams and the stop


async def test_watch_is_exclusive_and_ends_with_the_execution(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    kind = execution_service_pb2.ExecutionServiceWatchRequest
    seen = [answer.event.ledger_index async for answer in stub.Watch(kind(execution_id="exec_1", after_index=3))]
    assert seen == [9, 12]
    assert daemon.executions.watching == 0
    with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await stub.Watch(kind()).read()


async def test_led_14_a_dropped_stream_closes_its_source(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """LED-14: a client that goes away half-way leaves no iterator behind."""
    daemon.executions.endless = True
    streams = [stub.Watch(execution_service_pb2.ExecutionServiceWatchRequest(execution_id="e")) for _ in range(20)]
    for stream in streams:
        await stream.read()
    assert daemon.executions.watching == 20
    for stream in streams:
        stream.cancel()
    async with asyncio.timeout(10):
        await daemon.server._in_flight.idle()
    assert daemon.executions.watching == 0


async def test_led_14_a_reader_that_stopped_reading_and_goes_away_closes_its_source(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """LED-14: here the source is not waiting, the write is."""
    daemon.executions.flood = True
    stream = stub.Watch(execution_service_pb2.ExecutionServiceWatchRequest(execution_id="e"))
    await stream.read()
    stream.cancel()
    async with asyncio.timeout(10):
        await daemon.server._in_flight.idle()
    assert daemon.executions.watching == 0


async def test_led_13_streams_end_with_a_status_at_the_stop(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """LED-13: at once, without waiting for the grace."""
    daemon.executions.endless = True
    stream = stub.Watch(execution_service_pb2.ExecutionServiceWatchRequest(execution_id="e"))
    for _ in EVENTS:
        await stream.read()
    await daemon.executions.waiting.wait()
    async with asyncio.timeout(20):
        stopping = asyncio.create_task(daemon.server.stop(60))
        with refused("UNAVAILABLE", "SHUTTING_DOWN") as refusal:
            await stream.read()
        await stopping
    assert refusal.info.metadata["retryable"] == "true"
    assert daemon.executions.watching == 0


async def test_rpc_04_a_waiting_call_gets_its_answer_within_the_grace(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """RPC-04: drain; a call that ends in time ends as if nothing had happened."""
    daemon.executions.hold = asyncio.Event()
    call = asyncio.ensure_future(stub.Execute(request()))
    await daemon.executions.waiting.wait()
    stopping = asyncio.create_task(daemon.server.stop(60))
    await asyncio.sleep(0)
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Execute(request())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    daemon.executions.hold.set()
    async with asyncio.timeout(20):
        assert (await call).outcome.execution_id == "exec_1"
        await stopping
    assert len(daemon.executions.calls) == 1


async def test_rpc_03_after_the_grace_a_waiting_call_gets_a_status_and_no_handler_runs(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    """RPC-03, RPC-04: stop returns only when every handler has ended."""
    daemon.executions.hold = asyncio.Event()
    calls = [asyncio.ensure_future(stub.Execute(request())) for _ in range(5)]
    await daemon.executions.waiting.wait()
    while len(daemon.executions.calls) < 5:
        await asyncio.sleep(0.01)
    await daemon.server.stop(0.05)
    assert not daemon.server._in_flight._running
    for call in calls:
        with refused("UNAVAILABLE", "SHUTTING_DOWN") as refusal:
            await call
        assert "executed" not in refusal.info.metadata
    assert os.listdir(daemon.folder) == []


async def test_a_second_stop_hastens_the_first(
    daemon: Daemon, stub: execution_service_pb2_grpc.ExecutionServiceStub
) -> None:
    daemon.executions.hold = asyncio.Event()
    call = asyncio.ensure_future(stub.Execute(request()))
    await daemon.executions.waiting.wait()
    first = asyncio.create_task(daemon.server.stop(600))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await daemon.server.stop(0)
        await first
    with refused("UNAVAILABLE", "SHUTTING_DOWN"):
        await call


# Health and reflection


async def test_health_follows_the_switch_for_every_service(daemon: Daemon, channel: aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    names = ["", *(service.full_name for service in SERVICES)]
    for serving, word in ((True, "SERVING"), (False, "NOT_SERVING"), (True, "SERVING")):
        await daemon.server.set_serving(serving)
        for name in names:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == word


async def test_it_serves_only_when_told_to(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    await daemon.server.start()
    try:
        async with aio.insecure_channel(daemon.target()) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    finally:
        await daemon.server.stop(0)


async def test_reflection_lists_and_describes_the_services(daemon: Daemon) -> None:
    def look() -> tuple[list[str], list[str]]:
        with grpc.insecure_channel(daemon.target()) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            names = list(database.get_services())
            service = DescriptorPool(database).FindServiceByName("kblock.v1.ExecutionService")
            return names, [method.name for method in service.methods]

    names, methods = await asyncio.to_thread(look)
    assert {service.full_name for service in SERVICES} <= set(names)
    assert "grpc.health.v1.Health" in names
    assert methods == ["Execute", "Get", "List", "Watch", "Resolve"]


async def test_reflection_of_a_name_that_is_not_there(channel: aio.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="kblock.v1.Nothing")
    async for answer in stub.ServerReflectionInfo(iter([asked])):
        assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        break
