"""The folder of policies as it changes: polled, checked, recorded, swapped; the old revision stays when one fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.policy.bundle import Bundle, read
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine

MAX_TRIES: Final = 5
"""Rests double up to 32 intervals."""

OnActivated = Callable[[Bundle], Awaitable[None]]
OnRefused = Callable[[PolicyRefused], Awaitable[None]]


class PolicyFolder:
    """``on_activated`` is awaited before the swap, so that the activation is on record before it decides anything;
    when it raises, nothing is swapped. ``on_refused`` is awaited once for each content that was refused. A refusal that
    the machine was the reason of is tried again, with growing pauses, without another word."""

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
        self._told = ""
        self._passing = False
        self._tries = self._rest = 0

    async def reload(self) -> bool:
        """Now, even when nothing changed; True when the folder's content is in force afterwards."""
        self._told = ""
        return await self._reload()

    async def _reload(self) -> bool:
        async with self._lock:
            try:
                bundle = await self._engine.prepare(self._folder)
                if bundle.revision != self._engine.status().revision or not self._engine.status().ready:
                    await self._engine.activate(bundle, before_swap=self._on_activated)
            except PolicyRefused as refused:
                await self._refused(refused)
                return False
            self._seen, self._told, self._passing = bundle.revision, "", False
            return True

    async def _refused(self, refused: PolicyRefused) -> None:
        mark = refused.revision or str(refused)
        if mark != self._told:
            await self._on_refused(refused)
            self._told = mark
        self._tries = min(self._tries + 1, MAX_TRIES) if self._passing and mark == self._seen else 0
        self._seen, self._passing, self._rest = mark, refused.passing, 1 << self._tries

    def _due(self, digest: str) -> bool:
        """What was not tried yet, and what the machine alone stood in the way of, after its rest."""
        if digest != self._seen:
            return True
        self._rest -= 1
        return self._passing and self._rest <= 0

    async def run(self) -> None:
        """Polls until it is cancelled. A change counts once it reads the same twice: no half-written folder."""
        settled = ""
        while True:
            await self._clock.sleep(self._interval)
            digest = await self._digest()
            if digest == settled and self._due(digest):
                await self._tried()
            settled = digest

    async def _tried(self) -> None:
        """A callback that raises (the record could not be written) must not end the watch: the next poll tries
        again, and ``status().last_error`` says so meanwhile."""
        with contextlib.suppress(Exception):
            await self._reload()

    async def _digest(self) -> str:
        """The revision, or why there is none."""
        try:
            return (await asyncio.to_thread(read, self._folder)).revision
        except PolicyRefused as refused:
            return str(refused)
