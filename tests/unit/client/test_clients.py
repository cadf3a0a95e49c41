"""Both clients against a real server: typed answers, typed errors, resuming, waiting for approval."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kblockd import client as client_package
from kblockd.client import (
    AbortedError,
    ApprovalPending,
    ApprovalTimeout,
    AsyncClient,
    Call,
    Client,
    Completed,
    Denied,
    FailedPreconditionError,
    Held,
    InProgress,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UpstreamError,
    channel,
)
from kblockd.domain import errors
from kblockd.domain.canonical import NotCanonical
from kblockd.domain.errors import Reason
from kblockd.domain.outcome import CallStatus, Finding, Revocation
from tests.unit.rpc.fakes import APPROVAL, COMPLETED, EVENTS, HEX, LEAD, OPERATOR, PENDING, Daemon, in_thread

TYPES = {
    CallStatus.COMPLETED: Completed,
    CallStatus.UPSTREAM_ERROR: UpstreamError,
    CallStatus.APPROVAL_PENDING: ApprovalPending,
    CallStatus.DENIED: Denied,
    CallStatus.IN_PROGRESS: InProgress,
    CallStatus.HELD: Held,
}
CALL = Call.of("payment.refund.create", "production", target="A-1", arguments={"amount": "10.00"}, key="key-1")


class Waits:
    """The blocking client as if it were the other one, so that one suite runs over both."""

    def __init__(self, blocking: Client) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._blocking, name)
        if name == "watch":
            return lambda *args: _each(method(*args))
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)


async def _each(items: Iterator[Any]) -> AsyncIterator[Any]:
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with in_thread(tmp_path) as serving:
        yield serving


Open = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["asynchronous", "blocking"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    opened: list[Any] = []

    async def open_client(target: str, **options: Any) -> Any:
        kind = AsyncClient if request.param == "asynchronous" else Client
        made = kind(target, poll_seconds=0.01, **options)
        opened.append(made)
        return made if isinstance(made, AsyncClient) else Waits(made)

    yield open_client
    for made in opened:
        await made.close() if isinstance(made, AsyncClient) else made.close()


@pytest.mark.parametrize("status", list(CallStatus))
async def test_each_status_is_a_type(daemon: Daemon, connect: Open, status: CallStatus) -> None:
    """R361, R362, R656."""
    daemon.executions.answers = [replace(COMPLETED, status=status)]
    answer = await (await connect(daemon.target())).execute(CALL)
    assert type(answer) is TYPES[status]
    assert answer.output == {"refund": "r-1"}
    assert answer.call == CALL
    assert answer.receipt_dsse == COMPLETED.receipt_dsse


async def test_a_call_without_a_key_gets_one(daemon: Daemon, connect: Open) -> None:
    """R672: an unknown outcome can only be resumed under a key, so there always is one."""
    client = await connect(daemon.target(), new_key=lambda: "minted")
    answer = await client.execute(Call.of("o", "e", target="t", arguments={}))
    assert answer.call.key == "minted"
    await client.execute(Call.of("o", "e", target="t", arguments={}, keyless=True))
    envelopes = [envelope for _, envelope, _, _ in daemon.executions.calls]
    assert [(e.has_caller_key, e.caller_key) for e in envelopes] == [(True, "minted"), (False, "")]


async def test_the_daemon_answers_before_the_client_gives_up(daemon: Daemon, connect: Open) -> None:
    """R184, R185: the daemon waits 120 s unless told otherwise, and the client longer than the daemon."""
    client = await connect(daemon.target())
    await client.execute(CALL)
    await client.execute(replace(CALL, wait_seconds=0))
    assert [wait for _, _, wait, _ in daemon.executions.calls] == [120.0, 0.0]
    exchange = client_package.rpcs.execute(CALL, wait=120.0, margin=channel.MARGIN_SECONDS)
    assert exchange.timeout == 150.0


async def test_refusals_are_typed_and_say_what_happened(daemon: Daemon, connect: Open) -> None:
    """R668, R673, R674."""
    client = await connect(daemon.target())
    daemon.executions.answers = [
        errors.Aborted(
            Reason.TARGET_BUSY, "busy", retryable=True, next_step="repeat", execution_id="exec_1",
            retry_after_seconds=2.5,
        )
    ]  # fmt: skip
    with pytest.raises(AbortedError) as caught:
        await client.execute(CALL)
    error = caught.value
    assert (error.reason, error.code, error.executed, error.consumed) == ("TARGET_BUSY", "ABORTED", False, False)
    assert (error.retryable, error.next_step, error.execution_id) == (True, "repeat", "exec_1")
    assert (error.retry_after_seconds, error.outcome_unknown, error.call) == (2.5, False, CALL)
    with pytest.raises(InvalidArgumentError) as wrong:
        await client.execute(replace(CALL, envelope=replace(CALL.envelope, environment="")))
    assert [violation.field for violation in wrong.value.violations] == ["envelope.environment"]


@pytest.mark.parametrize("kind", [k for k in vars(errors).values() if isinstance(k, type)
                                  and k.__bases__ == (errors.KblockError,)])  # fmt: skip
async def test_each_class_of_error_arrives_as_itself(daemon: Daemon, connect: Open, kind: type) -> None:
    daemon.executions.answers = [kind(Reason.WRONG_STATE, "x")]
    with pytest.raises(getattr(client_package, f"{kind.__name__}Error")) as caught:
        await (await connect(daemon.target())).execute(CALL)
    assert type(caught.value).__name__ == f"{kind.__name__}Error"


async def test_a_store_that_failed_after_the_consumption_leaves_the_outcome_unknown(
    daemon: Daemon, connect: Open
) -> None:
    """R669: not retryable, with the execution to look up."""
    daemon.executions.answers = [
        errors.Unavailable(Reason.STORE_UNAVAILABLE, "x", executed=True, consumed=True, execution_id="exec_1")
    ]
    with pytest.raises(UnavailableError) as caught:
        await (await connect(daemon.target())).execute(CALL)
    assert (caught.value.outcome_unknown, caught.value.execution_id) == (True, "exec_1")


async def test_a_defect_leaves_the_outcome_unknown(daemon: Daemon, connect: Open) -> None:
    daemon.executions.answers = [RuntimeError("x")]
    with pytest.raises(InternalError) as caught:
        await (await connect(daemon.target())).execute(CALL)
    assert (caught.value.executed, caught.value.consumed, caught.value.outcome_unknown) == (None, None, True)
    assert caught.value.correlation_id.startswith("err_")


async def test_no_daemon_is_a_network_error_that_can_be_resumed(tmp_path: Path, connect: Open) -> None:
    """R671, R672: outcome unknown, NETWORK_ERROR, and the call to repeat exactly."""
    client = await connect(f"unix:{tmp_path}/agent.sock", new_key=lambda: "minted")
    with pytest.raises(UnavailableError) as caught:
        await client.execute(Call.of("o", "e", target="t", arguments={"a": 1}))
    error = caught.value
    assert (error.reason, error.outcome_unknown, error.executed) == ("NETWORK_ERROR", True, None)
    assert error.call.key == "minted"
    with in_thread(tmp_path) as daemon:
        again = await connect(daemon.target())
        answer = await again.resume(error)
        assert isinstance(answer, Completed)
        ((_, envelope, wait, _),) = daemon.executions.calls
    assert (envelope, wait) == (error.call.envelope, 120.0)


async def test_something_that_speaks_http_only_is_an_http_error(connect: Open) -> None:
    """R671: HTTP_ERROR, from a real server that is not the daemon."""

    async def bad_gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(bad_gateway, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError) as caught:
            await (await connect(f"127.0.0.1:{port}")).execute(CALL)
    assert (caught.value.reason, caught.value.outcome_unknown) == ("HTTP_ERROR", True)


async def test_a_timeout_is_unknown_and_its_resumption_is_identical(daemon: Daemon, connect: Open) -> None:
    """R186, R671, R672: the daemon goes on; the repeat carries the same key and the same bytes."""
    daemon.executions.hold = asyncio.Event()
    client = await connect(daemon.target(), wait_seconds=0.0, margin_seconds=0.3)
    with pytest.raises(UnavailableError) as caught:
        await client.execute(CALL)
    assert (caught.value.reason, caught.value.outcome_unknown, caught.value.call) == ("TIMEOUT", True, CALL)
    daemon.executions.hold = None
    await client.resume(caught.value)
    first, second = daemon.executions.calls
    assert first[:3] == second[:3]


async def test_rpc_06_the_client_never_repeats_by_itself(daemon: Daemon, connect: Open) -> None:
    """RPC-06: UNAVAILABLE, which libraries like to retry, reaches the caller after one call."""
    daemon.executions.answers = [errors.Unavailable(Reason.POLICY_DOWN, "x", retryable=True)]
    client = await connect(daemon.target())
    with pytest.raises(UnavailableError) as caught:
        await client.execute(CALL)
    assert not caught.value.outcome_unknown
    assert len(daemon.executions.calls) == 1
    assert dict(channel.OPTIONS)["grpc.enable_retries"] == 0


async def test_what_cannot_be_resumed_says_why(daemon: Daemon, connect: Open) -> None:
    client = await connect(daemon.target())
    with pytest.raises(ValueError, match="act twice"):
        await client.resume(Call.of("o", "e", target="t", arguments={}, keyless=True))
    with pytest.raises(NotFoundError) as caught:
        await client.get(execution_id="exec_none")
    with pytest.raises(ValueError, match="read"):
        await client.resume(caught.value)


async def test_waiting_for_approval_repeats_the_identical_call(daemon: Daemon, connect: Open) -> None:
    """R359, R361, R364: approving runs nothing; the client polls, then repeats."""
    daemon.executions.answers = [PENDING, COMPLETED]
    daemon.executions.stored = PENDING
    client = await connect(daemon.target())
    pending = await client.execute(CALL)
    assert isinstance(pending, ApprovalPending)
    waiting = asyncio.ensure_future(client.wait_for_approval(pending, 30))
    while len(daemon.executions.asked) < 3:
        await asyncio.sleep(0.01)
    assert len(daemon.executions.calls) == 1
    daemon.executions.stored = replace(PENDING, status=CallStatus.IN_PROGRESS, state="approved")
    assert isinstance(await waiting, Completed)
    first, second = daemon.executions.calls
    assert first[1] == second[1]


async def test_apr_06_a_waiter_that_gives_up_denies_nothing(daemon: Daemon, connect: Open) -> None:
    """APR-06: a time-out of its own, no decision, and the pending answer to go on with."""
    daemon.executions.answers = [PENDING]
    daemon.executions.stored = PENDING
    client = await connect(daemon.target())
    pending = await client.execute(CALL)
    with pytest.raises(ApprovalTimeout) as caught:
        await client.wait_for_approval(pending, 0.05)
    assert caught.value.pending == pending
    assert not daemon.approvals.decided
    assert len(daemon.executions.calls) == 1


async def test_apr_12_an_expired_approval_wakes_the_waiter_as_denied(daemon: Daemon, connect: Open) -> None:
    """APR-10, APR-12: the waiter sees that it lapsed, not that it was approved."""
    expired = replace(PENDING, status=CallStatus.DENIED, state="expired", code="TASK_EXPIRED")
    daemon.executions.answers = [PENDING, expired]
    daemon.executions.stored = expired
    client = await connect(daemon.target())
    answer = await client.wait_for_approval(await client.execute(CALL), 30)
    assert isinstance(answer, Denied)
    assert (answer.state, answer.code) == ("expired", "TASK_EXPIRED")


async def test_reads(daemon: Daemon, connect: Open) -> None:
    client = await connect(daemon.target())
    story = await client.get(execution_id="exec_1")
    assert (story.answer.execution_id, list(story.events)) == ("exec_1", EVENTS)
    assert (await client.get(caller_key="key-1")).answer.call is None
    with pytest.raises(ValueError, match="not both"):
        await client.get(execution_id="a", caller_key="b")
    page = await client.list(["held"], page_size=2)
    assert ([type(item) for item in page.items], page.next_token) == ([Completed, ApprovalPending], "next")
    assert [event.ledger_index async for event in client.watch("exec_1", 3)] == [9, 12]
    with pytest.raises(InvalidArgumentError):
        [event async for event in client.watch("")]


async def test_approvals(daemon: Daemon, connect: Open) -> None:
    client = await connect(daemon.target("lead"))
    view = await client.approval("appr_1")
    assert view == APPROVAL
    page = await client.approvals(["pending"])
    assert page.items == (replace(APPROVAL, arguments_json=b"", intent_json=b""),)
    digests = {"action_sha256": view.action_sha256, "presented_sha256": view.presented_sha256}
    decided = await client.decide("appr_1", **digests, verdict="approve", reason="fine")
    assert (decided.approval.state, decided.approval_dsse) == ("approved", b'{"payload":"approval"}')
    assert daemon.approvals.decided == [(LEAD, "appr_1", HEX, "cd" * 32, "approve", "fine")]
    with pytest.raises(FailedPreconditionError) as caught:
        await client.decide("appr_1", action_sha256=HEX, presented_sha256=HEX, verdict="deny")
    assert caught.value.reason == "SHOWN_DIFFERS"
    with pytest.raises(ValueError, match="neither"):
        await client.decide("appr_1", **digests, verdict="perhaps")


async def test_revoking(daemon: Daemon, connect: Open) -> None:
    client = await connect(daemon.target("lead"))
    assert await client.revoke("appr_1", "r") == Revocation("appr_1", APPROVAL.execution_id, 7)
    assert daemon.approvals.revoked == [(LEAD, "appr_1", "r")]
    with pytest.raises(FailedPreconditionError) as caught:
        await client.revoke("appr_1", "r")
    assert (caught.value.reason, caught.value.executed, caught.value.consumed) == ("APPROVAL_NOT_VALID", True, True)
    assert not caught.value.outcome_unknown


@pytest.mark.parametrize("finding", list(Finding))
async def test_resolve(daemon: Daemon, connect: Open, finding: Finding) -> None:
    client = await connect(daemon.target("operator"))
    await client.resolve("exec_1", finding, "looked")
    assert daemon.executions.asked == [("resolve", OPERATOR, "exec_1", finding, "looked")]


async def test_the_ledger(daemon: Daemon, connect: Open) -> None:
    client = await connect(daemon.target())
    leaves = await client.read_ledger(1, 2)
    assert ([index for index, _ in leaves.leaves], leaves.next_index) == ([1, 2], 3)
    assert leaves.leaves[0][1] == daemon.ledger.entries[1].leaf
    assert (await client.read_ledger()).next_index is None
    assert await client.checkpoint() == "checkpoint 5\n"
    assert (await client.inclusion_proof(3)).startswith("c2sp.org/tlog-proof@v1")
    proof = await client.consistency_proof(2)
    assert (proof.hashes, proof.checkpoint) == ((b"\2" * 32,) * 3, "checkpoint 5\n")
    receipt = await client.receipt("exec_1")
    assert (receipt.receipt_dsse, receipt.tlog_proof) == (COMPLETED.receipt_dsse, COMPLETED.receipt_proof)


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        public = {name: member for name, member in vars(kind).items() if inspect.isfunction(member) and name[0] != "_"}
        return {name: list(inspect.signature(member).parameters) for name, member in public.items()}

    assert surface(Client) == surface(AsyncClient)


@pytest.mark.parametrize("target", ["", "unixrelative", "/run/x.sock"])
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="unix:/path"):
        Client(target)


def test_times_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="margin_seconds"):
        Client("unix:/x", margin_seconds=0)


def test_arguments_without_a_canonical_form_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(NotCanonical):
        Call.of("o", "e", target="t", arguments={"a": float("nan")})
    with pytest.raises(TypeError):
        Call.of("o", "e", target="t", arguments={}, no_such_field=1)


class Plain(grpc.RpcError):
    """What gRPC raises when a proxy or the network answered."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> None:
        return None


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", "NETWORK_ERROR"),
        ("UNAVAILABLE", "Received http2 header with status: 502", "HTTP_ERROR"),
        ("UNAVAILABLE", "Trying to connect an http1.x server (HTTP status 502)", "HTTP_ERROR"),
        ("UNKNOWN", "Stream removed", "NETWORK_ERROR"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "TIMEOUT"),
        ("CANCELLED", "", "NETWORK_ERROR"),
        ("INTERNAL", "invalid content-type: text/html", "HTTP_ERROR"),
    ],
)
def test_a_lost_answer_has_its_code(code: str, details: str, reason: str) -> None:
    """R671: NETWORK_ERROR, TIMEOUT, HTTP_ERROR."""
    lost = Plain(grpc.StatusCode[code], details)
    error = client_package.errors.from_rpc(lost, effect=True, call=CALL)
    assert isinstance(error, UnavailableError)
    assert (error.reason, error.outcome_unknown, error.call) == (reason, True, CALL)
    assert not client_package.errors.from_rpc(lost, effect=False, call=None).outcome_unknown
