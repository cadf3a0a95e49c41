"""Shares at the door, through a real grpc.aio server: who is over is told so before the request is read."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from kblockd._proto.kblock.v1 import execution_service_pb2, execution_service_pb2_grpc
from kblockd.admission import Admission
from kblockd.admission.shares import READING
from kblockd.domain.settings import Shares
from kblockd.rpc import convert, interceptors
from tests.unit.rpc.fakes import Daemon, running
from tests.unit.rpc.test_convert import minimal

EXECUTE = "/kblock.v1.ExecutionService/Execute"
LIST = "/kblock.v1.ExecutionService/List"
WATCH = "/kblock.v1.ExecutionService/Watch"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MIB = 1 << 20


def request(size: int = 0) -> bytes:
    """A call; with ``size`` a large one, in a field that nobody looks at before the policy has been asked."""
    envelope = minimal()
    envelope.action_id = "x" * size
    return execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope).SerializeToString()


@asynccontextmanager
async def serving(folder: Path, **shares: int) -> AsyncIterator[Daemon]:
    """With these shares, and Execute that answers when ``hold`` is set."""
    given = {"calls": 100, "calls_per_second": 1_000_000, **shares}
    async with running(folder, shares=Shares(**given)) as daemon:
        daemon.executions.hold = asyncio.Event()
        yield daemon


async def ended(calls: list[Any]) -> list[aio.AioRpcError]:
    """The refusals among them, once all have ended."""
    found = await asyncio.gather(*(_outcome(call) for call in calls))
    return [one for one in found if isinstance(one, aio.AioRpcError)]


async def _outcome(call: Any) -> object:
    try:
        return await call
    except aio.AioRpcError as error:
        return error


def told(error: aio.AioRpcError) -> tuple[str, str, float]:
    """Code, reason, and the seconds of the hint (0 without one)."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info, hint = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(hint)
    assert info.reason == "INVALID_FIELD" or "executed" not in info.metadata  # nobody has looked
    return error.code().name, info.reason, hint.retry_delay.seconds


async def until(holds: Any) -> None:
    """Steps of the loop, until it holds."""
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


async def test_agt_03_who_is_over_the_share_of_calls_is_told_so_and_another_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path, calls=3) as daemon, aio.insecure_channel(daemon.target()) as channel:
        calls = [channel.unary_unary(EXECUTE)(request()) for _ in range(10)]
        await until(lambda: sum(call.done() for call in calls) == 7)
        assert len(daemon.executions.calls) == 3
        async with aio.insecure_channel(daemon.target("lead")) as other:
            await execution_service_pb2_grpc.ExecutionServiceStub(other).List(
                execution_service_pb2.ExecutionServiceListRequest()
            )
        assert daemon.executions.hold is not None
        daemon.executions.hold.set()
        errors = await ended(calls)
        assert {told(error) for error in errors} == {("RESOURCE_EXHAUSTED", "PRINCIPAL_LIMIT", 1.0)}
        assert len(errors) == 7
        assert daemon.executions.refusals == []  # nothing is recorded
        await channel.unary_unary(EXECUTE)(request())  # there is room again


async def test_agt_03_a_call_over_the_share_is_refused_before_its_request_is_read(tmp_path: Path) -> None:
    """A client that never sends its request is told all the same."""
    async with serving(tmp_path, calls=1) as daemon, aio.insecure_channel(daemon.target()) as channel:
        first = channel.unary_unary(EXECUTE)(request())
        await daemon.executions.waiting.wait()
        silent = channel.stream_unary(EXECUTE)()
        async with asyncio.timeout(30):
            assert told((await ended([silent]))[0])[1] == "PRINCIPAL_LIMIT"
        first.cancel()


async def test_agt_05_bytes_of_waiting_requests_are_bounded_by_principal(tmp_path: Path) -> None:
    """Sixty requests of 3 MiB: what the daemon holds never passes the share, and what it reads at once some more."""
    async with serving(tmp_path, request_bytes=8 * MIB) as daemon, aio.insecure_channel(daemon.target()) as channel:
        admission = daemon.server._admission
        most = {"held": 0, "read": 0}

        async def watch() -> None:
            while True:
                most["held"] = max(most["held"], *admission._bytes.values(), 0)
                most["read"] = max(most["read"], *admission.reading._used.values(), 0)
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        calls = [channel.unary_unary(EXECUTE)(request(3 * MIB)) for _ in range(60)]
        async with aio.insecure_channel(daemon.target("lead")) as other:
            await other.unary_unary(LIST)(b"")  # served meanwhile
        errors = await ended(calls)
        watching.cancel()
        assert {error.code() for error in errors} <= {
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.INVALID_ARGUMENT,  # those that were let in: the field is too long
        }
        assert any(told(error)[1] == "PRINCIPAL_LIMIT" for error in errors)
        assert 3 * MIB <= most["held"] <= 8 * MIB
        assert 0 < most["read"] <= READING
        assert not admission._bytes


