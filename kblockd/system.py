"""The real clock, the real randomness, the machine's boot: what production injects where tests bring their own."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from collections.abc import Callable
from pathlib import Path

from kblockd.domain.clock import paired

_DRAWN_BYTES = 1024
_APART_SECONDS = 0.0001
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _wall() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def since_boot() -> float:
    """Seconds, the machine's sleep included; monotonic time, which on Linux stands still meanwhile, where there is no
    such clock."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class SystemClock:
    """Wall clock at the start plus monotonic time, never below the time of the last record.

    A jump of the wall clock while the daemon runs moves nothing (LSE-04). A machine whose clock stands before the last
    record consumes nothing until it has caught up, by waiting or by being corrected.
    ``wall`` (aware UTC) and ``monotonic`` (seconds) are the machine's; ``elapsed`` (seconds) is what ``now`` counts,
    ``since_boot`` in the daemon: what expires does so while the machine sleeps, too (APR-04).

    A hypervisor that stops a machine together with its boot time leaves ``now`` behind by that long until the next
    start: nothing here can tell it from a wall clock that was set forward. Restart the daemon after such a resume.
    """

    def __init__(
        self,
        wall: Callable[[], dt.datetime] = _wall,
        monotonic: Callable[[], float] = time.monotonic,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self._floor: dt.datetime | None = None
        self._read_wall = wall
        self._read_monotonic = monotonic
        self._read_elapsed = elapsed or monotonic
        self._started, self._wall = self._paired()

    def after(self, record: dt.datetime | None) -> None:
        """Once the time of the last record is known: before anything is decided or recorded."""
        self._floor = record

    def now(self) -> dt.datetime:
        """UTC; never goes backwards."""
        moment = self._elapsed()
        return moment if self._floor is None or moment > self._floor else self._floor

    def monotonic(self) -> float:
        """Seconds."""
        return self._read_monotonic()

    def behind(self) -> bool:
        """Whether the machine's clock has not yet reached the last record.

        Until it has, and only until then, the wall clock is looked at again: somebody may have corrected it.
        """
        if self._floor is None or self._elapsed() >= self._floor:
            return False
        elapsed, wall = self._paired()
        if wall < self._floor:
            return True
        self._started, self._wall = elapsed, wall
        return False

    async def sleep(self, seconds: float) -> None:
        """On the running loop."""
        await asyncio.sleep(seconds)

    def _paired(self) -> tuple[float, dt.datetime]:
        return paired(self._read_elapsed, self._read_wall, _APART_SECONDS)

    def _elapsed(self) -> dt.datetime:
        return self._wall + dt.timedelta(seconds=self._read_elapsed() - self._started)


class RandomIds:
    """Identifiers from the operating system's randomness, drawn some at a time; no bit is used twice.

    Lists are in the order of identifiers: in the daemon ``milliseconds`` never go back, whatever the wall clock does.
    Belongs to one thread of one process: a fork would go on with the same bits.
    """

    def __init__(self, milliseconds: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._milliseconds = milliseconds
        self._drawn = b""
        self._used = 0

    def new(self, prefix: str) -> str:
        """48 bits of milliseconds, then 80 random bits."""
        milliseconds = self._milliseconds() & (1 << 48) - 1
        return f"{prefix}_{milliseconds:012x}{self._bits(10).hex()}"

    def salt(self) -> str:
        """128 bits."""
        return self._bits(16).hex()

    def _bits(self, count: int) -> bytes:
        if self._used + count > len(self._drawn):
            self._drawn, self._used = os.urandom(_DRAWN_BYTES), 0
        start, self._used = self._used, self._used + count
        return self._drawn[start : self._used]


def boot_id() -> str:
    """Changes at each boot of the machine; empty where the kernel has none, which then counts as one boot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
