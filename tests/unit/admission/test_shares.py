"""The table of shares: each of its rows is one principal's alone, and one refusal stands for all of them."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from contextlib import ExitStack

import pytest

from kblockd.admission import Admission, on_behalf_of
from kblockd.admission.shares import (
    ANSWER_BYTES,
    BURST_SECONDS,
    BYTES_PER_SECOND,
    DEBT_SECONDS,
    HOLD_SECONDS,
    PAYLOAD_BYTES,
    REFUSALS_PER_SECOND,
    SMALL,
)
from kblockd.domain.errors import Reason, ResourceExhausted
from kblockd.domain.settings import Shares

SHARES = Shares(executions=2, calls=3, request_bytes=100, streams=2, records_per_minute=60)


class Hand:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> dt.datetime:
        raise NotImplementedError

    def behind(self) -> bool:
        raise NotImplementedError

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def _full(table: Admission, kind: str, held: ExitStack) -> None:
    """All of the current principal's share of that kind."""
    if kind == "calls":
        for _ in range(SHARES.calls):
            held.enter_context(table.call())
    elif kind == "streams":
        for _ in range(SHARES.streams):
            held.enter_context(table.stream())
    elif kind == "bytes":
        held.enter_context(table.holding(60))
        held.enter_context(table.holding(40))
    elif kind == "executions":
        for _ in range(SHARES.executions):
            held.callback(table.ended, table.begun())
    else:
        table.recorded(SHARES.records_per_minute)


def _one_more(table: Admission, kind: str) -> None:
    with ExitStack() as held:
        match kind:
            case "calls":
                held.enter_context(table.call())
            case "streams":
                held.enter_context(table.stream())
            case "bytes":
                held.enter_context(table.holding(1))
            case "executions":
                table.check_execution()
            case "records":
                table.check_records()


@pytest.mark.parametrize("kind", ["calls", "streams", "bytes", "executions", "records"])
def test_agt_03_who_has_used_up_a_share_is_told_when_to_come_again_and_nobody_else_is(kind: str) -> None:
    table = Admission(SHARES, Hand())
    with ExitStack() as held:
        with on_behalf_of("hostile"):
            _full(table, kind, held)
            with pytest.raises(ResourceExhausted) as refused:
                _one_more(table, kind)
        assert refused.value.reason is Reason.PRINCIPAL_LIMIT
        assert refused.value.retryable
        assert (refused.value.retry_after_seconds or 0) >= 1.0
        assert "hostile" in refused.value.message
        with on_behalf_of("good"):
            _one_more(table, kind)
        with on_behalf_of("hostile"), pytest.raises(ResourceExhausted):  # nothing was taken: still exactly full
            _one_more(table, kind)
    if kind != "records":
        with on_behalf_of("hostile"):
            _one_more(table, kind)


def test_what_was_done_is_said_only_where_it_was_looked_at() -> None:
    """A call refused at the entrance may repeat one that did something."""
    table = Admission(SHARES, Hand())
    for kind, known in (("calls", None), ("bytes", None), ("executions", False), ("records", False)):
        with ExitStack() as held:
            _full(table, kind, held)
            with pytest.raises(ResourceExhausted) as refused:
                _one_more(table, kind)
        assert (refused.value.executed, refused.value.consumed) == (known, known)


def test_records_come_back_with_time_and_a_debt_is_paid_first() -> None:
    clock = Hand()
    table = Admission(SHARES, clock)
    table.recorded(10)
    with pytest.raises(ResourceExhausted) as refused:
        table.check_records()
    assert refused.value.retry_after_seconds == pytest.approx(1.0)
    clock.seconds += 1.0
    table.check_records()
    table.recorded(12)  # an execution that had begun goes on
    with pytest.raises(ResourceExhausted) as refused:
        table.check_records()
    assert refused.value.retry_after_seconds == pytest.approx(12.0)
    clock.seconds += 12.0
    assert table.may_record()
    clock.seconds += 10_000.0
    table.recorded(10)
    assert not table.may_record()  # idle time is not saved up


def test_agt_06_what_is_kept_beside_a_record_counts_by_its_size() -> None:
    table = Admission(SHARES, Hand())
    table.recorded(1, 8 * PAYLOAD_BYTES)
    assert table.may_record()
    table.recorded(0, PAYLOAD_BYTES)
    assert not table.may_record()


async def test_agt_03_large_requests_of_one_principal_come_one_after_another_at_a_bounded_pace() -> None:
    clock = Hand()
    table = Admission(SHARES, clock)
    with on_behalf_of("hostile"):
        for _ in range(5):
            await table.turn_of(1 << 20)
        assert clock.seconds == pytest.approx(4 * (1 << 20) / BYTES_PER_SECOND)
        before = clock.seconds
        for _ in range(1000):
            await table.turn_of(SMALL)  # a small one does not wait behind the large ones
    with on_behalf_of("good"):
        await table.turn_of(1 << 20)
    assert clock.seconds == before


