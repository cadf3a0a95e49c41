"""Work on long foreign input leaves the event loop, so that one caller's megabyte is not everybody's wait.

Linear work is still tens of milliseconds for a megabyte. A thread shares the interpreter with the loop, which gets its
turn every few milliseconds; what is not linear belongs into a process that can be killed, never in here.
One principal has one of the threads at a time, so that its megabytes queue behind one another and not before others'.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from kblockd.admission.slots import Slots

T = TypeVar("T")

INLINE_BYTES: Final = 16 << 10
"""What is no longer than this is worked on at once: a thread would cost more than it saves."""

THREADS: Final = 2
_THREADS: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="foreign-input")
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Slots]] = WeakKeyDictionary()
_A_VALUE: Final = 8  # bytes of JSON, about


async def offload(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work`` returns or raises; in a thread if ``size`` bytes are more than ``INLINE_BYTES``.

    ``work`` must be a pure function: it is not stopped when its caller is cancelled, and its principal's next work
    waits for its end all the same.
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
    except RuntimeError:  # the machine has no thread left; late is better than never
        turns.release()
        return work(*arguments)
    waiting.add_done_callback(lambda _: turns.release())
    try:
        return await asyncio.shield(waiting)
    finally:
        del waiting  # it keeps the exception, whose traceback keeps this frame: a cycle that would hold the arguments


def size_of(value: Any) -> int:
    """Roughly the bytes of JSON that a value would be written as; counted no further than ``INLINE_BYTES``."""
    waiting, size = [value], 0
    while waiting and size <= INLINE_BYTES:
        item = waiting.pop()
        size += len(item) if isinstance(item, str) else _A_VALUE
        if isinstance(item, dict | list | tuple):
            size += _A_VALUE * len(item)
            if size <= INLINE_BYTES:
                waiting.extend(item)
                waiting.extend(item.values() if isinstance(item, dict) else ())
    return size
