"""Queries queue for children that hold one revision; a spare child stands by, so that a kill costs no start-up.

A question's deadline counts from its arrival, queue included. A child gets the same time from the moment it comes to a
question and is killed when that has passed, so that a crowded queue cannot get a healthy child killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.embedded.child import Child, ChildFailed
from kblockd.policy.embedded.lane import Lane, Query

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CLOSED: Final = "the policy engine is closed"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddedLimits:
    """``policy:`` of the configuration. ``load_seconds`` bounds one load and one check of a bundle, tests included."""

    evaluate_seconds: float = 0.25
    load_seconds: float = 10.0
    workers: int = 1
    memory_mib: int = 512


class Pool:
    """The children of one revision."""

    def __init__(self, bundle: Bundle, limits: EmbeddedLimits) -> None:
        self.bundle = bundle
        self._limits = limits
        self._body = bundle.to_json()
        self._open: set[Query] = set()
        self._queue: deque[Query] = deque()
        self._lanes: list[Lane] = []
        self._spare: asyncio.Task[Child] | None = None
        self._replacing: set[asyncio.Task[None]] = set()
        self._children: set[Child] = set()
        self._closed = False

    async def start(self) -> None:
        """All children loaded and the spare on its way; raises ``ChildFailed``."""
        try:
            children = [await self._load() for _ in range(self._limits.workers)]
        except BaseException:
            await self._end()
            raise
        self._lanes = [Lane(child, self._limits.evaluate_seconds, self._feed, self._lost) for child in children]
        self._spare = asyncio.create_task(self._load())

    async def ask(self, entrypoint: str, document: bytes) -> dict[str, Any]:
        """The child's reply; raises ``PolicyFailure`` (POLICY_TIMEOUT or POLICY_DOWN) within the deadline."""
        loop = asyncio.get_running_loop()
        question = Query("data." + entrypoint.replace("/", "."), document, loop.create_future())
        if self._closed:
            raise PolicyFailure(Reason.POLICY_DOWN, _CLOSED)
        timer = loop.call_later(self._limits.evaluate_seconds, self._expire, question)
        self._open.add(question)
        try:
            self._queue.append(question)
            self._feed()
            return await question.answer
        finally:
            timer.cancel()
            self._open.discard(question)

    async def drain(self) -> None:
        """``close`` once the questions that were asked are answered or have timed out; for a revision that is left."""
        try:
            if self._open:
                await asyncio.wait([question.answer for question in self._open])
        finally:
            await self.close()

    async def close(self) -> None:
        """At once: open questions get POLICY_DOWN, no child is left. Idempotent."""
        self._closed = True
        for question in tuple(self._open):
            question.fail(Reason.POLICY_DOWN, _CLOSED)
        for lane in self._lanes:
            lane.close()
        tasks: list[asyncio.Task[Any]] = [*self._replacing, *([self._spare] if self._spare else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end()

    def _feed(self) -> None:
        """Questions to children that have room, each to the one that has most.

        Those for which nobody waits any more leave the queue first, so that it does not grow while no child can start.
        """
        while self._queue:
            if self._queue[0].answer.done():
                self._queue.popleft()
                continue
            lane = max(self._lanes, key=lambda lane: lane.room, default=None)
            if lane is None or not lane.room:
                return
            lane.give(self._queue.popleft())

    def _expire(self, question: Query) -> None:
        """Fails the query unless its reply has arrived: replies written in time are read first."""
        for lane in self._lanes:
            if lane.child is not None:
                lane.child.catch_up()
        if all(lane.child is None for lane in self._lanes):
            question.fail(Reason.POLICY_DOWN, "the policy process is being started again")
        else:
            seconds = self._limits.evaluate_seconds
            question.fail(Reason.POLICY_TIMEOUT, f"no answer within {seconds:g} s, queue included")

    def _lost(self, lane: Lane, child: Child, left: Iterable[Query]) -> None:
        """What the child had not come to goes to another one: a question changes nothing, so it can be asked again."""
        self._queue.extendleft(reversed(list(left)))
        if not self._closed:
            task = asyncio.create_task(self._replace(lane, child))
            self._replacing.add(task)
            task.add_done_callback(self._replacing.discard)
            self._feed()

    async def _replace(self, lane: Lane, old: Child) -> None:
        """Tries until a child loads, with growing pauses: whatever stands in the way, a lane is not given up."""
        pause = _FIRST_PAUSE_SECONDS
        while lane.child is None:
            try:
                if old in self._children:
                    await self._kill(old)
                lane.child = await self._fresh()
            except Exception as error:
                _log.warning("no policy process could be started: %s: %s", type(error).__name__, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._feed()

    async def _fresh(self) -> Child:
        """The spare, with another one on its way; raises ``ChildFailed`` and what starting a process raises."""
        spare, self._spare = self._spare or asyncio.create_task(self._load()), None
        child = await spare
        self._spare = asyncio.create_task(self._load())
        if child.gone:
            await self._kill(child)
            raise ChildFailed("the spare process ended while it stood by")
        return child

    async def _end(self) -> None:
        """By list, because a task that is cancelled before its first step never reaches its own clean-up."""
        await asyncio.gather(*(self._kill(child) for child in tuple(self._children)), return_exceptions=True)

    async def _kill(self, child: Child) -> None:
        await child.kill()
        self._children.discard(child)

    async def _load(self) -> Child:
        child = await loaded(self._body, self._limits)
        self._children.add(child)
        return child


async def loaded(body: bytes, limits: EmbeddedLimits) -> Child:
    """A child that holds the bundle; raises ``ChildFailed`` or ``OSError``."""
    child = await Child.spawn(limits.memory_mib)
    try:
        async with asyncio.timeout(limits.load_seconds):
            reply = await child.request({"op": "load"}, body)
        if reply.get("ok") is not True:
            raise ChildFailed(f"the policy did not load: {reply.get('error', 'no reason given')}")
    except TimeoutError:
        await child.kill()
        raise ChildFailed(f"the policy did not load within {limits.load_seconds:g} s") from None
    except BaseException:
        await child.kill()
        raise
    return child
