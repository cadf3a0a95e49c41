"""An engine that loads bundles itself: one revision at a time, swapped as a whole.

Embedded children and a supervised OPA differ in how they check and serve a bundle; they share preparing, recording,
swapping and retiring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle, Reader, read
from kblockd.policy.deciding import Decision, PolicyFailure, PolicyStatus
from kblockd.policy.deciding.evaluator import CLOSED, Ask, Evaluator, nothing_in_force
from kblockd.policy.faults import BundleRefused, LoadFailed, unloadable

BeforeSwap = Callable[[Bundle], Awaitable[None]]
Check = Callable[[Bundle], Awaitable[Bundle]]


class Serving(Protocol):
    """Serves one bundle."""

    @property
    def bundle(self) -> Bundle:
        """Never changes."""
        ...

    async def start(self) -> None:
        """Returns once it answers queries; raises ``LoadFailed`` or ``OSError`` and cleans up."""
        ...

    async def ask(self, entrypoint: str, document: bytes) -> Mapping[str, Any]:
        """One question within its deadline; see ``kblockd.policy.deciding.evaluator.Ask``."""
        ...

    async def drain(self) -> None:
        """``close`` once the questions that were asked are answered or have timed out."""
        ...

    async def close(self) -> None:
        """At once; no process is left. Idempotent."""
        ...


class LoadingEngine:
    """A ``PolicyEngine`` that loads. Without an active bundle every question raises POLICY_UNDEFINED."""

    def __init__(
        self, evaluator: Evaluator, check: Check, serve: Callable[[Bundle], Serving], reader: Reader = read
    ) -> None:
        self._evaluator = evaluator
        self._reader = reader
        self._check = check
        self._serve = serve
        self._serving: Serving | None = None
        self._last_error = ""
        self._swap = asyncio.Lock()
        self._closed = False
        self._passed: Bundle | None = None
        self._retiring: dict[Serving, asyncio.Task[None]] = {}

    def status(self) -> PolicyStatus:
        """Never blocks; ``last_error`` is empty while the newest bundle that was read is the one in force."""
        revision = self._serving.bundle.revision if self._serving else ""
        return PolicyStatus(self._evaluator.engine, revision, self._serving is not None, self._last_error)

    async def read(self, path: Path) -> Bundle:
        """A folder or an archive, verified and not checked; raises ``BundleRefused``."""
        return await asyncio.to_thread(self._reader, path)

    @property
    def bundle(self) -> Bundle | None:
        """The one in force."""
        return self._serving.bundle if self._serving else None

    async def prepare(self, path: Path) -> Bundle:
        """Reads, verifies and checks it in throw-away processes; activates nothing. Raises ``BundleRefused``."""
        return await self.accept(await self.try_read(path))

    async def try_read(self, path: Path) -> Bundle | BundleRefused:
        """The bundle at ``path``, read once and unchecked, or why it cannot be read."""
        try:
            return await self.read(path)
        except BundleRefused as refused:
            return refused

    async def accept(self, result: Bundle | BundleRefused) -> Bundle:
        """``prepare`` for an already read bundle; raises ``BundleRefused``."""
        try:
            if isinstance(result, BundleRefused):
                raise result
            bundle = await self._checked(result)
        except BundleRefused as refused:
            self._last_error = str(refused)
            raise
        if self.is_in_force(bundle):
            self._last_error = ""
        return bundle

    async def _checked(self, bundle: Bundle) -> Bundle:
        """Skips the check for the content and signer that passed last: a start prepares before it can activate."""
        known = self._passed
        if known is None or (known.revision, known.origin) != (bundle.revision, bundle.origin):
            self._passed = known = await self._check(bundle)
        return replace(known, token=bundle.token)

    def is_in_force(self, bundle: Bundle) -> bool:
        """The same content from the same signer: a new signature by another key is another activation."""
        serving = self._serving.bundle if self._serving else None
        return serving is not None and (serving.revision, serving.origin) == (bundle.revision, bundle.origin)

    async def activate(self, bundle: Bundle, *, before_swap: BeforeSwap | None = None) -> None:
        """Loads the bundle, awaits ``before_swap`` (the place to order the record of the activation), swaps.

        Whatever fails before the swap leaves the old revision in force and is raised: ``BundleRefused`` for a bundle
        that does not load, ``PolicyFailure`` (POLICY_DOWN) after ``close``, and what ``before_swap`` raises.
        Questions that were asked before the swap are answered by the old revision, and say so.
        """
        async with self._swap:
            fresh = self._serve(bundle)
            try:
                await fresh.start()
            except (LoadFailed, OSError) as failure:
                refused = BundleRefused([unloadable(str(failure))], revision=bundle.revision, transient=True)
                self._last_error = str(refused)
                raise refused from failure
            try:
                if before_swap:
                    await before_swap(bundle)
                if self._closed:
                    raise PolicyFailure(Reason.POLICY_DOWN, CLOSED)
            except BaseException as error:
                self._last_error = f"revision {bundle.revision} was not activated: {type(error).__name__}"
                await fresh.close()
                raise
            old, self._serving, self._last_error = self._serving, fresh, ""
        if old:
            self._retire(old)

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """See ``PolicyEngine``; the deadline counts from when the question is put, queue included."""

        def in_force() -> tuple[str, Ask]:
            if self._serving is None:
                raise nothing_in_force(entrypoint, closed=self._closed)
            return self._serving.bundle.revision, self._serving.ask

        return await self._evaluator.decide(in_force, entrypoint, document)

    async def close(self) -> None:
        """Ends every process. Idempotent."""
        self._closed = True
        async with self._swap:
            serving, self._serving = self._serving, None
        if serving:
            await serving.close()
        retiring = dict(self._retiring)
        for task in retiring.values():
            task.cancel()
        await asyncio.gather(*retiring.values(), return_exceptions=True)
        for old in retiring:
            await old.close()

    def _retire(self, old: Serving) -> None:
        task = asyncio.create_task(old.drain())
        self._retiring[old] = task
        task.add_done_callback(lambda _: self._retiring.pop(old, None))
