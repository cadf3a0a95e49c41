"""The folder of policies as it changes: polled, checked, recorded, swapped; the old revision stays when one fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from kblockd.domain.clock import Clock
from kblockd.policy.bundle import Bundle, read
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine

OnActivated = Callable[[Bundle], Awaitable[None]]
OnRefused = Callable[[PolicyRefused], Awaitable[None]]


class PolicyFolder:
    """``on_activated`` is awaited before the swap, so that the activation is on record before it decides anything;
    when it raises, nothing is swapped. ``on_refused`` is awaited once for each content that was refused."""

    def __init__(
        self,
        engine: LoadingEngine,
        folder: Path,
        clock: Clock,
        *,
        interval_seconds: float,
        on_activated: OnActivated,
        on_refused: OnRefused,
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._clock = clock
        self._interval = interval_seconds
        self._on_activated = on_activated
        self._on_refused = on_refused
        self._lock = asyncio.Lock()
        self._seen = ""

    async def reload(self) -> bool:
        """Now, even when nothing changed; True when the folder's content is in force afterwards."""
        async with self._lock:
            try:
                bundle = await self._engine.prepare(self._folder)
                if bundle.revision != self._engine.status().revision or not self._engine.status().ready:
                    await self._engine.activate(bundle, before_swap=self._on_activated)
            except PolicyRefused as refused:
                await self._on_refused(refused)
                self._seen = refused.revision or str(refused)
                return False
            self._seen = bundle.revision
            return True

    async def run(self) -> None:
        """Polls until it is cancelled. A change counts once it reads the same twice: no half-written folder."""
        settled = ""
        while True:
            await self._clock.sleep(self._interval)
            digest = await self._digest()
            if digest == settled and digest != self._seen:
                await self._tried()
            settled = digest

    async def _tried(self) -> None:
        """A callback that raises (the record could not be written) must not end the watch: the next poll tries
        again, and ``status().last_error`` says so meanwhile."""
        with contextlib.suppress(Exception):
            await self.reload()

    async def _digest(self) -> str:
        """The revision, or why there is none."""
        try:
            return (await asyncio.to_thread(read, self._folder)).revision
        except PolicyRefused as refused:
            return str(refused)
