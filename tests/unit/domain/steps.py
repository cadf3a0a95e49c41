"""What a piece of work costs, counted: bytecode instructions and bytes allocated, never seconds."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(slots=True)
class Cost:
    """``allocated`` is the sum of all allocations, not the peak: a place that is written for each member and thrown
    away at once shows here and nowhere else."""

    instructions: int = 0
    allocated: int = 0


def cost(work: Callable[[], object]) -> Cost:
    """Of one call; an exception is an answer, too. The second run counts: what is remembered is remembered."""
    _quietly(work)
    found = Cost()
    current = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal current
        now, peak = tracemalloc.get_traced_memory()
        found.allocated += max(0, peak - current)
        found.instructions += 1
        current = now
        tracemalloc.reset_peak()
        frame.f_trace_opcodes = True
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        _quietly(work)
    finally:
        sys.settrace(before)
        tracemalloc.stop()
        gc.enable()
    return found


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        return
