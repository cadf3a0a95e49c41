"""A machine whose clocks are moved by hand, and one whose processor somebody else has now and then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final, TypeVar

from kblockd.system import SystemClock

NOON: Final = dt.datetime(2026, 11, 1, 12, 0, tzinfo=dt.UTC)
T = TypeVar("T")


class Machine:
    """A machine whose two clocks are moved by hand."""

    def __init__(self) -> None:
        self.wall = NOON
        self.seconds = 1000.0

    def clock(self, floor: dt.datetime | None = None) -> SystemClock:
        """As the daemon makes it: the time of the last record is known a moment later."""
        clock = SystemClock(lambda: self.wall, lambda: self.seconds)
        clock.after(floor)
        return clock

    def pass_(self, seconds: float) -> None:
        """Time, on both."""
        self.seconds += seconds
        self.wall += dt.timedelta(seconds=seconds)


class Interrupted(Machine):
    """Loses its processor for some seconds at each of the first reads of the clocks."""

    def __init__(self, *away: float) -> None:
        super().__init__()
        self._away = list(away)

    def clock(self, floor: dt.datetime | None = None) -> SystemClock:
        return SystemClock(self.read(lambda: self.wall), lambda: self.seconds, self.read(lambda: self.seconds))

    def read(self, look: Callable[[], T]) -> Callable[[], T]:
        """A clock whose reader loses the processor right after it has looked."""

        def read() -> T:
            found = look()
            self.pass_(self._away.pop(0) if self._away else 0.0)
            return found

        return read


INTERRUPTIONS: Final = [
    ((4,), 0),
    ((0, 4), 0),
    ((0, 0, 4), 0),
    ((4, 4, 4), 0),
    ((0, 4) * 4, 0),
    ((1, 5) * 20, 6),
    ((5, 1) * 20, 6),
]
"""Of an ``Interrupted``, and how many seconds a clock that is made on it may be behind: as many as its shortest reading
takes, where none goes through without an interruption."""
