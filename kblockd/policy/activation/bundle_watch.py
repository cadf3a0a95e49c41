"""Polls the configured bundle; verifies, checks, records and swaps in a new one. A failure leaves the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.activation.polling import OnRefused, Refusals, poll
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.faults import BundleRefused

MAX_TRIES: Final = 5
"""Rests double up to 32 intervals."""

OnActivated = Callable[[Bundle], Awaitable[None]]


class BundleWatch:
    """``on_activated`` is awaited before the swap, so that the activation stands before anything that it decides;
    when it raises, nothing is swapped. It only orders the record: until the swap no call can be consumed.
    ``on_in_force`` is awaited after the swap, for what takes longer. ``on_refused`` is awaited once for each content
    that was refused. A transient refusal is retried with growing pauses and not reported again."""

    def __init__(
        self,
        engine: LoadingEngine,
        path: Path,
        clock: Clock,
        *,
        interval_seconds: float,
        on_activated: OnActivated,
        on_in_force: OnActivated,
        on_refused: OnRefused,
    ) -> None:
        self._engine = engine
        self._path = path
        self._clock = clock
        self._interval = interval_seconds
        self._on_activated = on_activated
        self._on_in_force = on_in_force
        self._refusals = Refusals(on_refused)
        self._lock = asyncio.Lock()
        self._settled = self._seen = ""
        self._transient = False
        self._tries = self._rest = 0

    async def reload(self) -> bool:
        """Reloads now, even without a change; True if the configured bundle is in force afterwards."""
        async with self._lock:
            self._refusals.forget()
            return await self._reload(await self._engine.try_read(self._path))

    async def run(self) -> None:
        """Polls until it is cancelled. A change counts once it reads the same twice: no half-written folder."""
        await poll(self._clock, self._interval, self._look)

    async def _look(self) -> None:
        async with self._lock:
            result = await self._engine.try_read(self._path)
            mark = _mark(result)
            settled, self._settled = mark == self._settled, mark
            if settled and self._due(mark):
                await self._reload(result)

    async def _reload(self, result: Bundle | BundleRefused) -> bool:
        """Activates what was read, not what is there by now: that was not seen twice and has another mark."""
        mark = _mark(result)
        try:
            bundle = await self._engine.accept(result)
            if not self._engine.is_in_force(bundle):
                await self._engine.activate(bundle, before_swap=self._on_activated)
                await self._on_in_force(bundle)
        except BundleRefused as refused:
            await self._refused(refused, mark)
            return False
        self._refusals.forget()
        self._seen, self._transient = mark, False
        return True

    async def _refused(self, refused: BundleRefused, mark: str) -> None:
        await self._refusals.tell(refused)
        self._tries = min(self._tries + 1, MAX_TRIES) if self._transient and mark == self._seen else 0
        self._seen, self._transient, self._rest = mark, refused.transient, 1 << self._tries

    def _due(self, mark: str) -> bool:
        """True for a bundle not tried yet, and for a transiently refused one after its pause."""
        if mark != self._seen:
            return True
        self._rest -= 1
        return self._transient and self._rest <= 0


def _mark(result: Bundle | BundleRefused) -> str:
    """Identifies the content and its signer, or the reason for there being none."""
    return str(result) if isinstance(result, BundleRefused) else f"{result.revision} {result.origin}"
