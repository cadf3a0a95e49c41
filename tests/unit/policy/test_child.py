"""A child that does not keep to the protocol is a failed child, never a decision."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from kblockd.policy.embedded import frames
from kblockd.policy.embedded.child import Child, ChildFailed, Reply

HANG_SECONDS = 60.0


async def saying(code: str) -> Child:
    """A process that has read one request on descriptor 0 and then runs ``code``, where ``say`` writes bytes."""
    ours, theirs = socket.socketpair()
    with theirs:
        program = f"import os\nos.read(0, 65536)\nsay = lambda data: os.write(0, data)\n{code}\n"
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", program], stdin=theirs.fileno(), stderr=subprocess.DEVNULL
        )
    return await Child.over(process, ours)


def caught_up(child: Child, done: Callable[[], bool]) -> None:
    """Until then, and the loop never has its turn."""
    limit = time.monotonic() + HANG_SECONDS
    while not done():
        child.catch_up()
        assert time.monotonic() < limit


GARBAGE = {
    "nothing": "pass",
    "half a length": "say(b'\\0\\0')",
    "half a frame": "say(b'\\0\\0\\0\\x10{}')",
    "not JSON": "say(b'\\0\\0\\0\\x04allo')",
    "not an object": "say(b'\\0\\0\\0\\x04true')",
    "not UTF-8": "say(b'\\0\\0\\0\\x02\\xff\\xfe')",
    "too long": "say(b'\\x7f\\0\\0\\0')",
    "too deep": "say((200000).to_bytes(4, 'big') + b'[' * 200000)",
}


@pytest.mark.parametrize("code", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_a_failure(code: str) -> None:
    child = await saying(code)
    with pytest.raises(ChildFailed):
        await child.request({"op": "evaluate"})
    await child.kill()
    assert child.gone


async def test_frame_is_an_answer() -> None:
    child = await saying("say(b'\\0\\0\\0\\x0b{\"value\":1}')")
    assert await child.request({"op": "evaluate"}) == {"value": 1}
    await child.kill()


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["small", "more than a socket holds"])
async def test_what_has_arrived_is_taken_without_the_loop(size: int) -> None:
    """Whole, also when it comes in pieces; and the loop reads on afterwards as if nothing had been."""
    text = f"reply = b'{{\"value\":\"' + b'x' * {size} + b'\"}}'\nframe = len(reply).to_bytes(4, 'big') + reply"
    child = await saying(f"{text}\nsay(frame)\nos.read(0, 65536)\nsay(frame)")
    replies: list[Reply | ChildFailed] = []
    child.ask({"op": "evaluate"}, b"", replies.append)
    caught_up(child, lambda: bool(replies))
    assert replies == [{"value": "x" * size}]
    assert await child.request({"op": "evaluate"}) == {"value": "x" * size}
    await child.kill()


async def test_an_end_without_an_answer_is_told_by_the_loop() -> None:
    child = await saying("pass")
    failed = asyncio.ensure_future(child.request({"op": "evaluate"}))
    await asyncio.sleep(0)
    caught_up(child, lambda: child.gone)
    child.catch_up()
    assert not failed.done()
    with pytest.raises(ChildFailed, match="ended"):
        await failed
    await child.kill()


async def test_kill_twice() -> None:
    child = await saying("import time; time.sleep(600)")
    await child.kill()
    await child.kill()
    with pytest.raises(ChildFailed):
        await child.request({"op": "evaluate"})


def test_frames_round_trip() -> None:
    frame = frames.pack({"op": "load"}, b"body\nwith lines\n")
    (length,) = frames.LENGTH.unpack(frame[:4])
    assert length == len(frame) - 4
    assert frames.unpack(frame[4:]) == ({"op": "load"}, b"body\nwith lines\n")


async def test_a_kill_that_is_cancelled_leaves_no_zombie() -> None:
    """As when whoever asked for an explanation has gone: nobody else waits for the process."""
    child = await saying("import time; time.sleep(600)")
    killing = asyncio.create_task(child.kill())
    await asyncio.sleep(0)
    killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    assert child._process.returncode is not None
