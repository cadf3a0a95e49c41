"""The real clock, the real identifiers, and the one form of time."""

from __future__ import annotations

import datetime as dt
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd import system
from kblockd.domain.clock import Clock, parse_rfc3339, rfc3339
from kblockd.domain.ids import Ids
from kblockd.system import RandomIds, SystemClock, boot_id
from tests.unit.system.machine import INTERRUPTIONS, NOON, Interrupted, Machine

HOUR = dt.timedelta(hours=1)


def test_the_clock_is_the_wall_clock_at_the_start_plus_monotonic_time() -> None:
    machine = Machine()
    clock = machine.clock()
    assert (clock.now(), clock.monotonic(), clock.behind()) == (NOON, 1000.0, False)
    machine.pass_(2.5)
    assert (clock.now(), clock.monotonic()) == (NOON + dt.timedelta(seconds=2.5), 1002.5)


@pytest.mark.parametrize("jump", [-HOUR, HOUR, dt.timedelta(days=-4000), dt.timedelta(days=4000)])
@pytest.mark.parametrize("floor", [None, NOON - HOUR, NOON])
def test_lse_04_a_jump_of_the_wall_clock_moves_nothing(jump: dt.timedelta, floor: dt.datetime | None) -> None:
    """Neither what is now, nor durations, nor whether the machine is behind."""
    machine = Machine()
    clock = machine.clock(floor)
    machine.wall += jump
    assert (clock.now(), clock.monotonic(), clock.behind()) == (NOON, 1000.0, False)
    machine.pass_(10)
    assert clock.now() == NOON + dt.timedelta(seconds=10)


@pytest.mark.parametrize(("away", "most"), INTERRUPTIONS)
def test_the_clock_is_never_ahead_of_the_machines(away: tuple[float, ...], most: int) -> None:
    """Whenever the process is interrupted: else a record would be dated after the call that it came before. Nor is it
    behind by more than the shortest interruption, when none of its readings goes through without one."""
    machine = Interrupted(*away)
    clock = machine.clock()
    late = machine.wall - clock.now()
    assert dt.timedelta() <= late <= dt.timedelta(seconds=most)


def test_lse_03_a_start_with_a_clock_behind_the_last_record_consumes_nothing() -> None:
    """Now stays at the last record's time until monotonic time has caught up; then it goes on without a jump."""
    machine = Machine()
    clock = machine.clock(NOON + HOUR)
    assert (clock.now(), clock.behind()) == (NOON + HOUR, True)
    machine.pass_(3599.0)
    assert (clock.now(), clock.behind()) == (NOON + HOUR, True)
    machine.pass_(1.0)
    assert (clock.now(), clock.behind()) == (NOON + HOUR, False)
    machine.pass_(1.0)
    assert (clock.now(), clock.behind()) == (NOON + HOUR + dt.timedelta(seconds=1), False)


def test_a_clock_that_was_corrected_is_no_longer_behind() -> None:
    """The refusal says "correct the machine's clock": that is enough, without a restart."""
    machine = Machine()
    clock = machine.clock(NOON + HOUR)
    assert clock.behind()
    machine.wall = NOON + 2 * HOUR
    assert clock.now() == NOON + HOUR
    assert not clock.behind()
    assert clock.now() == NOON + 2 * HOUR
    machine.wall = NOON
    assert (clock.now(), clock.behind()) == (NOON + 2 * HOUR, False)
    machine.seconds += 5
    assert clock.now() == NOON + 2 * HOUR + dt.timedelta(seconds=5)


def test_a_correction_that_falls_short_leaves_it_behind() -> None:
    machine = Machine()
    clock = machine.clock(NOON + HOUR)
    machine.wall = NOON + HOUR - dt.timedelta(microseconds=1)
    assert clock.behind()
    assert clock.now() == NOON + HOUR


STEPS = st.lists(
    st.tuples(st.sampled_from(["pass", "jump", "behind"]), st.floats(-7200, 7200, allow_nan=False)), max_size=30
)