async def test_agt_07_lists_and_watches_have_a_share_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path, streams=2) as daemon, aio.insecure_channel(daemon.target()) as channel:
        daemon.executions.endless = True
        watch = execution_service_pb2.ExecutionServiceWatchRequest(execution_id="e").SerializeToString()
        streams = [channel.unary_stream(WATCH)(watch) for _ in range(2)]
        for stream in streams:
            await stream.read()
        (error,) = await ended([channel.unary_unary(LIST)(b"")])
        assert told(error)[1] == "PRINCIPAL_LIMIT"
        call = channel.unary_unary(EXECUTE)(request())  # calls are not concerned
        await daemon.executions.waiting.wait()
        call.cancel()
        streams[0].cancel()
        await until(lambda: daemon.executions.watching == 1)
        await channel.unary_unary(LIST)(b"")


async def test_agt_07_records_that_are_read_and_not_shown_cost_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees one agent's rows would else read the whole ledger for nothing, page after page."""
    sizes: list[int] = []
    monkeypatch.setattr(Admission, "answered", lambda self, size: sizes.append(size))
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target("lead")) as channel:
        daemon.engine.result = {"allow": True, "tenants": ["acme"], "agents": ["local:agent"], "reasons": []}
        answer = await channel.unary_unary("/kblock.v1.LedgerService/Read")(b"")
        hidden = [entry for entry in daemon.ledger.entries if entry.index in (0, 2)]
        assert sizes == [sum(len(entry.leaf) for entry in hidden), len(answer)]
        assert [asked[0] for asked in daemon.executions.asked] == ["shows"] * 2  # no outcome is put together for it


@pytest.mark.parametrize("method", ["ApprovalService/Revoke", "ApprovalService/Decide", "ExecutionService/Resolve"])
async def test_who_has_used_up_the_share_of_calls_can_still_stop_and_settle(tmp_path: Path, method: str) -> None:
    async with serving(tmp_path, calls=1) as daemon, aio.insecure_channel(daemon.target()) as channel:
        first = channel.unary_unary(EXECUTE)(request())
        await daemon.executions.waiting.wait()
        (error,) = await ended([channel.unary_unary(f"/kblock.v1.{method}")(b"")])
        assert told(error)[1] == "INVALID_FIELD"  # let in, and looked at
        first.cancel()


async def test_silent_requests_keep_nobody_from_what_stops_an_action(tmp_path: Path) -> None:
    """Clients that open a call and send nothing hold the places of reading for ten seconds each."""
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        silent = [channel.stream_unary(EXECUTE)() for _ in range(2 * READING)]
        await until(lambda: daemon.server._admission.reading.in_use == READING)
        (error,) = await ended([channel.unary_unary("/kblock.v1.ApprovalService/Revoke")(b"")])
        assert told(error)[1] == "INVALID_FIELD"  # read, while none of those has been given up
        assert await channel.unary_unary(HEALTH_CHECK)(b"")
        assert not any(call.done() for call in silent)
        for call in silent:
            call.cancel()


@pytest.mark.parametrize("method", [HEALTH_CHECK, HEALTH_WATCH, EXECUTE])
async def test_agt_05_long_requests_of_every_service_are_paced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Two hundred megabytes a second of what nobody knows, in checks of health, would leave the loop nothing else."""
    paced: list[int] = []

    async def counted(admission: Admission, size: int) -> None:
        paced.append(size)

    monkeypatch.setattr(Admission, "turn_of", counted)
    junk = b"\xfa\x3f\x02ab" * 10_000
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        (error,) = await ended([channel.unary_stream(method)(junk).read()])
        assert told(error)[1] == "INVALID_FIELD"
    assert paced == [len(junk)]


async def test_agt_02_a_long_request_is_read_beside_the_loop_whatever_its_length_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred thousand names of evidence are a megabyte, and no document."""
    threads: list[str] = []

    def watched(module: Any, name: str) -> None:
        work = getattr(module, name)

        def noted(*given: Any) -> Any:
            threads.append(threading.current_thread().name)
            return work(*given)

        monkeypatch.setattr(module, name, noted)

    watched(interceptors, "refuse_unknown")
    watched(convert, "check_shape")
    envelope = minimal()
    envelope.evidence.extend([""] * 300_000)
    long = execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope).SerializeToString()
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        (error,) = await ended([channel.unary_unary(EXECUTE)(long)])
        assert "more than 32 names" in str(error.details())
    assert len(threads) == 2
    assert all(name.startswith("foreign-input") for name in threads)


async def test_rpc_03_watches_of_health_and_reflection_are_told_why_when_the_daemon_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        watch = channel.unary_stream(HEALTH_WATCH)(b"")
        assert await watch.read()
        talk = channel.stream_stream(REFLECT)()
        await talk.write(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())
        assert await talk.read()
        await daemon.server.stop(0)
        errors = await ended([_rest(watch), _rest(talk)])
        assert [told_at_stop(error) for error in errors] == [("UNAVAILABLE", "SHUTTING_DOWN")] * 2


