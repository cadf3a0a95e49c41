"""Whatever a plugin does, the wrapper answers an outcome in time."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import httpx2
import pytest
from grpc import aio

from kblockd.domain import canonical
from kblockd.domain.answer import AnswerFault, Unreadable
from kblockd.upstream import scrub, wrapper
from kblockd.upstream.adapter import AdapterFault, Facts, Outcome, Sent, ToolCall, ToolDescription
from kblockd.upstream.exchange import Guard, HttpOrigin
from kblockd.upstream.meter import Meter
from kblockd.upstream.pins import definition_sha256
from kblockd.upstream.scope import current
from kblockd.upstream.scrub import Scrubber
from kblockd.upstream.wrapper import NotBegun
from tests.unit.upstream.plugin import call, guarded


class Spiteful(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED: list[BaseException] = [
    ValueError("boom"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    MemoryError(),
    BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("x")]),
    Spiteful(),
    AdapterFault("X", "only describe may"),
    aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), "Socket closed"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_out_06_whatever_is_raised_is_lost(error: BaseException) -> None:
    """Nothing raises, BaseException included; in doubt the upstream may have acted, UNAVAILABLE or not."""

    async def behave(_: ToolCall) -> Outcome:
        raise error

    adapter = guarded(behave)
    for method in (adapter.invoke, adapter.read, adapter.lookup):
        outcome = await method(call())
        assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_RAISED")
    assert (await adapter.poll("op", call())).code == "PLUGIN_RAISED"
    assert (await adapter.cancel("op", call())).code == "PLUGIN_RAISED"
    with pytest.raises(AdapterFault):
        await adapter.describe("refund", call().deadline)


async def test_out_04_twenty_megabytes_of_message_are_cut() -> None:
    """OUT-04: at most 2 KiB of detail, valid UTF-8, even with lone surrogates."""

    async def behave(_: ToolCall) -> Outcome:
        raise RuntimeError("\ud800é" * 10_000_000)

    outcome = await guarded(behave).invoke(call())
    assert outcome.sent is Sent.LOST
    assert len(outcome.detail.encode()) <= 2048


WRONG: list[Any] = [
    None,
    {"sent": "answered"},
    Outcome("answered"),  # type: ignore[arg-type]  # what a careless plugin does
    Outcome(Sent.ANSWERED, detail=b"bytes"),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, code=None),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, request_ids=["x"]),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, request_ids={"x": 1}),  # type: ignore[dict-item]
    Outcome(Sent.ANSWERED, operation=7),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, raw_sha256=None),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, unreadable="at /n"),  # type: ignore[arg-type]
    Outcome(Sent.ANSWERED, unreadable=Unreadable("the upstream's own words", "/n")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", WRONG, ids=range(len(WRONG)))
async def test_an_answer_that_is_no_outcome_is_lost(answer: Any) -> None:
    """An answer that cannot be understood proves nothing."""

    async def behave(_: ToolCall) -> Any:
        return answer

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_ANSWER_INVALID")


async def test_a_method_that_is_not_async_is_contained() -> None:
    """A plugin that returns instead of awaiting."""
    outcome = await guarded(lambda _: Outcome(Sent.ANSWERED)).invoke(call())  # type: ignore[arg-type,return-value]
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_RAISED")


UNSTORABLE: list[Any] = [
    float("nan"),
    float("inf"),
    2**60,
    10**6000,
    "\ud800",
    {"\udfff": 1},
    {1: 2},
    b"bytes",
    {"a": {1, 2}},
    json.loads("[" * 40 + "]" * 40),
]


@pytest.mark.parametrize("output", UNSTORABLE, ids=range(len(UNSTORABLE)))
@pytest.mark.parametrize("is_error", [False, True])
async def test_can_05_can_07_an_unstorable_output_keeps_its_class(output: Any, is_error: bool) -> None:
    """C26, CAN-05, CAN-07: RESULT_NOT_STORABLE, class and raw digest kept, output gone."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, output={"x": output}, is_error=is_error, raw_sha256="a" * 64)

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.is_error) == (Sent.ANSWERED, is_error)
    assert (outcome.code, outcome.output, outcome.raw_sha256) == ("RESULT_NOT_STORABLE", None, "a" * 64)


