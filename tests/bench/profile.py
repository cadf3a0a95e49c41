"""Where the CPU time of the loop's thread goes: by stage, by package, by function, from samples of one load."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from kblockd.domain.stages import Stage

Function = tuple[str, int, str]
"""File, first line, qualified name."""

Sample = tuple[float, Sequence[Function]]
"""Seconds, and the stack, innermost first."""

Shares = list[tuple[str, float]]
"""Name and seconds."""

_SITE: Final = "/site-packages/"
_STAGES: Final = {f"/kblockd/execution/{stage.label}.py": f"{stage.order:02} {stage.label}" for stage in Stage}


class Profile:
    """What ``tests.bench.profiled`` wrote."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)
        self.seconds: Final = sum(seconds for seconds, _ in self._samples)
        self.number: Final = len(self._samples)

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Raises OSError or ValueError for what is no profile."""
        return cls((seconds, [tuple(one) for one in stack]) for seconds, stack in json.loads(path.read_text()))

    def functions(self, number: int = 10) -> Shares:
        """The most expensive by own time, C code that they call included."""
        return self._by(lambda stack: _named(stack[0]) if stack else "no Python")[:number]

    def packages(self, number: int = 12) -> Shares:
        """Own time by package, kblockd's by subpackage."""
        return self._by(lambda stack: package(stack[0][0]) if stack else "no Python")[:number]

    def stages(self) -> Shares:
        """The module of each stage with everything below it, in their order; without what it leaves to tasks."""
        return sorted((name, seconds) for name, seconds in self._by(stage_of) if name)

    def elsewhere(self, number: int = 12) -> Shares:
        """What runs outside of the stages, by the outermost function of kblockd, else of a package."""
        return self._by(lambda stack: "" if stage_of(stack) else _root(stack))[:number]

    def _by(self, name: Callable[[Sequence[Function]], str]) -> Shares:
        seconds: defaultdict[str, float] = defaultdict(float)
        for spent, stack in self._samples:
            seconds[name(stack)] += spent
        return sorted(((found, spent) for found, spent in seconds.items() if found), key=lambda share: -share[1])


def stage_of(stack: Sequence[Function]) -> str:
    """The outermost stage of a stack; empty when there is none."""
    for file, _, _ in reversed(stack):
        for suffix, name in _STAGES.items():
            if file.endswith(suffix):
                return name
    return ""


def package(file: str) -> str:
    """``kblockd.store`` for one of its files, ``grpc`` for one of an installed package."""
    if _SITE in file:
        return file.partition(_SITE)[2].partition("/")[0].removesuffix(".py")
    for own in ("kblockd_mcp", "kblockd_http", "kblockd"):
        if f"/{own}/" in file:
            inner = file.rpartition(f"/{own}/")[2].partition("/")[0].removesuffix(".py")
            return f"{own}.{inner}" if own == "kblockd" else own
    return "asyncio" if "/asyncio/" in file else "other Python"


def _root(stack: Sequence[Function]) -> str:
    """Below the loop itself: who was called by it."""
    called = list(itertools.takewhile(lambda function: not function[0].endswith("/asyncio/runners.py"), stack))
    ours = (function for function in reversed(called) if package(function[0]).startswith("kblockd"))
    installed = (function for function in reversed(called) if _SITE in function[0])
    found = next(ours, None) or next(installed, None) or (called[-1] if called else None)
    return _named(found) if found else "the loop itself"


def _named(function: Function) -> str:
    file, line, name = function
    return f"{package(file)} {Path(file).name}:{line} {name}"
