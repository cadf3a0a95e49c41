"""A loop in a thread of its own: what runs there goes on while the test, or the loop of the test, stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")
_HANG_SECONDS: Final = 60.0


@contextmanager
def elsewhere(block: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """The block is entered and left there; raises what it raises."""
    opened: Future[tuple[T, Callable[[], object]]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with block as value:
            opened.set_result((value, partial(asyncio.get_running_loop().call_soon_threadsafe, over.set)))
            await over.wait()

    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(lambda: asyncio.run(serve()))
        wait((opened, serving), _HANG_SECONDS, FIRST_COMPLETED)
        if serving.done():
            serving.result()
        value, end = opened.result(0)
        try:
            yield value
        finally:
            end()
            serving.result(_HANG_SECONDS)
