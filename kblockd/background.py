"""Tasks that run beside the calls, until they are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from kblockd.ending import Shutdown

_log = logging.getLogger(__name__)
_TASKS: set[asyncio.Task[Any]] = set()  # asyncio itself holds only weak references


def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that is not garbage-collected while it runs."""
    task = asyncio.ensure_future(work)
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    return task


def spawn_endless(work: Coroutine[Any, Any, None], ending: Shutdown) -> asyncio.Task[Any]:
    """A task that only ``cancel`` may end. If it fails, the daemon ends: nobody awaits the task, so a dead heartbeat or
    health report would otherwise go unnoticed, and the next start has all of them again."""

    def check(ended: asyncio.Task[Any]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            _log.error("a background task has failed", exc_info=error)
            ending.fail(f"{ended.get_name()} ended with {type(error).__name__}")

    task = spawn(work)
    task.add_done_callback(check)
    return task


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancels the task and waits for its end, however it ends."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
