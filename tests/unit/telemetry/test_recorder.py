"""The recorder: rows, clocks, errors, bounds."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from kblockd.domain.errors import PermissionDenied, Reason
from kblockd.policy.deciding import PolicyFailure
from kblockd.telemetry.recorder import MAX_ROWS, SteadyClock, Trace
from tests.unit.system.machine import INTERRUPTIONS, NOON, Interrupted


class Hand:
    """A clock driven by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_a_wall_clock_jump_makes_no_negative_span() -> None:
    wall, monotonic = Hand(1_000_000), Hand(50)
    trace = Trace(clock=SteadyClock(wall, monotonic))
    with trace.stage(5, "preflight") as row:
        wall.now = 10
        monotonic.now = 57
    assert (row.start_ns, row.end_ns) == (1_000_000, 1_000_007)
    assert trace.start_ns == 1_000_000


@pytest.mark.parametrize(("away", "most"), INTERRUPTIONS)
def test_a_trace_is_never_dated_ahead_of_the_machine(away: tuple[float, ...], most: int) -> None:
    """Whenever its thread loses the processor while the clock of the trace is made."""
    machine = Interrupted(*away)

    def wall() -> int:
        return (machine.wall - NOON) // dt.timedelta(microseconds=1) * 1000

    clock = SteadyClock(machine.read(wall), machine.read(lambda: int(machine.seconds) * 10**9))
    late = wall() - clock()
    assert 0 <= late <= most * 10**9


def test_a_row_is_open_until_its_stage_ends() -> None:
    trace = Trace()
    with trace.stage(5, "preflight") as row:
        assert row.end_ns == 0
        assert trace.rows == [row]
    assert row.end_ns >= row.start_ns > 0


def test_an_exception_leaves_its_reason_and_goes_on() -> None:
    trace = Trace()
    with pytest.raises(PermissionDenied), trace.stage(3, "decide"):
        raise PermissionDenied(Reason.PERMISSION_DENIED, "sk_live_secret")
    assert trace.rows[0].error == "PERMISSION_DENIED"


def test_an_exception_never_leaves_its_text() -> None:
    """R530: UnicodeDecodeError, SSLError and others keep free text in an attribute ``reason``."""
    trace = Trace()
    with pytest.raises(UnicodeDecodeError), trace.stage(1, "admit"):
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "sk_live_secret")
    assert trace.rows[0].error == "UnicodeDecodeError"


def test_a_failure_of_the_policy_leaves_its_reason() -> None:
    trace = Trace()
    with pytest.raises(PolicyFailure), trace.stage(3, "decide"):
        raise PolicyFailure(Reason.POLICY_TIMEOUT, "x")
    assert trace.rows[0].error == "POLICY_TIMEOUT"


def test_a_note_goes_to_the_innermost_open_row() -> None:
    trace = Trace()
    trace.note("a", 1)
    with trace.stage(14, "verify") as verify:
        with trace.nested(verify, "poll") as poll:
            trace.note("a", 2)
        trace.note("a", 3)
    trace.note("b", 4)
    assert (trace.attributes, verify.attributes, poll.attributes) == ({"a": 1, "b": 4}, {"a": 3}, {"a": 2})


async def test_a_cancelled_stage_is_closed() -> None:
    trace = Trace()
    entered = asyncio.Event()

    async def stage() -> None:
        with trace.stage(11, "dispatch"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stage())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert trace.rows[0].error == "CancelledError"
    assert trace.rows[0].end_ns > 0


def test_every_row_has_a_span_id_of_its_own() -> None:
    trace = Trace(trace_id="a" * 32, root_span_id="f" * 16)
    for _ in range(MAX_ROWS):
        trace.stage(14, "verify")
    ids = {trace.span_id(), *(trace.span_id(row) for row in trace.rows)}
    assert len(ids) == MAX_ROWS + 1
    assert all(len(span_id) == 16 and int(span_id, 16) for span_id in ids)


def test_polls_nest_and_rows_are_bounded() -> None:
    trace = Trace(root_span_id="f" * 16)
    with trace.stage(14, "verify") as verify:
        for _ in range(MAX_ROWS):
            with trace.nested(verify, "poll") as poll:
                pass
            assert (poll.stage, poll.parent) == (14, verify.sequence)
    assert len(trace.rows) == MAX_ROWS
    assert trace.unkept == 1
