"""One worker and its queries in flight: one executing, up to three pipelined in its socket.

Pipelining spares a fast worker the wait for the event loop between two answers. A slow one gets one query at a time,
because a query in the socket cannot be withdrawn when its caller gives up. A query's time starts when the worker gets
to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kblockd.domain.errors import Reason
from kblockd.domain.values import value_type
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.embedded.child import Child, ChildFailed, Reply

DEPTH: Final = 4
_QUICK: Final = 1 / (4 * DEPTH)  # of the time for one question: as many of them together take a quarter of it


@value_type(frozen=True, slots=True, eq=False)
class Query:
    """A query and the future of its reply."""

    query: str
    document: bytes
    answer: asyncio.Future[Reply]

    def reply(self, reply: Reply) -> None:
        """Ignored if the caller has given up."""
        if not self.answer.done():
            self.answer.set_result(reply)

    def fail(self, reason: Reason, message: str) -> None:
        """With a ``PolicyFailure``; ignored if the caller has given up."""
        if not self.answer.done():
            self.answer.set_exception(PolicyFailure(reason, message))


Lost = Callable[["Lane", Child, Iterable[Query]], None]


class Lane:
    """``on_free`` is called when there is room again; ``on_lost`` with a child that failed or timed out and the queries
    that it had not started: the one in progress fails."""

    def __init__(self, child: Child, seconds: float, on_free: Callable[[], None], on_lost: Lost) -> None:
        self.child: Child | None = child
        self._seconds = seconds
        self._on_free = on_free
        self._on_lost = on_lost
        self._given: deque[Query] = deque()
        self._loop = asyncio.get_running_loop()
        self._depth = 1
        self._since = 0.0  # when the child came to the first of them, in the loop's time
        self._overdue = False  # as an earlier look has seen
        self._watch: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """How many more queries it accepts now."""
        return max(0, self._depth - len(self._given)) if self.child is not None else 0

    def give(self, question: Query) -> None:
        """Only while there is room."""
        child = self.child
        if child is None:
            raise AssertionError("a lane without a child has no room")
        self._given.append(question)
        if len(self._given) == 1:
            self._begin()
            if child.gone:  # the loop may not have heard of it yet; the question has done nothing to it
                self._lose(child, None)
                return
        child.ask({"op": "evaluate", "query": question.query}, question.document, self._replied)

    def close(self) -> None:
        """Nothing is watched any more."""
        if self._watch is not None:
            self._watch.cancel()

    def _replied(self, reply: Reply | ChildFailed) -> None:
        child = self.child
        if child is None or not self._given:
            return  # a failed child fails all that it was asked; the first failure was told
        if isinstance(reply, ChildFailed):
            self._lose(child, (Reason.POLICY_DOWN, str(reply)))
            return
        self._given.popleft().reply(reply)
        self._depth = DEPTH if self._loop.time() - self._since <= self._seconds * _QUICK else 1
        if self._given:
            self._begin()
        self._on_free()

    def _begin(self) -> None:
        self._since, self._overdue = self._loop.time(), False
        if self._watch is None:
            self._watch = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        """One timer for all questions: it looks when the first could be overdue, and again when another could be.

        And again before it kills: when the loop stood still, it runs its timers before it reads what came meanwhile.
        """
        self._watch = None
        child = self.child
        if child is None or not self._given:
            return
        left = self._since + self._seconds - self._loop.time()
        if left <= 0 and not self._overdue:
            left, self._overdue = self._seconds * _QUICK, True
        if left > 0:
            self._watch = self._loop.call_later(left, self._look)
            return
        self._lose(child, (Reason.POLICY_TIMEOUT, f"no answer within {self._seconds:g} s"))

    def _lose(self, child: Child, failure: tuple[Reason, str] | None) -> None:
        given, self._given, self.child, self._depth = self._given, deque(), None, 1
        if failure is not None:
            given.popleft().fail(*failure)
        self._on_lost(self, child, given)
