"""Leases with a clock that a test drives: one boundary, no revival, one holder a target."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from kblockd.domain.errors import Aborted, Reason
from kblockd.domain.ledger.rows import target
from kblockd.domain.ledger.values import Fence
from kblockd.execution.leases import Lease, Leases

TTL, HEARTBEAT, SKEW = 30.0, 10.0, 5.0
ORDER, OTHER = target("acme", "payments", "order", "1"), target("acme", "payments", "order", "2")


class HandClock:
    """Time moves when somebody moves it; a sleeper wakes when its time has come."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> dt.datetime:
        return dt.datetime(2030, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def behind(self) -> bool:
        return False

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append((self.seconds + seconds, event))
        await event.wait()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        for at, event in self._sleepers:
            if at <= self.seconds:
                event.set()


@pytest.fixture
def clock() -> HandClock:
    """At some moment."""
    return HandClock()


@pytest.fixture
def leases(clock: HandClock) -> Leases:
    """The 7th life of a daemon."""
    return Leases(clock, 7, TTL, HEARTBEAT, SKEW)


def test_a_lease_names_its_fence(leases: Leases) -> None:
    """R158 to R161: fences are ordered by incarnation and counter."""
    first, second = leases.acquire("exe_1", ORDER), leases.acquire("exe_2", OTHER)
    assert (first.fence, second.fence) == (Fence(7, 1), Fence(7, 2))
    assert (first.execution_id, first.target) == ("exe_1", ORDER)


@pytest.mark.parametrize(
    ("passed", "held"), [(0.0, True), (24.999, True), (25.0, False), (25.001, False), (1e6, False)]
)
def test_lse_01_a_holder_fences_itself_before_its_term_ends(
    leases: Leases, clock: HandClock, passed: float, held: bool
) -> None:
    """C4, LSE-01, IDM-08: at ``expires - skew`` exactly, one boundary for all."""
    lease = leases.acquire("exe_1", ORDER)
    clock.advance(passed)
    assert leases.holds(lease) is held
    assert leases.live("exe_1") is held


def test_a_lost_lease_is_never_revived(leases: Leases, clock: HandClock) -> None:
    """C4: neither by a heartbeat that comes late nor by a clock; who notices first, loses it for all."""
    lost: list[Lease] = []
    leases.on_lost = lost.append
    lease = leases.acquire("exe_1", ORDER)
    clock.advance(TTL - SKEW)
    leases.renew()
    assert not leases.holds(lease)
    clock.seconds = 0.0
    assert not leases.holds(lease)
    assert lost == [lease]


def test_heartbeats_keep_it(leases: Leases, clock: HandClock) -> None:
    """REC-01: three terms and more, whatever the holder does."""
    lease = leases.acquire("exe_1", ORDER)
    for _ in range(20):
        clock.advance(HEARTBEAT)
        leases.renew()
    assert leases.holds(lease)
    assert lease.expires_at == clock.seconds + TTL


async def test_the_beat_renews_by_itself(leases: Leases, clock: HandClock) -> None:
    """C4: independent of what the holders do."""
    lease = leases.acquire("exe_1", ORDER)
    beat = asyncio.create_task(leases.beat())
    for _ in range(12):
        await asyncio.sleep(0)
        clock.advance(HEARTBEAT)
        for _ in range(3):
            await asyncio.sleep(0)
        assert leases.holds(lease)
    beat.cancel()
    clock.advance(TTL)
    assert not leases.holds(lease)


def test_r164_one_execution_a_target(leases: Leases) -> None:
    """R163, R164, C20: another execution is told so; the target is free when its holder gives it up."""
    first = leases.acquire("exe_1", ORDER)
    with pytest.raises(Aborted) as busy:
        leases.acquire("exe_2", ORDER)
    assert (busy.value.reason, busy.value.retryable, busy.value.consumed) == (Reason.TARGET_BUSY, True, False)
    assert leases.live("exe_2") is False
    leases.release(first)
    leases.release(first)  # twice is once
    assert leases.acquire("exe_2", ORDER).fence > first.fence
    leases.drop("exe_1")  # has nothing any more, and takes nothing from the other
    assert leases.live("exe_2")


def test_an_expired_lease_still_has_its_target(leases: Leases, clock: HandClock) -> None:
    """R165, LSE-10: expiry must not start another execution; who supervises gives it up."""
    leases.acquire("exe_1", ORDER)
    clock.advance(10 * TTL)
    with pytest.raises(Aborted):
        leases.acquire("exe_2", ORDER)
    leases.drop("exe_1")
    leases.acquire("exe_2", ORDER)


def test_a_newer_lease_fences_the_older_one_of_the_same_execution(leases: Leases) -> None:
    """C3: whoever took over has the authority alone; the old holder releasing takes nothing away."""
    older = leases.acquire("exe_1", ORDER)
    newer = leases.acquire("exe_1", ORDER)
    assert (leases.holds(older), leases.holds(newer)) == (False, True)
    leases.release(older)
    assert leases.live("exe_1")
    with pytest.raises(Aborted):
        leases.acquire("exe_2", ORDER)


async def test_c4_a_heartbeat_that_fails_is_not_the_last(clock: HandClock, leases: Leases) -> None:
    """C4: whoever is told of a lost lease may fail for want of memory; the leases that come later are still renewed."""
    lost: list[Lease] = []

    def on_lost(lease: Lease) -> None:
        lost.append(lease)
        raise MemoryError

    leases.on_lost = on_lost
    leases.acquire("exe_1", ORDER)
    beating = asyncio.create_task(leases.beat())
    await asyncio.sleep(0)
    clock.advance(TTL)
    while not lost:
        await asyncio.sleep(0)
    later = leases.acquire("exe_2", OTHER)
    for _ in range(6):
        await asyncio.sleep(0.01)
        clock.advance(HEARTBEAT)
        await asyncio.sleep(0.01)
    assert leases.holds(later)
    assert not beating.done()
    beating.cancel()
