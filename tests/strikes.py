"""Cancels a coroutine at its n-th suspension: while it waits, or in the very turn in which what it waits for comes.

The second is where results are lost: the future is done, and the task gets the cancellation in place of its result.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, Final, Literal

Moment = Literal["waiting", "coming"]
MOMENTS: Final[tuple[Moment, ...]] = ("waiting", "coming")


@dataclass
class Strike:
    """One cancellation to be: of the ``nth`` coroutine that is made as ``victim``, at its suspension ``at``.

    Afterwards ``hit`` says whether it came so far.
    """

    victim: str
    at: int
    moment: Moment
    nth: int = 1
    hit: bool = False
    _made: int = 0
    _suspensions: int = 0

    def meets(self, victim: str) -> bool:
        """Whether this coroutine is the one; counts it."""
        self._made += victim == self.victim
        return victim == self.victim and self._made == self.nth

    def suspended(self, waited: Any) -> None:
        """From the running task, with what it is about to wait for (None: the next turn)."""
        self._suspensions += 1
        if self._suspensions != self.at:
            return
        task = asyncio.current_task()
        assert task is not None

        def cancel(_: object = None) -> None:
            self.hit = True
            task.cancel()

        if waited is None or self.moment == "waiting":
            asyncio.get_running_loop().call_soon(cancel)
        else:
            waited.add_done_callback(cancel)  # before the task's own: the result is there, and is not fetched


class Strikes:
    """``due`` is the next one; functions are wrapped once, before anything runs."""

    def __init__(self) -> None:
        self.due: Strike | None = None

    def on(self, victim: str, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """The function, whose coroutines can be met as ``victim``."""

        @functools.wraps(function)
        async def exposed(*arguments: Any, **named: Any) -> Any:
            work, strike = function(*arguments, **named), self.due
            return await (_driven(work, strike) if strike is not None and strike.meets(victim) else work)

        return exposed


@coroutine
def _driven(work: Coroutine[Any, Any, Any], strike: Strike) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = functools.partial(work.send, None)
    while True:
        try:
            waited = step()
        except StopIteration as done:
            return done.value
        strike.suspended(waited)
        try:
            yield waited
            step = functools.partial(work.send, None)
        except BaseException as error:
            step = functools.partial(work.throw, error)