async def _rest(stream: Any) -> None:
    while await stream.read():
        pass


async def test_agt_05_health_and_reflection_take_of_the_shares_as_well(tmp_path: Path) -> None:
    """Names of 4 MB in two hundred watches of health would be 800 MB; who is over is told so, another is served."""
    long = health_pb2.HealthCheckRequest(service="x" * (4_000_000)).SerializeToString()
    async with serving(tmp_path, request_bytes=8 * MIB) as daemon, aio.insecure_channel(daemon.target()) as channel:
        admission = daemon.server._admission
        watches = [channel.unary_stream(HEALTH_WATCH)(long) for _ in range(40)]
        errors = await ended([watch.read() for watch in watches])
        assert {told(error)[1] for error in errors} <= {"PRINCIPAL_LIMIT", "INVALID_FIELD"}
        assert len(errors) == 40
        assert not daemon.server._health._server_watchers
        assert not admission._bytes
        talks = [channel.stream_stream(REFLECT)() for _ in range(2 * READING)]
        question = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
        for talk in talks[:READING]:
            await talk.write(question)
            assert await talk.read()
        errors = await ended([talk.read() for talk in talks[READING:]])
        assert {told(error)[1] for error in errors} == {"PRINCIPAL_LIMIT"}
        assert len(errors) == READING
        async with aio.insecure_channel(daemon.target("lead")) as other:
            assert await other.unary_unary(HEALTH_CHECK)(b"")


async def test_health_is_paced_and_answers_while_other_calls_have_used_up_their_share(tmp_path: Path) -> None:
    turns: list[bool] = []
    async with serving(tmp_path, calls=1) as daemon, aio.insecure_channel(daemon.target()) as channel:
        first = channel.unary_unary(EXECUTE)(request())
        await daemon.executions.waiting.wait()
        turn = daemon.server._admission.turn

        async def counted(*, urgent: bool = False) -> None:
            turns.append(urgent)
            await turn(urgent=urgent)

        daemon.server._admission.turn = counted  # type: ignore[method-assign]
        for _ in range(3):
            assert await channel.unary_unary(HEALTH_CHECK)(b"")
        assert turns == [True] * 3
        with pytest.raises(aio.AioRpcError) as unknown:
            await channel.unary_unary(HEALTH_CHECK)(health_pb2.HealthCheckRequest(service="x").SerializeToString())
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        first.cancel()


@pytest.mark.parametrize("silent", [0, 20], ids=["waiting", "unsent"])
async def test_rpc_03_whoever_waits_when_the_daemon_stops_is_told_why(tmp_path: Path, silent: int) -> None:
    """Two hundred callers that wait for an end, for their turn to be read, and for a request that never comes: each
    gets a status with a reason, none a bare CANCELLED."""
    async with serving(tmp_path, calls=2000) as daemon, aio.insecure_channel(daemon.target()) as channel:
        calls = [channel.unary_unary(EXECUTE)(request()) for _ in range(200 - silent)]
        await until(lambda: len(daemon.executions.calls) == 200 - silent)
        unsent = [channel.stream_unary(EXECUTE)() for _ in range(silent)]
        await until(lambda: len(daemon.server._in_flight._running) == 200)
        await daemon.server.stop(0)
        errors = await ended([*calls, *unsent])
        assert len(errors) == 200
        assert {told_at_stop(error) for error in errors} == {("UNAVAILABLE", "SHUTTING_DOWN")}


def told_at_stop(error: aio.AioRpcError) -> tuple[str, str]:
    return told(error)[:2]


async def test_a_request_that_does_not_arrive_frees_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kblockd.rpc.interceptors.READ_SECONDS", 0.05)
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        silent = [channel.stream_unary(EXECUTE)() for _ in range(3 * READING)]
        errors = await ended(silent)
        assert {told(error)[1] for error in errors} == {"INVALID_FIELD"}
        assert daemon.executions.hold is not None
        daemon.executions.hold.set()
        await channel.unary_unary(EXECUTE)(request())


@pytest.mark.parametrize("method", [EXECUTE, WATCH, HEALTH_WATCH])
async def test_agt_05_a_refused_request_does_not_wait_for_the_garbage_collector(tmp_path: Path, method: str) -> None:
    """The collector seldom comes by: what it alone could free would pile up, megabytes a request."""
    async with serving(tmp_path) as daemon, aio.insecure_channel(daemon.target()) as channel:
        junk = b"\xfa\x3f\x02ab" * 10_000
        await ended([channel.unary_stream(method)(junk).read()])
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                (error,) = await ended([channel.unary_stream(method)(junk).read()])
                assert told(error)[1] == "INVALID_FIELD"
            del error
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            held = [one for one in gc.get_referents(*gc.garbage) if isinstance(one, bytes) and len(one) >= len(junk)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not held
