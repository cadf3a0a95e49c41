"""Bytecodes and Python calls of one execution on the loop's thread: exact, whatever else the machine does.

``python -m tests.bench.steps [--executions 60] [--functions 40]``: executions one after the other through a real
daemon over its real store, with a real upstream over HTTP, everything on; what beats in the background meanwhile is
among them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import servers, variants
from tests.bench.action import call
from tests.bench.profile import package
from tests.bench.servers import Counterparts

EXECUTIONS: Final = 60
_WARMING: Final = 20
_BEGINS_SECONDS: Final = 0.5
"""A signal is noticed when the loop wakes next."""

Table = list[tuple[str, float, float]]
"""Name, bytecodes and calls of one execution; the most bytecodes first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One function, over all executions."""

    file: str
    line: int
    name: str
    bytecodes: int
    calls: int


@dataclass(frozen=True, slots=True)
class Steps:
    """What ``tests.bench.counted`` wrote, over so many executions."""

    rows: list[Row]
    executions: int

    @property
    def bytecodes(self) -> float:
        """Of one execution."""
        return sum(row.bytecodes for row in self.rows) / self.executions

    @property
    def calls(self) -> float:
        """Of one execution; a coroutine that goes on counts as one."""
        return sum(row.calls for row in self.rows) / self.executions

    def by(self, name: Callable[[Row], str]) -> Table:
        """Summed up under these names."""
        bytecodes: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for row in self.rows:
            bytecodes[name(row)] += row.bytecodes
            calls[name(row)] += row.calls
        return [
            (name, steps / self.executions, calls[name] / self.executions) for name, steps in bytecodes.most_common()
        ]


def count(executions: int = EXECUTIONS) -> Steps:
    """Of executions that all succeed; raises RuntimeError for one that does not."""
    with servers.running("upstream") as upstream, servers.running("rpc") as rpc:
        with_ = Counterparts(upstream, rpc, (1,), 0.0)
        with tempfile.TemporaryDirectory(prefix="kb-") as folder:
            target = Path(folder) / "steps"
            with variants.serving(variants.PLAIN, with_, profile=target, profiler="tests.bench.counted") as subject:
                site = subject.site
                with site.client() as client:
                    _execute(client.execute, "warm", _WARMING)
                    with site.profiling():
                        time.sleep(_BEGINS_SECONDS)
                        _execute(client.execute, "counted", executions)
                return Steps([Row(*row) for row in json.loads(target.read_text())], executions)


def _execute(execute: Callable[..., object], name: str, number: int) -> None:
    for item in range(number):
        state = getattr(execute(call(f"{name}-{item}")), "state", "")
        if state != "succeeded":
            raise RuntimeError(f"{name}-{item} is {state}")


def module(row: Row) -> str:
    """``kblockd.execution seal.py``; an installed package as a whole."""
    found = package(row.file)
    return f"{found} {Path(row.file).name}" if found.startswith("kblockd") else found


def printed(steps: Steps, functions: int = 0) -> str:
    """One table by module and, when asked for, one by function."""
    lines = [f"an execution: {steps.bytecodes:.0f} bytecodes, {steps.calls:.0f} calls (of {steps.executions})"]
    found = steps.by(module)
    if functions:
        found += [("", 0.0, 0.0), *steps.by(lambda row: f"{module(row)}:{row.line} {row.name}")[:functions]]
    lines += [f"  {bytecodes:8.0f} {calls:7.1f}  {name}" for name, bytecodes, calls in found if bytecodes >= 1]
    return "\n".join(lines)


def main() -> None:
    """Prints."""
    parser = argparse.ArgumentParser(prog="tests.bench.steps", description="Counts the steps of an execution.")
    parser.add_argument("--executions", type=int, default=EXECUTIONS, help=f"to count (default {EXECUTIONS})")
    parser.add_argument("--functions", type=int, default=0, help="so many, too, the most expensive first")
    chosen = parser.parse_args()
    print(printed(count(chosen.executions), chosen.functions))


if __name__ == "__main__":
    main()