@pytest.mark.parametrize("output", UNSTORABLE, ids=range(len(UNSTORABLE)))
async def test_ups_10_ups_11_ups_18_for_a_read_it_is_no_answer(output: Any) -> None:
    """UPS-10, UPS-11, UPS-18: whatever a plugin answers; of a read, a look-up and a poll, and with the place."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, output={"x": output})

    adapter = guarded(behave)
    for outcome in (await adapter.read(call()), await adapter.lookup(call()), await adapter.poll("op", call())):
        assert (outcome.sent, outcome.code, outcome.output) == (Sent.LOST, "RESULT_NOT_STORABLE", None)
        assert outcome.unreadable is not None
        assert outcome.detail == str(outcome.unreadable)
        assert "/x" in outcome.detail


async def test_ups_10_a_read_that_is_too_large_to_keep_is_no_answer() -> None:
    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, output="x" * 3000)

    outcome = await guarded(behave, max_output_bytes=2000).read(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RESPONSE_TOO_LARGE")
    assert outcome.unreadable == Unreadable(AnswerFault.SIZE)


@pytest.mark.parametrize("sent", Sent)
@pytest.mark.parametrize("is_error", [False, True])
async def test_what_is_no_good_answer_anyway_stays_what_it_is(sent: Sent, is_error: bool) -> None:
    """An error answer proves nothing whatever its body; NOT_SENT and accepted work do not become a loss."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(sent, output={"n": 2**60}, operation="op", is_error=is_error)

    outcome = await guarded(behave).read(call())
    assert outcome.sent is (Sent.LOST if (sent, is_error) == (Sent.ANSWERED, False) else sent)


async def test_what_a_plugin_found_unreadable_is_never_output() -> None:
    """Its code stays; without one it gets ours. The place is scrubbed as everything else is."""

    async def behave(_: ToolCall) -> Outcome:
        found = Unreadable(AnswerFault.TWICE, "/token-secret-7/n")
        return Outcome(Sent.ANSWERED, output={"n": 1}, unreadable=found, code="ODD" if codes.pop() else "")

    codes = [True, False]
    adapter = guarded(behave, ref="env:UNREADABLE_TEST_TOKEN")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNREADABLE_TEST_TOKEN", "token-secret-7")
        first, second = await adapter.invoke(call()), await adapter.invoke(call())
    assert [(o.sent, o.output, o.code) for o in (first, second)] == [
        (Sent.ANSWERED, None, "RESULT_NOT_STORABLE"),
        (Sent.ANSWERED, None, "ODD"),
    ]
    assert first.unreadable == Unreadable(AnswerFault.TWICE, "/[credential removed]/n")


async def test_an_unstorable_output_without_digest_gets_one() -> None:
    """C26: the digest says what came."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, output="\ud800", code="HTTP_500", detail="five hundred")

    outcome = await guarded(behave).invoke(call())
    assert len(outcome.raw_sha256) == 64
    assert "HTTP_500" in outcome.detail


async def test_every_field_is_bounded() -> None:
    """R201, R629: output, detail, operation, identifiers, code."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(
            Sent.ANSWERED,
            output="x" * 3000,
            operation="o" * 10_000,
            code="not a code",
            detail="d" * 10_000,
            raw_sha256="zz",
            request_ids={f"n{n}": "i" * 10_000 for n in range(1000)},
        )

    outcome = await guarded(behave, max_output_bytes=2000).invoke(call())
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.ANSWERED, "RESPONSE_TOO_LARGE", None)
    assert len(outcome.detail.encode()) <= 2048
    assert outcome.operation is not None
    assert len(outcome.operation) <= 512
    assert len(outcome.request_ids) <= 16
    assert all(len(value) <= 512 for value in outcome.request_ids.values())


