"""Many executions through one daemon, and whether what it takes stays flat: part of ``make soak``, or

``python -m tests.soak.flat [--executions 100000] [--settled 10000] [--callers 64]``

A row is read while nobody calls. Memory is a saw-tooth, as the store's write buffer fills and is flushed, so peaks are
compared: that of all rows after ``--settled``, when caches and buffers have been full, may be higher by a tenth than
that of the rows before. Threads and open files may not grow then. Apart are sockets, which are bounded by the
connections to the upstream, and the tables of the store, of which as many are open as there are. Exits with 1 when
anything is not flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from kblockd.client import AsyncClient, CallError, Completed
from tests.bench import processes, servers
from tests.bench.action import call, contract, upstream
from tests.harness import Site

ROWS: Final = 20
LOOKS: Final = 3
GROWTH: Final = 1.10
UPSTREAM: Final = upstream("http")
SOCKETS: Final = UPSTREAM["maximum_concurrent_calls"] + 8  # those to the upstream are kept; and a few callers'
DAEMON: Final = {
    "adapters": ["http"],
    "limits": {"executions": 256},
    "development": {"failpoints": False},
    "policy": {"evaluate_timeout_seconds": 5.0},
}


@dataclass(frozen=True, slots=True)
class Row:
    """After so many executions: seconds since the start, the daemon's CPU seconds, MiB, numbers. ``peak_mib`` is its
    highest memory since the row before; ``files`` are neither sockets nor tables."""

    executions: int
    seconds: float
    cpu_seconds: float
    daemon_mib: float
    peak_mib: float
    policy_mib: float
    store_mib: float
    threads: int
    files: int
    sockets: int
    tables: int


def read(site: Site, executions: int, seconds: float) -> Row:
    """What daemon, policy workers and data directory take now."""
    assert site.process is not None
    pid = site.process.pid
    looks = [_look(pid) for _ in range(LOOKS)]
    peak = processes.memory_mib(pid, "VmHWM")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts anew (proc(5))
    return Row(
        executions,
        seconds,
        processes.cpu(pid).total,
        processes.memory_mib(pid),
        peak,
        sum(processes.memory_mib(child) for child in processes.children(pid)),
        sum(file.stat().st_size for file in site.data.rglob("*") if file.is_file()) / (1 << 20),
        *(min(numbers) for numbers in zip(*looks, strict=True)),
    )


def _look(pid: int) -> tuple[int, int, int, int]:
    """Threads, files, sockets and tables. The least of some looks counts: a poll may just have a file open."""
    time.sleep(0.02)
    kinds = Counter(_kind(name) for name in _open(pid))
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return threads, kinds["file"], kinds["socket"], kinds["table"]


def _open(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(link)


def _kind(name: str) -> str:
    if name.startswith("socket:"):
        return "socket"
    return "table" if name.endswith(".sst") else "file"


def peaks(rows: Sequence[Row], settled: int) -> tuple[float, float]:
    """MiB at most until ``settled`` executions, and after them."""
    before = max(row.peak_mib for row in rows if row.executions <= settled)
    return before, max((row.peak_mib for row in rows if row.executions > settled), default=before)


def unsteady(rows: Sequence[Row], settled: int) -> list[str]:
    """What is not flat, in words; memory counts from ``settled`` executions on."""
    found = []
    before, after = peaks(rows, settled)
    if after > before * GROWTH:
        found.append(f"memory grew from {before:.0f} to {after:.0f} MiB after {settled} executions")
    for name in ("threads", "files"):
        known = max(getattr(row, name) for row in rows if row.executions <= settled)
        if (most := max(getattr(row, name) for row in rows)) > known:
            found.append(f"{name} grew from {known} to {most}")
    if rows[-1].sockets > rows[0].sockets + SOCKETS:
        found.append(f"sockets: from {rows[0].sockets} to {rows[-1].sockets}")
    return found


class Load:
    """Callers who share one row of executions; every end that is no success is counted."""

    def __init__(self, target: str, callers: int) -> None:
        self._target = target
        self._callers = callers
        self.ends: Counter[str] = Counter()

    async def run(self, executions: int, rows: int, see: Callable[[int], None]) -> None:
        """Calls ``see`` after each of so many equal parts, when nobody calls."""
        ends = [executions * number // rows for number in range(rows + 1)]
        async with AsyncClient(self._target) as client:
            for done, last in itertools.pairwise(ends):
                waiting = iter(range(done, last))
                await asyncio.gather(*(self._one(client, waiting) for _ in range(self._callers)))
                see(last)

    async def _one(self, client: AsyncClient, waiting: Iterator[int]) -> None:
        for number in waiting:
            try:
                answer = await client.execute(call(f"item-{number}"))
            except CallError as error:
                self.ends[error.reason] += 1
            else:
                self.ends["" if isinstance(answer, Completed) else f"{answer.state} {answer.code}"] += 1


HEADS: Final = (
    "executions",
    "per s",
    "CPU ms each",
    "daemon MiB",
    "peak MiB",
    "policy MiB",
    "store MiB",
    "KB each",
    "threads",
    "files",
    "sockets",
    "tables",
)


def line(before: Row, row: Row, first: Row) -> str:
    """One line of the table: rate and CPU time since the row before, KB each since the first row."""
    number = row.executions - before.executions
    rate = number / (row.seconds - before.seconds)
    spent = 1000 * (row.cpu_seconds - before.cpu_seconds) / number
    sizes = [f"{size:.0f}" for size in (row.daemon_mib, row.peak_mib, row.policy_mib, row.store_mib)]
    numbers = (row.threads, row.files, row.sockets, row.tables)
    return _columns((row.executions, f"{rate:.0f}", f"{spent:.2f}", *sizes, f"{each(row, first):.1f}", *numbers))


def each(row: Row, first: Row) -> float:
    """KB of the store an execution since the first row."""
    return 1024 * (row.store_mib - first.store_mib) / (row.executions - first.executions)


def summary(rows: Sequence[Row], settled: int) -> str:
    """What the run was made for, in a line."""
    before, after = peaks(rows, settled)
    return (
        f"{rows[-1].executions} executions: memory {before:.0f} MiB at most until {settled}, {after:.0f} MiB after "
        f"them; store {each(rows[-1], rows[0]):.1f} KB an execution"
    )


def _columns(values: Sequence[object]) -> str:
    return "  ".join(f"{value!s:>{len(head)}}" for head, value in zip(HEADS, values, strict=True))


def soak(executions: int, callers: int, settled: int, say: Callable[[str], None] = print) -> list[str]:
    """Prints the table as it grows; what is not as it should be, in words."""
    with servers.running("upstream") as counterpart, Site.make() as site:
        contracts = {"bench": contract("http", verified=True)}
        site.configure(counterpart.url, contracts=contracts, upstream=UPSTREAM, daemon=DAEMON)
        site.pin()
        site.start()
        began = time.monotonic()
        rows = [read(site, 0, 0.0)]
        say(_columns(HEADS))

        def see(done: int) -> None:
            rows.append(read(site, done, time.monotonic() - began))
            say(line(rows[-2], rows[-1], rows[0]))

        load = Load(f"unix:{site.socket('agent')}", callers)
        uvloop.run(load.run(executions, ROWS, see))
        say(summary(rows, settled))
        found = unsteady(rows, settled)
        if set(load.ends) - {""}:
            found.append(f"not all succeeded: {dict(load.ends)}")
        with urllib.request.urlopen(f"{counterpart.url}/count", timeout=10) as answer:
            effects = json.load(answer)
        if (effects["count"], effects["most"]) != (executions, 1):
            found.append(f"effects: {effects}")
        if (code := site.stop()) != 0:
            found.append(f"the daemon stopped with {code}")
        return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Whether memory, threads and files stay flat.")
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--settled", type=int, default=10_000, help="executions from which memory counts")
    parser.add_argument("--callers", type=int, default=64)
    asked = parser.parse_args()
    found = soak(asked.executions, asked.callers, asked.settled)
    print("\n".join(found) or "flat")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
