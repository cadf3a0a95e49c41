"""The load: callers that each make one call after the other for some seconds, and what they saw."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kblockd.client import AsyncClient, CallError
from tests.bench.action import call

KEPT_EXECUTIONS: Final = 200
Once = Callable[[str], Awaitable[str]]
"""Makes the call of that name; answers "" or why it is no success."""


@dataclass(slots=True)
class Seen:
    """What the callers saw; ``seconds`` is how long they took together."""

    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    executions: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Successes."""
        return len(self.milliseconds)

    @property
    def rate(self) -> float:
        """Successes per second."""
        return self.done / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds within which that share of the successes ended; 0 without any."""
        return percentile(self.milliseconds, share)


def percentile(values: list[float], share: float) -> float:
    """The nearest rank; 0 for no values."""
    if not values:
        return 0.0
    rank = min(len(values), max(1, -int(-len(values) * share // 1)))
    return sorted(values)[rank - 1]


async def callers(number: int, seconds: float, name: str, once: Once) -> Seen:
    """That many callers, each with names of its own."""
    seen = Seen()

    async def one(mine: str, end: float) -> None:
        count = 0
        while (started := time.perf_counter()) < end:
            count += 1
            fault = await once(f"{mine}-{count}")
            if fault:
                seen.faults[fault] += 1
            else:
                seen.started.append(started)
                seen.milliseconds.append((time.perf_counter() - started) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(one(f"{name}-{n}", began + seconds) for n in range(number)))
    seen.seconds = time.perf_counter() - began
    return seen


async def executing(client: AsyncClient, number: int, seconds: float, name: str) -> Seen:
    """Executions through the daemon."""
    executions: list[str] = []

    async def once(item: str) -> str:
        try:
            answer = await client.execute(call(item))
        except CallError as error:
            return str(error.reason)
        if answer.state != "succeeded":
            return f"{answer.state}: {answer.detail}"
        if len(executions) < KEPT_EXECUTIONS:
            executions.append(answer.execution_id)
        return ""

    seen = await callers(number, seconds, name, once)
    seen.executions = executions
    return seen
