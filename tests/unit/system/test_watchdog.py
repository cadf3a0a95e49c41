"""A loop that stalls is seen from outside of it; one that runs is left alone
(kblockd/execution/README.md#who-runs-an-execution)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

from kblockd.watchdog import EXIT_STALLED, Watchdog


def test_a_blocked_loop_ends_the_process() -> None:
    """The end comes from the thread, while the loop is still blocked, and once."""
    ended = threading.Event()
    ends: list[bool] = []

    async def block() -> None:
        def end() -> None:
            ends.append(True)
            ended.set()

        watchdog = Watchdog(asyncio.get_running_loop(), 0.2, end)
        watchdog.start()
        await asyncio.sleep(0)
        blocked_until = time.monotonic() + 30
        while not ended.is_set() and time.monotonic() < blocked_until:
            time.sleep(0.01)  # a plugin that never gives the loop back
        assert ended.is_set()
        watchdog.stop()

    asyncio.run(block())
    assert ends == [True]


async def test_a_loop_that_runs_is_left_alone() -> None:
    """It answers the watchdog's calls again and again, busy as it is, so the limit is never near."""
    ended = threading.Event()
    watchdog = Watchdog(asyncio.get_running_loop(), 60.0, ended.set)
    watchdog.start()
    for _ in range(3):
        answered = watchdog._answered
        until = time.monotonic() + 50
        while watchdog._answered == answered and time.monotonic() < until:
            time.sleep(0.01)
            await asyncio.sleep(0)
        assert watchdog._answered > answered
    watchdog.stop()
    assert not ended.is_set()


async def test_time_before_the_start_does_not_count() -> None:
    """A daemon that took long to open its store is not stalled."""
    ended = threading.Event()
    watchdog = Watchdog(asyncio.get_running_loop(), 60.0, ended.set)
    watchdog._answered -= 3600
    begun = watchdog._answered
    watchdog.start()
    assert watchdog._answered >= begun + 3600
    await asyncio.sleep(1.5)  # past the first look
    watchdog.stop()
    assert not ended.is_set()


async def test_stop_ends_the_thread_and_may_come_twice_or_without_a_start() -> None:
    watchdog = Watchdog(asyncio.get_running_loop(), 3.0, lambda: None)
    watchdog.stop()
    watchdog = Watchdog(asyncio.get_running_loop(), 3.0, lambda: None)
    watchdog.start()
    watchdog.stop()
    watchdog.stop()
    assert not watchdog._thread.is_alive()


def test_a_closed_loop_is_no_stall() -> None:
    """The thread goes quietly when there is nothing left to watch."""
    loop = asyncio.new_event_loop()
    ended = threading.Event()
    watchdog = Watchdog(loop, 0.2, ended.set)
    loop.close()
    watchdog.start()
    watchdog._thread.join(30)
    assert not watchdog._thread.is_alive()
    assert not ended.is_set()


STALLS = """
import asyncio, time
from kblockd.watchdog import Watchdog

async def main():
    Watchdog(asyncio.get_running_loop(), 0.3).start()
    await asyncio.sleep(0)
    try:
        time.sleep(60)
    finally:
        print("went on")

asyncio.run(main())
"""


def test_a_stalled_process_really_ends() -> None:
    """At once and without unwinding: nothing of the stalled call goes on."""
    done = subprocess.run([sys.executable, "-c", STALLS], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (EXIT_STALLED, "")
    assert "the event loop stalled" in done.stderr
