"""Wakes those who watch an execution when it has changed; what they then see is read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """One event a watcher, only while it watches: a change between two of its reads is not missed."""

    def __init__(self) -> None:
        self._watching: dict[str, set[asyncio.Event]] = {}

    def notify(self, execution_id: str) -> None:
        """Wakes everybody who watches this execution."""
        for event in self._watching.get(execution_id, ()):
            event.set()

    @contextmanager
    def watching(self, execution_id: str) -> Iterator[asyncio.Event]:
        """An event that every change sets; clear it before you read."""
        event = asyncio.Event()
        self._watching.setdefault(execution_id, set()).add(event)
        try:
            yield event
        finally:
            watchers = self._watching[execution_id]
            watchers.discard(event)
            if not watchers:
                del self._watching[execution_id]


async def changed(event: asyncio.Event, seconds: float) -> None:
    """Returns at the next change, or after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
