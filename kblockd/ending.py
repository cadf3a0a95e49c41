"""How the daemon ends: why, when, and without whatever a plugin left running."""

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


class Ending:
    """Why and when the daemon ends; ``failed`` is empty for an orderly stop."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.failed = ""
        self.distrusted = ""

    def ask(self, hasten: Callable[[], object]) -> None:
        """An orderly stop; asked for again, one that waits for nobody: the next start settles what is cut (RPC-04)."""
        if self.event.is_set():
            hasten()
        self.event.set()

    def fail(self, reason: str) -> None:
        """The process must end: what is on disk decides, not what is in memory."""
        _log.critical("the daemon must end: %s", reason)
        self.failed = self.failed or reason
        self.event.set()

    def distrust(self, reason: str) -> None:
        """Not serving any more, but kept for a look: the ledger is not what it should be."""
        _log.critical("NOT_SERVING: %s; run `kblockd ledger verify` and restore from a backup", reason)
        self.distrusted = self.distrusted or reason


def run_alone(work: Coroutine[Any, Any, int]) -> int:
    """As ``uvloop.run``, for work that nobody but itself may end. Returns and raises what it does.

    A KeyboardInterrupt or SystemExit out of any other task, one that a plugin left behind, ends the loop. To close then
    would be to cancel everything at once, the gRPC servers' own tasks too; processes that did so were seen to crash on
    overwritten memory, with the store still open. So the process ends on the spot with ``EXIT_FAILED``, and the next
    start decides from disk (RPC-03).
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
            _log.critical("the daemon must end: a %s that was none of its own ended its loop", type(stray).__name__)
            logging.shutdown()
            os._exit(EXIT_FAILED)


async def leave_nobody(code: int) -> None:
    """Ends what plugins left running. Everything else is closed by now, so what ignores its cancellation ends with the
    process: asyncio would wait for it for ever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=LEFT_SECONDS))[1]:
        _log.error("tasks that plugins left behind ignore their cancellation; the process ends without them")
        logging.shutdown()
        os._exit(code)
