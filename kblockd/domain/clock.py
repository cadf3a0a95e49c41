"""Time as a parameter.

``now`` is the wall clock at the start plus monotonic time, never below the time of the last record, so a jump of
the wall clock moves neither leases nor deadlines (kblockd/execution/README.md#clocks; LSE-03, LSE-04).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from operator import itemgetter
from typing import Final, Protocol, TypeVar

Elapsed = TypeVar("Elapsed", int, float)
Wall = TypeVar("Wall")

_READINGS: Final = 10


class Clock(Protocol):
    """Injected everywhere; tests drive it by hand."""

    def now(self) -> dt.datetime:
        """UTC, aware; never goes backwards within a process."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary point; the only source for durations and deadlines within a process."""
        ...

    def behind(self) -> bool:
        """Whether the machine's wall clock stands before the last record: nothing is consumed until it caught up."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspends for at least ``seconds``."""
        ...


def paired(elapsed: Callable[[], Elapsed], wall: Callable[[], Wall], apart: Elapsed) -> tuple[Elapsed, Wall]:
    """Both clocks, that of the wall at most ``apart`` earlier if one of ten readings goes through so quickly.

    A process that loses its processor between two reads in the other order would run ahead of the machine ever after,
    and date a record later than the call that follows it.
    """
    readings = []
    for _ in range(_READINGS):
        before, moment, after = elapsed(), wall(), elapsed()
        readings.append((after - before, after, moment))
        if after - before <= apart:
            break
    _, after, moment = min(readings, key=itemgetter(0))
    return after, moment


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?P<offset>Z|[+-]\d\d:\d\d)?", re.ASCII)
_LENGTH: Final = len("2026-01-01T00:00:00.000000Z")
_OFFSET: Final = len("+00:00")


def rfc3339(moment: dt.datetime) -> str:
    """RFC 3339 in UTC with ``Z`` and microseconds, the one form that records and statements use."""
    # Not strftime: it writes the years before 1000 with fewer than four digits, which nothing reads back.
    return moment.astimezone(dt.UTC).isoformat(timespec="microseconds")[:-_OFFSET] + "Z"


def moment(text: str) -> dt.datetime:
    """A time that somebody else wrote, in RFC 3339; raises ValueError whose text goes on after ``it``.

    Without an offset it names a different moment in every place, so it is refused as that (APV-07).
    """
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError("is not a time in RFC 3339, such as 2027-01-01T00:00:00Z")
    if found["offset"] is None:
        raise ValueError("has no offset from UTC: end it with Z, or with an offset such as +01:00")
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a time that exists") from None


def parse_rfc3339(text: str) -> dt.datetime:
    """The inverse of ``rfc3339``; raises ValueError."""
    if len(text) != _LENGTH or text[10] != "T" or text[19] != "." or text[-1] != "Z":
        raise ValueError("not a time in the form of rfc3339")
    return dt.datetime.fromisoformat(text[:-1]).replace(tzinfo=dt.UTC)  # twenty times as fast as strptime
