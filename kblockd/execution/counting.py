"""Refusals that are counted instead of kept (AGT-06): the first of a kind is a record, the others of that minute are
one record with their number.

A kind is a reason, a principal, a method and the execution that is meant, if any. A count is in memory until its minute
has ended: a daemon that dies loses it, and the ledger then tells of the first refusal alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

WINDOW_SECONDS: Final = 60.0


class Kind(NamedTuple):
    """What is counted together."""

    tenant: str
    principal: str
    reason: str
    method: str = ""
    execution_id: str = ""


@dataclass(slots=True)
class Window:
    """``count`` refusals after the first, from ``since`` to ``until`` (RFC 3339); it closes at ``ends`` (monotonic)."""

    ends: float
    count: int = 0
    since: str = ""
    until: str = ""

    def add(self, at: str) -> None:
        """One more."""
        self.count += 1
        self.since = self.since or at
        self.until = at


class RefusalCounts:
    """Open windows by kind; of one principal at most as many as its share of records lets it open."""

    def __init__(self) -> None:
        self._open: dict[Kind, Window] = {}

    def is_open(self, kind: Kind) -> bool:
        """Whether the first of this kind and minute is on record."""
        return kind in self._open

    def open(self, kind: Kind, now: float) -> None:
        """The first is being recorded, or cannot be: what follows is counted."""
        self._open[kind] = Window(now + WINDOW_SECONDS)

    def add(self, kind: Kind, at: str) -> None:
        """One more of a kind whose window is open."""
        self._open[kind].add(at)

    def take(self, now: float) -> Iterator[tuple[Kind, Window]]:
        """The windows that have ended, if anything was counted in them; ``math.inf`` takes all. One after another:
        whoever stops in between leaves the others counted."""
        for kind in [kind for kind, window in self._open.items() if window.ends <= now]:
            window = self._open.pop(kind)
            if window.count:
                yield kind, window