async def test_accepted_needs_an_operation() -> None:
    """OUT-10: work that nobody can ask for is unknown."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ACCEPTED)

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "OPERATION_MISSING")


def _meter(written: int, marked: int | None = None, *, asked: bool = False) -> Meter:
    scope = current()
    assert scope is not None
    meter = Meter(scope.deadline, scope.deadline, 1 << 20)
    scope.add(meter)
    if marked is not None:
        meter.marked = marked
    if asked:
        meter.ask()
    meter.written = written
    return meter


@pytest.mark.parametrize(("written", "sent"), [(0, Sent.NOT_SENT), (1, Sent.LOST)])
async def test_raising_is_not_sent_only_when_the_exchange_proves_it(written: int, sent: Sent) -> None:
    """OUT-05: the marked request was asked for, and zero bytes on every exchange is proof; one byte is not."""

    async def behave(_: ToolCall) -> Outcome:
        _meter(0, 0, asked=True)
        _meter(written)
        raise RuntimeError("x")

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.code) == (sent, "PLUGIN_RAISED")


REFUSED = Outcome(Sent.ANSWERED, is_error=True, facts=Facts(True, "body", 422))
ENDS: dict[str, Outcome | None] = {
    "raised": None,
    "not sent": Outcome(Sent.NOT_SENT, code="CONNECT_FAILED"),
    "refused": REFUSED,  # free of effects, if the contract says so
    "lost": Outcome(Sent.LOST),  # absent, if a look-up says so
}


@pytest.mark.parametrize("end", ENDS)
async def test_behind_the_answer_nothing_can_leave_any_more(end: str) -> None:
    """What is proved stays true: a task that the plugin left behind writes neither to an old nor to a new exchange."""
    go = asyncio.Event()
    refused: asyncio.Queue[str] = asyncio.Queue()
    left_behind: list[asyncio.Task[None]] = []

    async def straggle(old: Meter) -> None:
        await go.wait()
        for meter in (old, _meter(0)):
            try:
                meter.may_write(1)
                refused.put_nowait("written")
            except httpx2.WriteTimeout:
                refused.put_nowait("refused")

    async def behave(_: ToolCall) -> Outcome:
        left_behind.append(asyncio.create_task(straggle(_meter(0, 0, asked=True))))
        if (answer := ENDS[end]) is None:
            raise RuntimeError("x")
        return answer

    outcome = await guarded(behave).invoke(call())
    assert outcome.sent is (Sent.NOT_SENT if ENDS[end] is None else ENDS[end].sent)  # type: ignore[union-attr]
    go.set()
    assert [await asyncio.wait_for(refused.get(), 10) for _ in range(2)] == ["refused", "refused"]


async def test_behind_the_answer_no_other_connection_is_made() -> None:
    """The exchange could not connect in time, which proves that nothing was sent, and another attempt may be under way:
    the plugin that turns to a connection of its own then gets none."""
    connected: list[str] = []

    async def connect(host: str, port: int, deadline: float) -> Any:
        connected.append(host)

    guard = Guard(HttpOrigin("http", "127.0.0.1", 1), connect, None, 1 << 20)
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def behave(_: ToolCall) -> Outcome:
        _meter(0, 0, asked=True)
        while not (scope := current()) or not scope.sealed:
            await asyncio.sleep(0.01)
        try:
            await guard.raw_connection("127.0.0.1", 1, call().deadline)
        except httpx2.ConnectTimeout:
            refused.put_nowait("refused")
        return Outcome(Sent.ANSWERED)

    outcome = await guarded(behave).invoke(call(0.05))
    assert outcome.sent is Sent.NOT_SENT
    assert await asyncio.wait_for(refused.get(), 10) == "refused"
    assert connected == []


async def test_not_sent_against_the_counter_is_overruled() -> None:
    """A false NOT_SENT would allow a second effect: bytes after a mark speak louder."""

    async def behave(_: ToolCall) -> Outcome:
        _meter(written=100, marked=50)
        return Outcome(Sent.NOT_SENT, code="CONNECT_FAILED")

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_CONTRADICTED")


@pytest.mark.parametrize("how", ["unused", "marked", "asked, unmarked", "raw"])
async def test_ups_09_an_exchange_that_was_not_used_for_the_marked_request_proves_nothing(how: str) -> None:
    """A plugin takes an exchange, acts over its own socket and raises, or says itself that nothing was sent."""

    async def take(_: ToolCall) -> None:
        scope = current()
        assert scope is not None
        meter = _meter(0, 0 if how in ("marked", "raw") else None)
        if how != "marked":
            meter.ask()
        scope.raw_connections += how == "raw"

    async def raises(given: ToolCall) -> Outcome:
        await take(given)
        raise RuntimeError("acted, and broke")

    async def claims(given: ToolCall) -> Outcome:
        await take(given)
        return Outcome(Sent.NOT_SENT, code="CONNECT_FAILED")

    outcome = await guarded(raises).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_RAISED")
    if how != "marked":  # one that gave up where it would have sent says so by its mark
        outcome = await guarded(claims).invoke(call())
        assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_CONTRADICTED")


@pytest.mark.parametrize("marked", [0, 40])
async def test_ups_09_a_second_mark_takes_nothing_back(marked: int) -> None:
    """A plugin that marks once more where it gives up, although its request has begun."""

    async def behave(_: ToolCall) -> Outcome:
        meter = _meter(100, marked)
        meter.mark()
        return Outcome(Sent.NOT_SENT, code="CONNECTION_LOST")

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_CONTRADICTED")


@pytest.mark.parametrize(
    "facts",
    [
        Facts(status=99),
        Facts(status=True),
        Facts(rpc_code=2**60),
        Facts(media_type="text/html; charset=utf-8"),
        Facts(form="page"),  # type: ignore[arg-type]  # what a careless plugin does
        Facts(answers_request=1),  # type: ignore[arg-type]
    ],
    ids=range(6),
)
async def test_facts_that_are_not_understood_are_none(facts: Facts) -> None:
    """OUT-05: and then the answer cannot be the tool's own."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, is_error=True, facts=replace(facts, at_work=True))

    outcome = await guarded(behave).invoke(call())
    assert (outcome.sent, outcome.facts) == (Sent.ANSWERED, Facts(at_work=True))


