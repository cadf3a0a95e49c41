"""What processes use, read from /proc: CPU time, memory, children. On a shared machine CPU time is the steadiest."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of user and system time, or the difference of two readings. ``loop`` is the first thread's part."""

    total: float = 0.0
    loop: float = 0.0

    def __sub__(self, other: Self) -> Cpu:
        return Cpu(self.total - other.total, self.loop - other.loop)

    def __add__(self, other: Self) -> Cpu:
        return Cpu(self.total + other.total, self.loop + other.loop)

    def milliseconds_each(self, number: int) -> Cpu:
        """Divided among so many executions."""
        return Cpu(1000 * self.total / max(1, number), 1000 * self.loop / max(1, number))


def seconds_of(stat: str) -> float:
    """utime and stime of a ``/proc/…/stat`` line (the name in it may hold anything, spaces and parentheses too)."""
    fields = stat.rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def parent_of(stat: str) -> int:
    """The parent's id in a ``/proc/…/stat`` line."""
    return int(stat.rpartition(") ")[2].split()[1])


def cpu(pid: int) -> Cpu:
    """Of one process so far, threads that have ended included; nothing when it has gone."""
    try:
        whole = (_PROC / str(pid) / "stat").read_text()
        first = (_PROC / str(pid) / "task" / str(pid) / "stat").read_text()
    except OSError:
        return Cpu()
    return Cpu(seconds_of(whole), seconds_of(first))


def children(pid: int) -> list[int]:
    """Processes whose parent it is."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if parent_of((entry / "stat").read_text()) == pid:
                    found.append(int(entry.name))
    return found


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Resident memory now (``VmRSS``) or at most so far (``VmHWM``)."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds that all processors have worked, and that they could have."""

    busy: float
    possible: float

    def __sub__(self, other: Self) -> Machine:
        return Machine(self.busy - other.busy, self.possible - other.possible)


def machine_of(stat: str) -> Machine:
    """From ``/proc/stat``: time stolen by other machines counts as work, waiting for a disk does not."""
    user, nice, system, idle, waiting, interrupt, soft, stolen = map(int, stat.splitlines()[0].split()[1:9])
    busy = user + nice + system + interrupt + soft + stolen
    return Machine(busy / _TICK, (busy + idle + waiting) / _TICK)


def machine() -> Machine:
    """So far."""
    return machine_of((_PROC / "stat").read_text())
