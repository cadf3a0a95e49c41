"""A child that does not keep to the protocol is a failed child, never a decision."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from kblockd.policy import frames
from kblockd.policy.child import Child, ChildFailed


async def saying(code: str) -> Child:
    """A process that has read one request on descriptor 0 and then runs ``code``, where ``say`` writes bytes."""
    ours, theirs = socket.socketpair()
    with theirs:
        program = f"import os\nos.read(0, 65536)\nsay = lambda data: os.write(0, data)\n{code}\n"
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", program], stdin=theirs.fileno(), stderr=subprocess.DEVNULL
        )
    return await Child.over(process, ours)


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
