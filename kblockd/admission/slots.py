"""A fair semaphore: no principal waits behind another principal's queue.

Each principal may hold at most ``share`` slots; its further requests wait in its own queue, in order of arrival. A free
slot goes to the principals in turn, not to the longest queue (AGT-03, AGT-04).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from types import TracebackType

from kblockd.admission.who import principal

_Waiters = deque[asyncio.Future[None]]


class Slots:
    """``total`` slots, None for no limit. Belongs to one loop. ``async with slots`` acquires one and releases it.

    ``principal()`` determines the owner, at ``acquire`` and at ``release``: release a slot in the context in which it
    was acquired (a task's callbacks run in the context in which they were added).
    """

    def __init__(self, total: int | None, share: int) -> None:
        self._total = total
        self._share = share
        self._used: Counter[str] = Counter()
        self._count = 0
        self._waiting: OrderedDict[str, _Waiters] = OrderedDict()

    @property
    def in_use(self) -> int:
        """Slots in use."""
        return self._count

    def locked(self) -> bool:
        """Whether the current principal would have to wait."""
        who = principal()
        return not self._has_room(who) or who in self._waiting

    def try_acquire(self) -> bool:
        """Acquires a slot without waiting, or returns False."""
        who = principal()
        if not self._has_room(who) or who in self._waiting:
            return False
        self._take(who)
        return True

    async def acquire(self) -> bool:
        """Waits for a slot; always True, as for ``asyncio.Semaphore``. A cancelled waiter leaves the queue."""
        if self.try_acquire():
            return True
        who, turn = principal(), asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(who, turn)
            else:  # the slot had just been assigned
                self._give_back(who)
            raise
        return True

    def release(self) -> None:
        """Gives a place of the current principal back."""
        self._give_back(principal())

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _has_room(self, who: str) -> bool:
        return self._used.get(who, 0) < self._share and (self._total is None or self._count < self._total)

    def _take(self, who: str) -> None:
        self._used[who] += 1
        self._count += 1

    def _give_back(self, who: str) -> None:
        if not self._used[who]:
            raise AssertionError(f"{who!r} has no slot to release")
        self._used[who] -= 1
        self._count -= 1
        if not self._used[who]:
            del self._used[who]
        self._pass_on()

    def _pass_on(self) -> None:
        """Assigns free slots to waiters, one principal after another."""
        passed_over = 0
        while passed_over < len(self._waiting):
            who, queue = next(iter(self._waiting.items()))
            self._waiting.move_to_end(who)
            if not self._has_room(who):
                passed_over += 1
                continue
            passed_over = 0
            turn = queue.popleft()
            if not queue:
                del self._waiting[who]
            if not turn.done():  # else it was cancelled and has not left the queue yet
                self._take(who)
                turn.set_result(None)

    def _forget(self, who: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(who)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        if not queue:
            del self._waiting[who]
