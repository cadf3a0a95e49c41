"""A machine that is stopped between two looks at its clocks, whichever they are: preempted, swapped out, suspended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.staged import Act, Machine, StagedSite


@dataclass
class StoppingMachine(Machine):
    """Whoever takes the look at which it stops has read the time before, and goes on behind the stop."""

    stopped: bool = False
    _looks_left: int = 0
    _seconds: float = 0.0
    _others: set[asyncio.Task[Any]] = field(default_factory=set)

    def stop_after(self, looks: int, seconds: float) -> None:
        """At so many looks from now on, those of the daemon's heartbeats and sweeps not counted: called by a task whose
        looks count."""
        self._looks_left, self._seconds = looks, seconds
        self._others = asyncio.all_tasks() - {asyncio.current_task()}

    def go_on(self) -> None:
        """It is not stopped any more."""
        self._looks_left = 0
        self._others.clear()

    def monotonic(self) -> float:
        """Seconds."""
        return self._looked(super().monotonic())

    def since_boot(self) -> float:
        """Seconds."""
        return self._looked(super().since_boot())

    def _looked(self, read: float) -> float:
        if self._looks_left > 0 and asyncio.current_task() not in self._others:
            self._looks_left -= 1
            if self._looks_left == 0:
                self.passed += self._seconds
                self.stopped = True
        return read


class StoppingSite(StagedSite):
    """A daemon on such a machine."""

    machine: StoppingMachine

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.machine = StoppingMachine()

    def every_look(self, seconds: float, behind: str) -> Iterator[Act]:
        """For a loop that plays one story again and again, and begins the looks in it by calling what it is given.

        Not stopped in the first turn, in which more may be looked at than ever after; then stopped for so long at the
        first look, at the second, and so on; the last turn is that in which the point ``behind`` came before the stop.
        """
        for looks in itertools.count():
            self.machine.stopped = False
            yield self._begin(looks, seconds, behind)
            self.machine.go_on()
            self.boundaries.clear()
            if looks and not self.machine.stopped:
                return

    def _begin(self, looks: int, seconds: float, behind: str) -> Act:
        async def end() -> None:
            self.machine.go_on()

        async def begin() -> None:
            self.machine.stop_after(looks, seconds)
            self.boundaries.at(behind, end)

        return begin