async def test_not_sent_after_a_handshake_only_is_believed() -> None:
    """Bytes before the mark are the handshake's."""

    async def behave(_: ToolCall) -> Outcome:
        _meter(written=50, marked=50)
        return Outcome(Sent.NOT_SENT, code="CONNECT_FAILED")

    assert (await guarded(behave).invoke(call())).sent is Sent.NOT_SENT


async def test_rpc_09_a_result_produced_while_being_cancelled_is_evidence() -> None:
    """RPC-09: the limit fires, the plugin catches the cancel and returns a reference."""
    late: asyncio.Queue[Outcome] = asyncio.Queue()

    async def behave(_: ToolCall) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Outcome(Sent.ANSWERED, request_ids={"refund": "re_1"})
        raise AssertionError

    outcome = await guarded(behave, late_seconds=0.1).invoke(call(0.1), on_late=late.put_nowait)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    assert "may have acted" in outcome.detail
    evidence = await asyncio.wait_for(late.get(), 10)
    assert evidence.request_ids == {"refund": "re_1"}


@pytest.mark.parametrize(
    "answer", [Outcome(Sent.ACCEPTED), Outcome(Sent.LOST, facts=Facts(at_work=True))], ids=lambda it: it.sent.value
)
async def test_ups_02_a_late_answer_that_the_work_goes_on_is_news(answer: Outcome) -> None:
    """Though it names nothing to ask for: without it the next look-up would prove an absence."""
    late: asyncio.Queue[Outcome] = asyncio.Queue()
    go = asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        await go.wait()
        return answer

    assert (await guarded(behave).invoke(call(0.1), on_late=late.put_nowait)).code == "UPSTREAM_TIMEOUT"
    go.set()
    assert (await asyncio.wait_for(late.get(), 10)).facts.at_work


@pytest.mark.parametrize("how", ["ends", "raises", "is cancelled", "catches the cancellation"])
async def test_ups_08_whoever_called_learns_whether_a_task_that_outlived_its_answer_ended_by_itself(how: str) -> None:
    """One that had to be cancelled may have left a thread behind; and what it said comes first."""
    told: list[object] = []
    done = asyncio.Event()
    go = asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        try:
            await go.wait()
        except asyncio.CancelledError:
            if how == "is cancelled":
                raise
        if how == "raises":
            raise RuntimeError("late")
        return Outcome(Sent.ANSWERED)

    def outlives() -> Callable[[bool], None]:
        told.append("outlives")

        def ended(by_itself: bool) -> None:
            told.append(by_itself)
            done.set()

        return ended

    adapter = guarded(behave, late_seconds=30.0 if how in ("ends", "raises") else 0.1)
    outcome = await adapter.invoke(call(0.1), lambda late: told.append(late.sent), on_outlive=outlives)
    assert (outcome.code, told) == ("UPSTREAM_TIMEOUT", ["outlives"])
    if how in ("ends", "raises"):
        go.set()
    await asyncio.wait_for(done.wait(), 10)
    said = [Sent.ANSWERED] if how in ("ends", "catches the cancellation") else []
    assert told == ["outlives", *said, how in ("ends", "raises")]


async def test_ups_08_a_call_that_ends_in_time_outlives_nothing() -> None:
    """Neither one that is refused before it starts."""
    told: list[str] = []

    def outlives() -> Callable[[bool], None]:
        told.append("outlives")
        return lambda by_itself: None

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.LOST)

    await guarded(behave).invoke(call(), on_outlive=outlives)
    await guarded(behave).invoke(call(-1.0), on_outlive=outlives)
    assert told == []


