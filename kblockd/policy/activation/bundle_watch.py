"""The configured bundle as it changes: polled, verified, checked, recorded, swapped; the old one stays if one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.activation.polling import OnRefused, Refusals, poll
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.faults import PolicyRefused

MAX_TRIES: Final = 5
"""Rests double up to 32 intervals."""

OnActivated = Callable[[Bundle], Awaitable[None]]


class BundleWatch:
    """``on_activated`` is awaited before the swap, so that the activation stands before anything that it decides;
    when it raises, nothing is swapped. It only orders the record: until the swap no call can be consumed.
    ``on_in_force`` is awaited after the swap, for what takes longer. ``on_refused`` is awaited once for each content
    that was refused. A refusal that the machine was the reason of is tried again, with growing pauses, without another
    word."""

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
        self._passing = False
        self._tries = self._rest = 0

    async def reload(self) -> bool:
        """Now, even when nothing changed; True when what stands there is in force afterwards."""
        async with self._lock:
            self._refusals.forget()
            return await self._reload(await self._engine.found(self._path))

    async def run(self) -> None:
        """Polls until it is cancelled. A change counts once it reads the same twice: no half-written folder."""
        await poll(self._clock, self._interval, self._look)

    async def _look(self) -> None:
        async with self._lock:
            found = await self._engine.found(self._path)
            mark = _mark(found)
            settled, self._settled = mark == self._settled, mark
            if settled and self._due(mark):
                await self._reload(found)

    async def _reload(self, found: Bundle | PolicyRefused) -> bool:
        """Of what was read, not of what stands there by now: that was not seen twice, and has another mark."""
        mark = _mark(found)
        try:
            bundle = await self._engine.passed(found)
            if not self._engine.is_in_force(bundle):
                await self._engine.activate(bundle, before_swap=self._on_activated)
                await self._on_in_force(bundle)
        except PolicyRefused as refused:
            await self._refused(refused, mark)
            return False
        self._refusals.forget()
        self._seen, self._passing = mark, False
        return True

    async def _refused(self, refused: PolicyRefused, mark: str) -> None:
        await self._refusals.tell(refused)
        self._tries = min(self._tries + 1, MAX_TRIES) if self._passing and mark == self._seen else 0
        self._seen, self._passing, self._rest = mark, refused.passing, 1 << self._tries

    def _due(self, mark: str) -> bool:
        """What was not tried yet, and what the machine alone stood in the way of, after its rest."""
        if mark != self._seen:
            return True
        self._rest -= 1
        return self._passing and self._rest <= 0


def _mark(found: Bundle | PolicyRefused) -> str:
    """Which content was read and who signed it, or why there is none."""
    return str(found) if isinstance(found, PolicyRefused) else f"{found.revision} {found.origin}"
