"""What one measurement gives: a load's figures with what each process used for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.bench import processes
from tests.bench.load import Seen
from tests.bench.processes import Cpu

Stages = dict[int, list[int]]
"""Stage number to microseconds of wall time, one an execution."""


@dataclass(slots=True)
class Figures:
    """Of one number of callers. ``cpu`` and ``syncs`` are of all its executions together; ``others`` is the share of
    the machine's time that went to processes which are not measured."""

    callers: int
    seen: Seen = field(default_factory=Seen)
    cpu: dict[str, Cpu] = field(default_factory=dict)
    others: float = 0.0
    syncs: int | None = None
    stages: Stages = field(default_factory=dict)

    def cpu_each(self, process: str) -> Cpu:
        """Milliseconds an execution."""
        return self.cpu.get(process, Cpu()).milliseconds_each(self.seen.done)

    @property
    def syncs_each(self) -> float | None:
        """An execution; None when nobody counted."""
        return None if self.syncs is None else self.syncs / max(1, self.seen.done)


@dataclass(slots=True)
class Measured:
    """One variant: the figures by number of callers, then the daemon's memory in MiB."""

    name: str
    figures: dict[int, Figures] = field(default_factory=dict)
    resident_mib: float = 0.0
    highest_mib: float = 0.0
    notes: list[str] = field(default_factory=list)

    def at(self, callers: int) -> Figures | None:
        """None when that number was not run."""
        return self.figures.get(callers)


class Meters:
    """The processes whose CPU time counts, by what they are called in the report."""

    def __init__(self, **pids: Sequence[int]) -> None:
        self._pids = pids

    def read(self) -> dict[str, Cpu]:
        """So far."""
        return {name: sum(map(processes.cpu, pids), Cpu()) for name, pids in self._pids.items()}

    @contextmanager
    def measuring(self, figures: Figures) -> Iterator[None]:
        """What is used in the block goes into ``figures``."""
        machine, before = processes.machine(), self.read()
        yield
        figures.cpu = {name: after - before[name] for name, after in self.read().items()}
        spent = processes.machine() - machine
        ours = sum(cpu.total for cpu in figures.cpu.values())
        figures.others = max(0.0, spent.busy - ours) / max(spent.possible, 1e-9)


def by_stage(events: list[tuple[int, int]]) -> Stages:
    """From (stage, microseconds) pairs."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for stage, microseconds in events:
        found[stage].append(microseconds)
    return dict(found)