async def test_agt_06_calls_of_one_principal_begin_at_a_bounded_rate_after_a_burst() -> None:
    clock = Hand()
    table = Admission(SHARES, clock)
    burst = int(SHARES.calls_per_second * BURST_SECONDS)
    with on_behalf_of("hostile"):
        for _ in range(burst):
            await table.turn()
        assert clock.seconds == 0.0
        for _ in range(3 * SHARES.calls_per_second):
            await table.turn()
        assert clock.seconds == pytest.approx(3.0, abs=0.05)
        before = clock.seconds
    with on_behalf_of("good"):
        await table.turn()
    assert clock.seconds == before
    clock.seconds += 1000.0
    with on_behalf_of("hostile"):  # idle time is not saved up
        for _ in range(burst + SHARES.calls_per_second):
            await table.turn()
    assert clock.seconds == pytest.approx(before + 1001.0, abs=0.05)


async def test_agt_07_a_long_answer_counts_as_many_calls() -> None:
    clock = Hand()
    table = Admission(SHARES, clock)
    for _ in range(10):
        await table.turn()
        table.answered(100 * ANSWER_BYTES)
    assert clock.seconds == pytest.approx(9 * 101 / SHARES.calls_per_second, rel=0.05)
    clock.seconds += 1000.0
    before = clock.seconds
    await table.turn()
    table.answered(ANSWER_BYTES)  # an ordinary one costs nothing
    await table.turn()
    assert clock.seconds == before


async def test_a_turn_that_is_given_up_puts_off_nobody() -> None:
    """Callers with short deadlines, again and again: none of them may make the next one wait longer."""

    class Waiting(Hand):
        """Nobody's turn comes."""

        async def sleep(self, seconds: float) -> None:
            await asyncio.Event().wait()

    clock = Waiting()
    table = Admission(SHARES, clock)
    for wait in (table.turn, lambda: table.turn_of(1 << 20)):
        for _ in range(1000):
            impatient = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.gather(impatient, return_exceptions=True)
        clock.seconds += 2.0
        async with asyncio.timeout(30):
            await wait()


async def test_agt_07_what_is_answered_meanwhile_puts_off_who_is_in_the_queue_already() -> None:
    """A hundred calls at one moment: each that begins is sent much, and the others do not begin as if nothing was."""
    clock = Hand()
    table = Admission(SHARES, clock)
    begun: list[float] = []

    async def call() -> None:
        await table.turn()
        begun.append(clock.seconds)
        table.answered(100 * ANSWER_BYTES)

    await asyncio.gather(*(call() for _ in range(20)))
    assert begun[-1] == pytest.approx(19 * 101 / SHARES.calls_per_second, rel=0.05)


async def test_what_was_read_puts_off_the_next_call_by_a_bounded_time_and_no_urgent_one() -> None:
    clock = Hand()
    table = Admission(SHARES, clock)
    for _ in range(64):
        table.answered(4 << 20)
    await table.turn(urgent=True)
    assert clock.seconds == 0.0
    await table.turn()
    assert clock.seconds <= DEBT_SECONDS + (4 << 20) / ANSWER_BYTES / SHARES.calls_per_second


def test_calls_in_flight_keep_nobody_from_an_urgent_one() -> None:
    table = Admission(SHARES, Hand())
    with ExitStack() as held:
        _full(table, "calls", held)
        for _ in range(SHARES.calls):
            held.enter_context(table.call(urgent=True))
        with pytest.raises(ResourceExhausted):
            held.enter_context(table.call(urgent=True))


async def test_who_does_not_heed_the_hint_keeps_to_it_all_the_same() -> None:
    """Refusals are told at once, then later and later, up to a bound; another principal's at once."""
    waits: list[float] = []

    class Still(Hand):
        """All are refused at one moment."""

        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)

    table = Admission(SHARES, Still())
    with on_behalf_of("hostile"):
        for _ in range(1000):
            await table.hold_back()
    assert len(waits) >= 1000 - REFUSALS_PER_SECOND
    rising = [wait for wait in waits if wait < HOLD_SECONDS / 2]
    assert rising == sorted(rising)
    longest = waits[len(rising) :]
    assert max(longest) <= HOLD_SECONDS
    together = Counter(int(wait * 10) for wait in longest)  # ended within the same tenth of a second
    assert max(together.values()) < len(longest) / 20
    waits.clear()
    with on_behalf_of("good"):
        await table.hold_back()
    assert waits == []


def test_a_task_works_for_whoever_started_it() -> None:
    async def both() -> list[float]:
        table = Admission(SHARES, Hand())

        async def work() -> None:
            table.recorded(60)

        with on_behalf_of("a"):
            task = asyncio.create_task(work())
        await task
        left = []
        for who in ("a", "b", ""):
            with on_behalf_of(who):
                left.append(float(table.may_record()))
        return left

    assert asyncio.run(both()) == [0.0, 1.0, 1.0]