async def test_rpc_09_a_waiter_that_goes_away_loses_no_result() -> None:
    """Cancelling the waiter does not cancel the effect; its outcome is handed over."""
    late: asyncio.Queue[Outcome] = asyncio.Queue()
    started, go = asyncio.Event(), asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        started.set()
        await go.wait()
        return Outcome(Sent.ANSWERED, output={"ok": True})

    waiter = asyncio.create_task(guarded(behave).invoke(call(), on_late=late.put_nowait))
    await started.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    go.set()
    assert (await asyncio.wait_for(late.get(), 10)).output == {"ok": True}


async def test_a_read_is_cancelled_at_its_deadline() -> None:
    """R198: only effects run on."""
    cancelled = asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    outcome = await guarded(behave).read(call(0.1))
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    await asyncio.wait_for(cancelled.wait(), 10)


async def test_a_failing_recorder_of_late_evidence_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """``on_late`` runs in a callback of the loop; its exception is logged."""
    done = asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        await done.wait()
        return Outcome(Sent.ANSWERED)

    def record(_: Outcome) -> None:
        raise RuntimeError("ledger away")

    adapter = guarded(behave)
    await adapter.invoke(call(0.1), on_late=record)
    done.set()
    async with asyncio.timeout(10):
        while "late outcome" not in caplog.text:
            await asyncio.sleep(0.01)
    await asyncio.wait_for(adapter.close(), 10)


async def test_slots_bound_concurrency_and_waiting_counts_against_the_deadline() -> None:
    """R626: at most ``slots`` at once; without one nothing is sent."""
    running, most = 0, 0
    gate, full = asyncio.Event(), asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            full.set()
        await gate.wait()
        running -= 1
        return Outcome(Sent.ANSWERED)

    adapter = guarded(behave, slots=2)
    waiting = [asyncio.create_task(adapter.invoke(call())) for _ in range(6)]
    await asyncio.wait_for(full.wait(), 10)
    outcome = await adapter.invoke(call(0.1))
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "UPSTREAM_BUSY")
    assert isinstance(outcome, NotBegun)
    gate.set()
    assert {answer.sent for answer in await asyncio.gather(*waiting)} == {Sent.ANSWERED}
    # Again, after slots have come back: they came back once each.
    gate.clear()
    full.clear()
    waiting = [asyncio.create_task(adapter.invoke(call())) for _ in range(6)]
    await asyncio.wait_for(full.wait(), 10)
    assert (await adapter.invoke(call(0.1))).code == "UPSTREAM_BUSY"
    gate.set()
    await asyncio.gather(*waiting)
    assert most == 2


async def test_close_ends_everything_and_the_dispatch_is_unknown() -> None:
    """RPC-03: a dispatch in flight at shutdown gets an outcome, not an exception."""
    started = asyncio.Event()

    async def behave(_: ToolCall) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    adapter = guarded(behave)
    waiter = asyncio.create_task(adapter.invoke(call()))
    await started.wait()
    await asyncio.wait_for(adapter.close(), 10)
    assert (await waiter).sent is Sent.LOST


async def test_describe_ends_at_its_deadline() -> None:
    """R179."""

    async def behave(_: ToolCall) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(AdapterFault) as fault:
        await guarded(behave).describe("refund", call(0.1).deadline)
    assert fault.value.code == "UPSTREAM_TIMEOUT"


@pytest.mark.parametrize("definition", [float("nan"), {"a": "\ud800"}, {"a": b"x"}], ids=["nan", "surrogate", "bytes"])
async def test_a_definition_without_canonical_form_is_a_fault(definition: Any) -> None:
    """It could not be pinned."""

    async def behave(_: ToolCall) -> Any:
        return ToolDescription("refund", "1", definition)

    with pytest.raises(AdapterFault) as fault:
        await guarded(behave).describe("refund", call().deadline)
    assert fault.value.code == "DEFINITION_NOT_CANONICAL"


@pytest.mark.parametrize("answer", [None, ToolDescription("other", "1", {})], ids=["none", "another tool"])
async def test_a_description_of_something_else_is_a_fault(answer: Any) -> None:
    """A pin is compared with what was asked for."""

    async def behave(_: ToolCall) -> Any:
        return answer

    with pytest.raises(AdapterFault) as fault:
        await guarded(behave).describe("refund", call().deadline)
    assert fault.value.code == "PLUGIN_ANSWER_INVALID"


