"""What stands around each stage: a span and a pair of failpoints, both called by its name."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kblockd.domain.failpoints import NoFailpoints
from kblockd.domain.stages import Stage
from kblockd.execution.parts import Parts
from kblockd.telemetry.recorder import Trace


class Traced(Protocol):
    """What a stage takes: anything that knows its trace."""

    @property
    def trace(self) -> Trace: ...


Taken = TypeVar("Taken", bound=Traced)
Given = TypeVar("Given")


def stage(
    of: Stage,
) -> Callable[[Callable[[Parts, Taken], Awaitable[Given]]], Callable[[Parts, Taken], Awaitable[Given]]]:
    """Wraps a stage in its span and its failpoints ``before`` and ``after``."""

    def wrap(function: Callable[[Parts, Taken], Awaitable[Given]]) -> Callable[[Parts, Taken], Awaitable[Given]]:
        before, after, order, label = f"{of.label}:before", f"{of.label}:after", of.order, of.label

        @functools.wraps(function)
        async def staged(parts: Parts, taken: Taken) -> Given:
            points = None if type(parts.failpoints) is NoFailpoints else parts.failpoints
            if points is not None:
                await points.reach(before)
            with taken.trace.stage(order, label):
                given = await function(parts, taken)
            if points is not None:
                await points.reach(after)
            return given

        return staged

    return wrap
