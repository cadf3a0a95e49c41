"""The real clock, randomness and boot id, which production injects and tests replace."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kblockd.domain.clock import paired

_POOL_BYTES = 1024
_PAIRING_SECONDS = 0.0001
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _wall() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


since_boot: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Seconds including the machine's sleep. Without such a clock monotonic time, which on Linux excludes it."""


class SystemClock:
    """Wall clock at the start plus elapsed time, never before the time of the last record.

    A jump of the wall clock while the daemon runs has no effect (LSE-04). While the machine's clock is behind the last
    record nothing is consumed, until it has caught up or been corrected. ``wall`` (aware UTC) and ``monotonic``
    (seconds) are the machine's clocks; ``now`` advances with ``elapsed`` (seconds), which is ``since_boot`` in the
    daemon, so that approvals also expire while the machine sleeps (APR-04).

    If a hypervisor pauses a machine including its boot time, ``now`` stays behind by the pause until the next start:
    it looks just like a wall clock set forward. Restart the daemon after such a resume.
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
        """Sets the time of the last record; call it before anything is decided or recorded."""
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

        Only while it has not, the wall clock is read again, in case somebody has corrected it.
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
        return paired(self._read_elapsed, self._read_wall, _PAIRING_SECONDS)

    def _elapsed(self) -> dt.datetime:
        return self._wall + dt.timedelta(seconds=self._read_elapsed() - self._started)


class RandomIds:
    """Identifiers from the operating system's randomness, drawn in bulk; no bit is used twice.

    Lists are sorted by identifier, so in the daemon ``milliseconds`` never goes back, whatever the wall clock does. For
    one thread of one process: a fork would reuse the same bits.
    """

    def __init__(self, milliseconds: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._milliseconds = milliseconds
        self._pool = b""
        self._used = 0

    def new(self, prefix: str) -> str:
        """48 bits of milliseconds, then 80 random bits."""
        milliseconds = self._milliseconds() & (1 << 48) - 1
        return f"{prefix}_{milliseconds:012x}{self._bits(10).hex()}"

    def salt(self) -> str:
        """128 bits."""
        return self._bits(16).hex()

    def _bits(self, count: int) -> bytes:
        if self._used + count > len(self._pool):
            self._pool, self._used = os.urandom(_POOL_BYTES), 0
        start, self._used = self._used, self._used + count
        return self._pool[start : self._used]


def boot_id() -> str:
    """Changes at each boot of the machine; empty if the kernel has none, so that all boots count as one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
