"""The real clock, the real randomness, the machine's boot: what production injects where tests bring their own."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """Wall clock at the start plus monotonic time, never below the time of the last record.

    A jump of the wall clock while the daemon runs moves nothing (LSE-04). ``floor`` is the time of the last record:
    a machine whose clock stands before it consumes nothing until it has caught up.
    """

    def __init__(self, floor: dt.datetime | None = None) -> None:
        self._started = time.monotonic()
        self._wall = dt.datetime.now(dt.UTC)
        self._floor = floor

    def now(self) -> dt.datetime:
        """UTC; never goes backwards."""
        moment = self._elapsed()
        return moment if self._floor is None or moment > self._floor else self._floor

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic()

    def behind(self) -> bool:
        """Whether the wall clock, as it was at the start, has not yet reached the last record."""
        return self._floor is not None and self._elapsed() < self._floor

    async def sleep(self, seconds: float) -> None:
        """On the running loop."""
        await asyncio.sleep(seconds)

    def _elapsed(self) -> dt.datetime:
        return self._wall + dt.timedelta(seconds=time.monotonic() - self._started)


class RandomIds:
    """Identifiers from the operating system's randomness."""

    def new(self, prefix: str) -> str:
        """48 bits of milliseconds, then 80 random bits."""
        milliseconds = time.time_ns() // 1_000_000 & (1 << 48) - 1
        return f"{prefix}_{milliseconds:012x}{os.urandom(10).hex()}"

    def salt(self) -> str:
        """128 bits."""
        return os.urandom(16).hex()


def boot_id() -> str:
    """Changes at each boot of the machine; empty where the kernel has none, which then counts as one boot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
