"""The stages by number, and what stands around each of them: a span and a pair of failpoints.

The numbers are the same in code, span names, failpoints, records and tests (kblockd/execution/README.md#stages).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kblockd.domain.failpoints import NoFailpoints
from kblockd.execution.parts import Parts
from kblockd.telemetry.recorder import Trace


class Stage(enum.IntEnum):
    """Numbers and names of the stages."""

    AUTHENTICATE = 0
    ADMIT = 1
    REPLAY = 2
    DECIDE = 3
    AWAIT_APPROVAL = 4
    PREFLIGHT = 5
    LEASE = 6
    READ = 7
    PRECONDITIONS = 8
    CONSUME = 9
    MARK_SENT = 10
    DISPATCH = 11
    CLASSIFY = 12
    RECONCILE = 13
    VERIFY = 14
    RECOVER = 15
    SEAL = 16

    word: str  # ``consume`` for CONSUME
    label: str  # ``09.consume``: what failpoints and commits are called by

    def __init__(self, number: int) -> None:
        self.word = self.name.lower()
        self.label = f"{number:02}.{self.word}"


class Traced(Protocol):
    """What a stage takes: anything that knows its trace."""

    @property
    def trace(self) -> Trace: ...


Taken = TypeVar("Taken", bound=Traced)
Given = TypeVar("Given")


def stage(
    number: Stage,
) -> Callable[[Callable[[Parts, Taken], Awaitable[Given]]], Callable[[Parts, Taken], Awaitable[Given]]]:
    """Wraps a stage in its span and its failpoints ``before`` and ``after``."""

    def wrap(function: Callable[[Parts, Taken], Awaitable[Given]]) -> Callable[[Parts, Taken], Awaitable[Given]]:
        before, after, value, word = f"{number.label}:before", f"{number.label}:after", number.value, number.word

        @functools.wraps(function)
        async def staged(parts: Parts, taken: Taken) -> Given:
            points = None if type(parts.failpoints) is NoFailpoints else parts.failpoints
            if points is not None:
                await points.reach(before)
            with taken.trace.stage(value, word):
                given = await function(parts, taken)
            if points is not None:
                await points.reach(after)
            return given

        return staged

    return wrap