async def test_mcp_13_a_definition_is_looked_at_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream is asked each time; what it says alike was looked at already, and 1 is neither true nor 1.0."""
    served: list[Any] = [{"n": 1}, {"n": 1}, {"n": True}, {"n": 1.0}, {"n": None}, {"n": float("nan")}, {"n": 1}]
    described = wrapper._described
    looked: list[Any] = []

    def seen(tool: str, answer: ToolDescription, scrubber: Scrubber) -> Any:
        looked.append(answer.definition)
        return described(tool, answer, scrubber)

    async def behave(_: ToolCall) -> Any:
        return ToolDescription("refund", "1", served.pop(0))

    monkeypatch.setattr(wrapper, "_described", seen)
    monkeypatch.setenv("KBLOCKD_TEST_CREDENTIAL", "Bearer first-credential")
    adapter = guarded(behave, ref="env:KBLOCKD_TEST_CREDENTIAL")
    for definition in list(served):
        if definition["n"] != definition["n"]:
            with pytest.raises(AdapterFault):
                await adapter.describe("refund", call().deadline)
        else:
            found = await adapter.describe("refund", call().deadline)
            assert definition_sha256(found) == canonical.digest(definition)
    assert [str(definition["n"]) for definition in looked] == ["1", "True", "1.0", "None", "nan"]
    served.append({"n": 1})
    monkeypatch.setenv("KBLOCKD_TEST_CREDENTIAL", "Bearer second-credential")
    await adapter.describe("refund", call().deadline)
    assert len(looked) == 6  # under another credential it is scrubbed anew


async def test_an_answer_about_another_tool_is_refused_although_it_is_known() -> None:
    async def behave(_: ToolCall) -> Any:
        return ToolDescription("refund", "1", {})

    adapter = guarded(behave)
    await adapter.describe("refund", call().deadline)
    with pytest.raises(AdapterFault, match="did not describe other"):
        await adapter.describe("other", call().deadline)


async def test_an_unreadable_credential_sends_nothing() -> None:
    """R631: the plugin is not even asked."""
    asked = False

    async def behave(_: ToolCall) -> Outcome:
        nonlocal asked
        asked = True
        return Outcome(Sent.ANSWERED)

    outcome = await guarded(behave, ref="file:/nonexistent/credential").invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "CREDENTIAL_UNREADABLE")
    assert isinstance(outcome, NotBegun)
    assert not asked


async def test_apv_01_what_ends_while_a_slot_is_waited_for_is_seen() -> None:
    """The last look comes behind the wait; the slot goes on to the next, and the breaker counts nothing."""
    go, started = asyncio.Event(), asyncio.Event()
    code = ""

    async def behave(_: ToolCall) -> Outcome:
        started.set()
        await go.wait()
        return Outcome(Sent.ANSWERED)

    seen: list[Outcome] = []
    adapter = guarded(behave, slots=1)
    adapter._observe = seen.append
    first = asyncio.create_task(adapter.invoke(call()))
    await started.wait()
    second = asyncio.create_task(adapter.invoke(call(), unfit=lambda: code))
    await asyncio.sleep(0)
    code = "RELIED_ON_CHANGED"
    go.set()
    assert ((await first).sent, len(adapter._adapter.calls)) == (Sent.ANSWERED, 1)  # type: ignore[attr-defined]
    assert await second == NotBegun(Sent.NOT_SENT, code="RELIED_ON_CHANGED")
    assert (await adapter.invoke(call())).sent is Sent.ANSWERED
    assert [outcome.sent for outcome in seen] == [Sent.ANSWERED, Sent.ANSWERED]


async def test_ups_16_a_plugin_cannot_say_that_its_call_was_not_begun() -> None:
    """A word of the wrapper in a plugin's mouth: its call would be made again and again, and counted as none."""

    async def behave(_: ToolCall) -> Outcome:
        return NotBegun(Sent.ANSWERED, output={"refund": "done"})

    outcome = await guarded(behave).invoke(call())
    assert not isinstance(outcome, NotBegun)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "PLUGIN_ANSWER_INVALID")


