"""How the daemon ends: why, when, and without tasks that a plugin left behind."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

EXIT_FAILED = 75
LEFT_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Shutdown:
    """Why and when the daemon ends; ``failed`` is empty for an orderly stop."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.failed = ""
        self.distrusted = ""

    def ask(self, hasten: Callable[[], object]) -> None:
        """Begins an orderly stop; a second request stops at once, and the next start settles interrupted runs
        (RPC-04)."""
        if self.event.is_set():
            hasten()
        self.event.set()

    def fail(self, reason: str) -> None:
        """The process must end: the next start decides from disk, not from memory."""
        _log.critical("the daemon must end: %s", reason)
        self.failed = self.failed or reason
        self.event.set()

    def distrust(self, reason: str) -> None:
        """Stops serving, but keeps the process up for inspection: the ledger does not verify."""
        _log.critical("NOT_SERVING: %s; run `kblockd ledger verify` and restore from a backup", reason)
        self.distrusted = self.distrusted or reason


def run_alone(work: Coroutine[Any, Any, int]) -> int:
    """As ``uvloop.run``, for work that only it may end. Returns and raises as ``work`` does.

    A KeyboardInterrupt or SystemExit in any other task, such as one that a plugin left behind, ends the loop. An
    orderly close would then cancel everything at once, including the gRPC servers' own tasks, and such processes
    crashed with corrupt memory while the store was open. So the process exits at once with ``EXIT_FAILED``, and the
    next start decides from disk (RPC-03).
    """
    running = True

    async def main() -> int:
        nonlocal running
        try:
            return await work
        finally:
            running = False

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except (KeyboardInterrupt, SystemExit) as stray:
            if not running:
                raise
            _log.critical("the daemon must end: a %s from a foreign task ended its loop", type(stray).__name__)
            logging.shutdown()
            os._exit(EXIT_FAILED)


async def cancel_remaining(code: int) -> None:
    """Cancels tasks that plugins left behind. Everything else is closed by now, so if one ignores its cancellation, the
    process exits with ``code``; asyncio would wait for it for ever."""
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    if remaining and (await asyncio.wait(remaining, timeout=LEFT_SECONDS))[1]:
        _log.error("tasks that plugins left behind ignore their cancellation; the process ends without them")
        logging.shutdown()
        os._exit(code)
