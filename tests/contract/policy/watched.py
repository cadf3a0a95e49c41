"""A watched bundle, its engine, and what the callbacks saw."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from kblockd.policy.activation.bundle_watch import BundleWatch
from kblockd.policy.bundles.bundle import Bundle, Reader, read
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import Kind, TickClock


class Watched:
    """Of an engine of that kind; ``reader`` is the trust of a configuration. Nothing is loaded yet."""

    def __init__(self, path: Path, kind: Kind, reader: Reader = read) -> None:
        self.path = path
        self.clock = TickClock()
        self.engine = kind.engine(reader=reader)
        self.activated: list[tuple[str, str]] = []
        self.signers: list[str] = []
        self.in_force: list[tuple[str, str]] = []
        self.refused: list[BundleRefused] = []
        self.failures: list[Exception] = []
        self.watch = BundleWatch(
            self.engine,
            path,
            self.clock,
            interval_seconds=2.0,
            on_activated=self._activate,
            on_in_force=self._decides,
            on_refused=self._refuse,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The watch polls at each tick of the clock; the engine is closed afterwards."""
        task = asyncio.create_task(self.watch.run())
        await self.clock.asleep()
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self.engine.close()

    async def settles(self) -> None:
        """Two looks: a change that stays is tried."""
        for _ in range(2):
            await self.clock.tick()

    async def _activate(self, bundle: Bundle) -> None:
        if self.failures:
            raise self.failures.pop()
        self.activated.append((bundle.revision, self.engine.status().revision))
        self.signers.append(bundle.origin.signer)

    async def _decides(self, bundle: Bundle) -> None:
        self.in_force.append((bundle.revision, self.engine.status().revision))

    async def _refuse(self, error: BundleRefused) -> None:
        self.refused.append(error)