async def test_ups_16_only_the_wrapper_says_that_a_call_was_not_begun() -> None:
    """UPS-16: a plugin that has run may answer the same code, after it has acted as well."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.NOT_SENT, code="CREDENTIAL_UNREADABLE")

    assert not isinstance(await guarded(behave).invoke(call()), NotBegun)
    assert isinstance(await guarded(behave).invoke(call(-1.0)), NotBegun)


async def test_the_credential_is_read_anew_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """R631, R632, R639: a rotated credential counts at once, and no repr shows it."""
    seen: list[ToolCall] = []

    async def behave(given: ToolCall) -> Outcome:
        seen.append(given)
        return Outcome(Sent.ANSWERED, output={"you sent": "first-credential", "n": [{"second-credential": 1}]})

    adapter = guarded(behave, ref="env:KBLOCKD_TEST_CREDENTIAL")
    outputs = []
    for value in ("Bearer first-credential", "Bearer second-credential"):
        monkeypatch.setenv("KBLOCKD_TEST_CREDENTIAL", value)
        outputs.append((await adapter.invoke(call())).output)
    assert [given.credential for given in seen] == [b"Bearer first-credential", b"Bearer second-credential"]
    assert "credential" not in repr(seen[0])
    assert outputs[0]["you sent"] == "[credential removed]"
    assert list(outputs[1]["n"][0]) == ["[credential removed]"]


KEY = "k" * 500_000


async def test_ups_17_a_flood_of_values_is_an_answer_without_an_output() -> None:
    """A megabyte with one long key over 250,000 members: what came is said by its code, and proves nothing, so that a
    look-up has failed."""

    async def behave(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, {KEY: [1] * 250_000}, raw_sha256="ab" * 32)

    looked, done = await guarded(behave).lookup(call()), await guarded(behave).invoke(call())
    assert (looked.sent, done.sent) == (Sent.LOST, Sent.ANSWERED)
    for outcome in (looked, done):
        assert (outcome.output, outcome.code) == (None, "RESULT_NOT_STORABLE")
        assert "more than 65536 values" in outcome.detail
        assert outcome.raw_sha256 == "ab" * 32


async def test_ups_17_a_long_answer_is_made_storable_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A legal one is kept whole; its long key is written out for none of its members."""
    threads: list[str] = []
    storable = wrapper.storable

    def seen(*arguments: Any) -> Outcome:
        threads.append(threading.current_thread().name)
        return storable(*arguments)

    monkeypatch.setattr(wrapper, "storable", seen)
    given = {KEY: {str(i): i for i in range(30_000)}}

    async def long(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, given)

    async def short(_: ToolCall) -> Outcome:
        return Outcome(Sent.ANSWERED, {"done": True})

    assert (await guarded(long).lookup(call())).output == given
    assert (await guarded(short).lookup(call())).output == {"done": True}
    assert [name == threading.main_thread().name for name in threads] == [False, True]


async def test_ups_17_a_definition_with_too_many_values_is_none() -> None:
    async def behave(_: str) -> ToolDescription:
        return ToolDescription("refund", "1", {"enum": [1] * 70_000})

    with pytest.raises(AdapterFault, match="more than 65536 values") as raised:
        await guarded(behave).describe("refund", call().deadline)
    assert raised.value.code == "DEFINITION_NOT_CANONICAL"


def test_ups_17_what_a_scrubber_takes_for_alike_has_one_length_and_all_that_a_pattern_would_find() -> None:
    """A character of another length would have the wrong part removed."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        folded = scrub._folded(character)
        assert len(folded) == 1
        for other in {character.lower(), character.upper(), character.casefold()}:
            if len(other) == 1 and other.isascii() and re.fullmatch(re.escape(other), character, re.IGNORECASE):
                assert scrub._folded(other) == folded
    for word in ("\u039f\u0394\u039f\u03a3", "stra\u00dfe", "\ufb01nal", "g\u00e4rtner"):
        scrubber = Scrubber(b"Basic " + base64.b64encode(f"user:{word}-{word}".encode()))
        for echo in (word, word.lower(), word.swapcase() if len(word.swapcase()) == len(word) else word):
            assert scrubber.text(f"\u0130x{echo}-{echo}x") == "\u0130x[credential removed]x"
    for letter, others in {"i": "\u0130\u0131", "s": "\u017f", "k": "\u212a"}.items():
        for other in others:
            assert re.fullmatch(letter, other, re.IGNORECASE)
            assert Scrubber(f"secret-{letter}".encode()).text(f"x secret-{other} y") == "x [credential removed] y"
