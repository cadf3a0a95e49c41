"""Moves work on long foreign input off the event loop, so that one caller's megabyte does not delay everybody.

Even linear work takes tens of milliseconds per megabyte. A thread shares the interpreter with the loop, which still
runs every few milliseconds. Non-linear work belongs in a process that can be killed, never here. One principal uses one
thread at a time, so that its input queues behind its own and not ahead of others'.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import orjson

from kblockd.admission.slots import Slots

T = TypeVar("T")

INLINE_BYTES: Final = 16 << 10
"""Input up to this size is processed inline: a thread would cost more than it saves."""

THREADS: Final = 2
_THREADS: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="foreign-input")
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Slots]] = WeakKeyDictionary()
_VALUE_BYTES: Final = 8  # rough size of one JSON value


async def offload(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Returns or raises as ``work`` does, which runs in a thread if ``size`` exceeds ``INLINE_BYTES``.

    ``work`` must be a pure function: it is not stopped when its caller is cancelled, and the principal's next work
    still waits for it.
    """
    if size <= INLINE_BYTES:
        return work(*arguments)
    run = functools.partial(contextvars.copy_context().run, work, *arguments)
    loop = asyncio.get_running_loop()
    if (turns := _TURNS.get(loop)) is None:
        turns = _TURNS[loop] = Slots(THREADS, 1)
    await turns.acquire()
    try:
        waiting = loop.run_in_executor(_THREADS, run)
    except RuntimeError:  # no thread can be started; slow is better than failed
        turns.release()
        return work(*arguments)
    waiting.add_done_callback(lambda _: turns.release())
    try:
        return await asyncio.shield(waiting)
    finally:
        del waiting  # breaks the cycle of future, exception, traceback and this frame, which holds the arguments


def size_of(value: Any) -> int:
    """Size of a value as JSON in bytes. It is written and thrown away, a millisecond for a megabyte: to count it is not
    cheaper. Of what cannot be written roughly, and no further than ``INLINE_BYTES``."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return _counted(value)


def _counted(value: Any) -> int:
    waiting, size = [value], 0
    while waiting and size <= INLINE_BYTES:
        item = waiting.pop()
        size += len(item) if isinstance(item, str) else _VALUE_BYTES
        if isinstance(item, dict | list | tuple):
            size += _VALUE_BYTES * len(item)
            if size <= INLINE_BYTES:
                waiting.extend(item)
                waiting.extend(item.values() if isinstance(item, dict) else ())
    return size
