"""Questions that wait in a child's socket: whose reply is whose, and what becomes of them when a child ends.

The children are scripted, so that they end where the test wants it; they answer each question with its own document.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.embedded import pool as pools
from kblockd.policy.embedded.child import Child
from kblockd.policy.embedded.lane import Query
from kblockd.policy.embedded.pool import EmbeddedLimits, Pool

HANG_SECONDS = 60.0
PROGRAM = """
import itertools, os, time
def exactly(length):
    found = b""
    while len(found) < length:
        found += os.read(0, length - len(found)) or os._exit(0)
    return found
for number in itertools.count():
    body = exactly(int.from_bytes(exactly(4), "big")).partition(b"\\n")[2]
    {step}
    reply = b'{{"value":' + body + b"}}"
    os.write(0, len(reply).to_bytes(4, "big") + reply)
"""


async def scripted(step: str) -> Child:
    """``step`` runs between question and reply; it sees ``body`` and ``number``, which is 1 for the first question."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM.format(step=step)], stdin=theirs.fileno(), stderr=subprocess.DEVNULL
        )
    child = await Child.over(process, ours)
    await child.request({"op": "load"}, b"0")  # the start of an interpreter takes nothing of a question's time
    return child


class Bodies:
    """In the place of a bundle."""

    def to_json(self) -> bytes:
        """Nothing is loaded."""
        return b""


Script = Callable[[int], str | BaseException | None]


@contextlib.asynccontextmanager
async def started(patch: pytest.MonkeyPatch, script: Script, limits: EmbeddedLimits) -> AsyncIterator[Pool]:
    """``script`` gives the step of the child that is started as the nth, what starting it raises, or None: never."""
    numbers = itertools.count()

    async def load(body: bytes, limits: EmbeddedLimits) -> Child:
        step = script(next(numbers))
        if isinstance(step, BaseException):
            raise step
        if step is None:
            await asyncio.Event().wait()
        return await scripted(step or "")

    patch.setattr(pools, "loaded", load)
    bundle: Any = Bodies()
    pool = Pool(bundle, limits)
    async with asyncio.timeout(HANG_SECONDS):
        await pool.start()
        try:
            yield pool
        finally:
            await pool.close()


async def value(pool: Pool, number: int) -> Any:
    """Of the reply to one question."""
    return (await pool.ask("kblock/decision/result", str(number).encode()))["value"]


async def test_a_reply_belongs_to_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over cancelled askers, questions that end their child and questions that nobody waits for any more."""
    limits = EmbeddedLimits(evaluate_seconds=2.0)
    step = 'time.sleep(3 if body.endswith(b"9") else 0.001); body.endswith(b"7") and os._exit(1)'
    async with started(monkeypatch, lambda _: step, limits) as pool:
        assert await value(pool, 1) == 1  # quick, so more than one at a time from here
        asked = {number: asyncio.create_task(value(pool, number)) for number in range(100, 160)}
        await asyncio.sleep(0)
        for number in range(100, 160, 3):
            asked[number].cancel()
        answers = dict(zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True))
        answered = {number for number, answer in answers.items() if not isinstance(answer, BaseException)}
        assert {number: answers[number] for number in answered} == {number: number for number in answered}
        assert len(answered) >= 4
        assert await value(pool, 2) == 2


async def test_what_a_lost_child_had_not_come_to_goes_to_another_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two children, one ends, and no third one ever comes: the other one has room."""
    scripts = ["number == 2 and os._exit(1)", ""]
    limits = EmbeddedLimits(evaluate_seconds=10.0, workers=2)
    async with started(monkeypatch, lambda number: dict(enumerate(scripts)).get(number), limits) as pool:
        assert await asyncio.gather(value(pool, 1), value(pool, 2)) == [1, 2]
        answers = await asyncio.gather(*(value(pool, number) for number in (3, 4, 5)), return_exceptions=True)
        assert isinstance(answers[0], PolicyFailure)
        assert answers[1:] == [4, 5]


async def test_the_queue_does_not_grow_while_no_child_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what has had its answer, and its document is large."""
    limits = EmbeddedLimits(evaluate_seconds=0.05)
    async with started(
        monkeypatch, lambda n: "number and os._exit(1)" if n == 0 else OSError(24, "files"), limits
    ) as pool:
        for number in range(20):
            with pytest.raises(PolicyFailure):
                await value(pool, number)
        gc.collect()
        assert sum(type(found) is Query for found in gc.get_objects()) <= 1


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "not reaped"])
async def test_a_lane_gets_a_child_whatever_was_in_the_way(monkeypatch: pytest.MonkeyPatch, reaped: bool) -> None:
    """A machine that is short of memory or of threads for a moment does not end the policy engine for good."""

    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    limits = EmbeddedLimits(evaluate_seconds=0.5)
    script = {0: "number == 2 and os._exit(1)", 1: MemoryError()}
    async with started(monkeypatch, lambda number: script.get(number, ""), limits) as pool:
        assert await value(pool, 1) == 1
        with monkeypatch.context() as patch:
            if not reaped:
                patch.setattr(asyncio, "to_thread", no_thread)
            with pytest.raises(PolicyFailure):
                await value(pool, 2)
            await asyncio.sleep(0)
        while True:
            with contextlib.suppress(PolicyFailure):
                assert await value(pool, 3) == 3
                return


async def test_a_child_that_cannot_be_killed_leaves_no_other_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is killed, whatever becomes of the first one."""
    limits = EmbeddedLimits(evaluate_seconds=10.0, workers=3)
    kill, asked = Child.kill, list[Child]()

    async def stubborn(child: Child) -> None:
        asked.append(child)
        if child is asked[0]:
            raise OSError(1, "not permitted")
        await kill(child)

    async with started(monkeypatch, lambda number: "" if number < limits.workers else None, limits) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(Child, "kill", stubborn)
            await pool.close()
        assert [child.gone for child in asked] == [False, True, True]
    assert asked[0].gone
