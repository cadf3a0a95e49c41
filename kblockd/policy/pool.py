"""Questions queue for children that hold one revision; a spare child stands by, so that a kill costs no start.

A question's deadline counts from its arrival, queue included. A child gets the same time from the moment it is asked
and is killed when that has passed, so that a crowded queue cannot get a healthy child killed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Final

from kblockd.domain.errors import Reason
from kblockd.policy.bundle import Bundle
from kblockd.policy.child import Child, ChildFailed
from kblockd.policy.engine import PolicyFailure

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CLOSED: Final = "the policy engine is closed"


@dataclass(frozen=True, slots=True)
class EmbeddedLimits:
    """``policy:`` of the configuration. ``load_seconds`` bounds one load and one check of a bundle, tests included."""

    evaluate_seconds: float = 0.25
    load_seconds: float = 10.0
    workers: int = 1
    memory_mib: int = 512


@dataclass(frozen=True, slots=True)
class _Question:
    query: str
    document: bytes
    answer: asyncio.Future[dict[str, Any]]

    def fail(self, reason: Reason, message: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(PolicyFailure(reason, message))


class Pool:
    """The children of one revision."""

    def __init__(self, bundle: Bundle, limits: EmbeddedLimits) -> None:
        self.bundle = bundle
        self._limits = limits
        self._body = bundle.to_json()
        self._questions: asyncio.Queue[_Question] = asyncio.Queue()
        self._lanes: list[asyncio.Task[None]] = []
        self._spare: asyncio.Task[Child] | None = None
        self._children: set[Child] = set()
        self._waiting_for_child = 0

    async def start(self) -> None:
        """All children loaded and the spare on its way; raises ``ChildFailed``."""
        try:
            children = [await self._load() for _ in range(self._limits.workers)]
        except BaseException:
            await self._end()
            raise
        self._lanes = [asyncio.create_task(self._lane(child)) for child in children]
        self._spare = asyncio.create_task(self._load())

    async def ask(self, entrypoint: str, document: bytes) -> dict[str, Any]:
        """The child's reply; raises ``PolicyFailure`` (POLICY_TIMEOUT or POLICY_DOWN) within the deadline."""
        question = _Question(
            "data." + entrypoint.replace("/", "."), document, asyncio.get_running_loop().create_future()
        )
        self._questions.put_nowait(question)
        try:
            async with asyncio.timeout(self._limits.evaluate_seconds):
                return await question.answer
        except TimeoutError:
            if self._waiting_for_child:
                raise PolicyFailure(Reason.POLICY_DOWN, "the policy process is being started again") from None
            seconds = self._limits.evaluate_seconds
            raise PolicyFailure(Reason.POLICY_TIMEOUT, f"no answer within {seconds:g} s, queue included") from None

    async def drain(self) -> None:
        """``close`` once the questions that were asked are answered or have timed out; for a revision that is left."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * self._limits.evaluate_seconds):
                    await self._questions.join()
        finally:
            await self.close()

    async def close(self) -> None:
        """At once: open questions get POLICY_DOWN, no child is left. Idempotent."""
        tasks: list[asyncio.Task[Any]] = [*self._lanes, *([self._spare] if self._spare else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end()
        while not self._questions.empty():
            self._questions.get_nowait().fail(Reason.POLICY_DOWN, _CLOSED)

    async def _end(self) -> None:
        """By list, because a task that is cancelled before its first step never reaches its own clean-up."""
        for child in tuple(self._children):
            await self._kill(child)

    async def _kill(self, child: Child) -> None:
        await child.kill()
        self._children.discard(child)

    async def _lane(self, first: Child) -> None:
        child: Child | None = first
        while True:
            question = await self._questions.get()
            try:
                if question.answer.done():
                    continue
                if child is None or child.gone:
                    child = await self._replacement(child)
                child = await self._answer(child, question)
            finally:
                question.fail(Reason.POLICY_DOWN, _CLOSED)
                self._questions.task_done()

    async def _answer(self, child: Child, question: _Question) -> Child | None:
        """The child, or None when it had to be killed."""
        if question.answer.done():
            return child
        try:
            async with asyncio.timeout(self._limits.evaluate_seconds):
                reply = await child.request({"op": "evaluate", "query": question.query}, question.document)
        except TimeoutError:
            question.fail(Reason.POLICY_TIMEOUT, f"no answer within {self._limits.evaluate_seconds:g} s")
        except ChildFailed as failure:
            question.fail(Reason.POLICY_DOWN, str(failure))
        else:
            if not question.answer.done():
                question.answer.set_result(reply)
            return child
        await self._kill(child)
        return None

    async def _replacement(self, old: Child | None) -> Child:
        """The spare, and another one on its way; tries until a child loads, with growing pauses."""
        pause = _FIRST_PAUSE_SECONDS
        self._waiting_for_child += 1
        try:
            if old is not None:
                await self._kill(old)
            while True:
                spare, self._spare = self._spare or asyncio.create_task(self._load()), None
                try:
                    child = await spare
                except (ChildFailed, OSError):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                    continue
                self._spare = asyncio.create_task(self._load())
                if not child.gone:
                    return child
                await self._kill(child)
        finally:
            self._waiting_for_child -= 1

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
