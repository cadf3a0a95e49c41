"""A thread that sees what asyncio cannot: a loop that stalls (a plugin that blocks it) beyond the lease.

Then nobody renews leases any more, and whatever wakes up later must not go on as if nothing had happened: the process
ends, and the next start decides from disk (design section 4).
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
    """Pings the loop each second; ends the process when no ping was answered for ``limit_seconds``."""

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
        """Begins to watch."""
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
                return  # the loop is closed: nothing is left to watch
            stalled = time.monotonic() - self._answered
            if stalled > self._limit:
                _log.critical("the event loop stalled for %.1f s, longer than a lease; ending the process", stalled)
                self._end()
                return
