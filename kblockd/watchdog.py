"""A thread that ends the process when the event loop stalls longer than a lease, as when a plugin blocks it.

A stalled loop renews no leases, and must not continue later as if nothing had happened: the next start decides from
disk (kblockd/execution/README.md#who-runs-an-execution).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable

EXIT_STALLED = 70
_log = logging.getLogger(__name__)


def _end_process() -> None:
    os._exit(EXIT_STALLED)


class Watchdog:
    """Pings the loop every second and ends the process if no ping was answered for ``limit_seconds``."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_seconds: float, end: Callable[[], None] = _end_process
    ) -> None:
        self._loop = loop
        self._limit = limit_seconds
        self._end = end
        self._answered = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Starts watching."""
        self._answered = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._limit / 4)):
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                return  # the loop is closed
            stalled = time.monotonic() - self._answered
            if stalled > self._limit:
                _log.critical("the event loop stalled for %.1f s, longer than a lease; ending the process", stalled)
                self._end()
                return