@given(st.none() | st.floats(-7200, 7200), STEPS)
def test_now_never_goes_back_and_never_below_the_last_record(
    offset: float | None, steps: list[tuple[str, float]]
) -> None:
    """Whatever the wall clock does."""
    machine = Machine()
    floor = None if offset is None else NOON + dt.timedelta(seconds=offset)
    clock = machine.clock(floor)
    last = clock.now()
    for kind, seconds in steps:
        if kind == "pass":
            machine.pass_(abs(seconds))
        elif kind == "jump":
            machine.wall += dt.timedelta(seconds=seconds)
        else:
            clock.behind()
        assert clock.now() >= last
        last = clock.now()
        assert floor is None or last >= floor
        assert clock.behind() is clock.behind()


async def test_the_machines_own_clock() -> None:
    """With nothing injected: aware UTC, within a minute of the wall clock; sleep is at least as long as asked."""
    clock: Clock = SystemClock()
    assert abs(clock.now() - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
    assert clock.now().utcoffset() == dt.timedelta()
    before = clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - before >= 0.019
    assert not clock.behind()
    ahead = SystemClock()
    ahead.after(dt.datetime.now(dt.UTC) + HOUR)
    assert ahead.behind()
    assert ahead.now() == ahead.now()


MOMENTS = st.datetimes(timezones=st.just(dt.UTC))


@given(MOMENTS)
def test_times_are_written_and_read_back(moment: dt.datetime) -> None:
    """One form: UTC, microseconds, Z; and it sorts as the moments do."""
    text = rfc3339(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert parse_rfc3339(text) == moment


@given(MOMENTS, MOMENTS)
def test_times_sort_as_moments_do(one: dt.datetime, other: dt.datetime) -> None:
    assert (rfc3339(one) < rfc3339(other)) == (one < other)


def test_another_time_zone_is_written_in_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=-8))
    assert rfc3339(dt.datetime(2026, 11, 1, 4, 0, tzinfo=zone)) == "2026-11-01T12:00:00.000000Z"


@pytest.mark.parametrize("text", ["", "2026-11-01", "2026-11-01T12:00:00Z", "2026-11-01T12:00:00.000000+00:00", "x"])
def test_another_form_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the standard library's words
        parse_rfc3339(text)


def test_identifiers_have_one_shape_and_are_unique() -> None:
    """``exe_`` and 32 lowercase hex digits: 48 bits of time, 80 random."""
    ids: Ids = RandomIds()
    made = [ids.new("exe") for _ in range(5000)]
    assert all(re.fullmatch(r"exe_[0-9a-f]{32}", one) for one in made)
    assert len(set(made)) == len({one[-20:] for one in made}) == 5000
    assert ids.new("apr").startswith("apr_")


def test_identifiers_sort_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their text: the newest are listed first by a scan in reverse."""
    now = time.time_ns()
    ids = RandomIds()
    made = []
    for milliseconds in (0, 1, 15, 16, 255, 4096, 86_400_000, 10**12):
        monkeypatch.setattr(system.time, "time_ns", lambda at=now + milliseconds * 1_000_000: at)
        made.append(ids.new("exe"))
    assert made == sorted(made)
    assert int(made[0][4:16], 16) == now // 1_000_000


def test_salts_are_128_bits_and_unique() -> None:
    salts = {RandomIds().salt() for _ in range(1000)}
    assert len(salts) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{32}", salt) for salt in salts)


def test_the_boot_is_the_kernels_or_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert boot_id() == boot_id()
    monkeypatch.setattr(system, "_BOOT_ID", tmp_path / "absent")
    assert boot_id() == ""
    (tmp_path / "boot").write_text("1b4e28ba\n")
    monkeypatch.setattr(system, "_BOOT_ID", tmp_path / "boot")
    assert boot_id() == "1b4e28ba"
