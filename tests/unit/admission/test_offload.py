"""Work beside the loop: one principal's long documents keep nobody else's waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kblockd.admission import on_behalf_of
from kblockd.admission.offload import INLINE_BYTES, THREADS, offload

LONG = INLINE_BYTES + 1


async def test_agt_03_one_principal_has_one_thread_and_another_is_served_meanwhile() -> None:
    let, running = threading.Event(), threading.Semaphore(0)

    def slow() -> None:
        running.release()
        let.wait(30)

    with on_behalf_of("hostile"):
        hostile = [asyncio.ensure_future(offload(LONG, slow)) for _ in range(10 * THREADS)]
    try:
        assert await asyncio.to_thread(running.acquire, timeout=30)
        with on_behalf_of("good"):
            async with asyncio.timeout(30):
                assert await offload(LONG, lambda: threading.current_thread().name.startswith("foreign-input"))
        assert not running.acquire(blocking=False)
    finally:
        let.set()
    await asyncio.gather(*hostile)


async def test_one_that_raises_or_is_given_up_gives_its_place_back() -> None:
    def fails() -> None:
        raise ValueError("no")

    for _ in range(2 * THREADS):
        with pytest.raises(ValueError, match="no"):
            await offload(LONG, fails)
    let = threading.Event()
    waiting = asyncio.ensure_future(offload(LONG, let.wait, 30))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    let.set()
    async with asyncio.timeout(30):
        assert await offload(LONG, lambda: 7) == 7


async def test_agt_03_who_gives_up_again_and_again_has_one_thread_all_the_same() -> None:
    """A thread is not stopped by a caller that goes: its place is free when it has ended, and no sooner."""
    let, running = threading.Event(), threading.Semaphore(0)

    def slow() -> None:
        running.release()
        let.wait(30)

    try:
        with on_behalf_of("hostile"):
            for _ in range(2 * THREADS):
                impatient = asyncio.ensure_future(offload(LONG, slow))
                await asyncio.sleep(0)
                impatient.cancel()
                await asyncio.gather(impatient, return_exceptions=True)
        assert await asyncio.to_thread(running.acquire, timeout=30)
        with on_behalf_of("good"):
            async with asyncio.timeout(30):
                assert await offload(LONG, lambda: 7) == 7
        assert not running.acquire(blocking=False)
    finally:
        let.set()
