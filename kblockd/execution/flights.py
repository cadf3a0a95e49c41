"""One question at a time for all who want to know the same: definitions are asked once, however many calls wait.

Nobody is given an answer to a question that was sent before he came, or a call could be decided by a definition that
was changed before it was made (kblockd/execution/README.md#stages: a *fresh* describe). So those who come while a
question is under way wait for the next one, which all of them share; and there is a next one only if somebody waits. A
caller waits for at most two questions, and an upstream sees one at a time, whatever the number of calls (AGT-04).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kblockd.admission import on_behalf_of

Answer = TypeVar("Answer")
Ask = Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class _Flight:
    """A question that is not sent yet; ``ask`` is that of whoever came first."""

    ask: Ask
    answer: asyncio.Future[Any]


@dataclass(slots=True)
class Flights:
    """By what is asked. A question belongs to nobody: it goes on when all who wait for it have gone."""

    _next: dict[Hashable, _Flight] = field(default_factory=dict)
    _asking: dict[Hashable, asyncio.Task[None]] = field(default_factory=dict)

    async def join(self, about: Hashable, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of a question that is sent after this call; raises what ``ask`` raises."""
        flight = self._next.get(about)
        if flight is None:
            flight = self._next[about] = _Flight(ask, asyncio.get_running_loop().create_future())
        if about not in self._asking:
            with on_behalf_of(""):  # a share of the daemon's own: it is nobody's call
                self._asking[about] = asyncio.create_task(self._run(about))
        answer: Answer = await asyncio.shield(flight.answer)
        return answer

    async def _run(self, about: Hashable) -> None:
        """Questions about one thing, one after another, while somebody waits."""
        try:
            while (flight := self._next.pop(about, None)) is not None:
                await _settle(flight)
        finally:
            del self._asking[about]
            if (left := self._next.pop(about, None)) is not None:
                left.answer.cancel()


async def _settle(flight: _Flight) -> None:
    try:
        found = await flight.ask()
    except asyncio.CancelledError:
        flight.answer.cancel()
        raise
    except BaseException as error:
        flight.answer.set_exception(error)
        flight.answer.exception()  # looked at, also when nobody waits any more
    else:
        flight.answer.set_result(found)
