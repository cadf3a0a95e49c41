"""Wakes those who watch an execution when it has changed; what they then see is read from the store."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Changes:
    """One event an execution, only while somebody waits."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def notify(self, execution_id: str) -> None:
        """Wakes everybody who waits for this execution."""
        for future in self._waiting.pop(execution_id, ()):
            if not future.done():
                future.set_result(None)

    async def wait(self, execution_id: str, seconds: float) -> None:
        """Returns at the next change, or after ``seconds``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[execution_id]
        waiting.append(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            pass
        finally:
            if future in waiting:
                waiting.remove(future)
            if not self._waiting.get(execution_id):
                self._waiting.pop(execution_id, None)
