"""Polls which revision a remote OPA serves, and whether it may.

A revision comes into force when OPA serves it, ``kblockd policy check`` has passed it, its entry points answer the
samples, and the activation is on record, in this order. Any failure on the way leaves queries denied: OPA itself
has already left the old revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason
from kblockd.paths import Writers
from kblockd.policy.activation.polling import OnRefused, Refusals, poll
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.faults import BundleFault, BundleRefused
from kblockd.policy.opa import replies, revisions
from kblockd.policy.opa.access import AccessRefused
from kblockd.policy.opa.remote import RemoteEngine
from kblockd.policy.opa.revisions import Passed, RevisionsUnreadable

LOOK_SECONDS: Final = 2.0
_RUN_CHECK: Final = "run `kblockd policy check` on that bundle, or let OPA serve one that passed"

OnActivated = Callable[[Passed], Awaitable[None]]


class RemoteWatch:
    """``on_activated`` is awaited before the revision decides anything, and only orders the record; when it raises, the
    next look tries again. ``on_in_force`` is awaited once it does. ``on_refused`` is awaited once for each revision
    that may not come into force."""

    def __init__(
        self,
        engine: RemoteEngine,
        file: Path,
        clock: Clock,
        *,
        interval_seconds: float,
        on_activated: OnActivated,
        on_in_force: OnActivated,
        on_refused: OnRefused,
        writers: Writers | None = None,
    ) -> None:
        self._engine = engine
        self._file = file
        self._writers = writers
        self._clock = clock
        self._interval = interval_seconds
        self._on_activated = on_activated
        self._on_in_force = on_in_force
        self._refusals = Refusals(on_refused)
        self._lock = asyncio.Lock()

    async def reload(self) -> bool:
        """Polls now; True if OPA serves the revision that is in force afterwards."""
        async with self._lock:
            try:
                await self._look()
            except BundleRefused as refused:
                self._engine.set_last_error(str(refused))
                await self._refusals.tell(refused)
                return False
            except (PolicyFailure, AccessRefused) as failure:
                self._engine.set_last_error(str(failure))
                return False
            except Exception as error:
                self._engine.set_last_error(f"the revision was not activated: {type(error).__name__}")
                raise
            self._refusals.forget()
            return True

    async def run(self) -> None:
        """Polls until it is cancelled."""
        await poll(self._clock, self._interval, self.reload)

    async def _look(self) -> None:
        passed = await self._passed()
        in_force = self._engine.status().revision
        if in_force and in_force not in passed:
            self._engine.withdraw("")
            raise _refusal(in_force, f"revision {in_force} is no longer noted as passed", self._file)
        await self._engine.connect()
        served = await self._engine.served(LOOK_SECONDS)
        if served == in_force:
            self._engine.set_last_error("")
            return
        if served not in passed:
            raise _refusal(served, f"OPA serves revision {replies.shown(served)}, which did not pass", self._file)
        await self._activate(passed[served])

    async def _activate(self, revision: Passed) -> None:
        try:
            await self._engine.probe(revision.revision, LOOK_SECONDS)
        except PolicyFailure as failure:
            if failure.reason in (Reason.POLICY_UNDEFINED, Reason.POLICY_TYPE, Reason.POLICY_ERROR):
                raise _refusal(revision.revision, f"revision {revision.revision}: {failure}", self._file) from None
            raise
        await self._on_activated(revision)
        self._engine.put_in_force(revision.revision)
        await self._on_in_force(revision)

    async def _passed(self) -> Mapping[str, Passed]:
        """The revisions in the file. An unreadable file accepts none: it may have been removed to retire a revision."""
        try:
            return await asyncio.to_thread(revisions.read, self._file, self._writers)
        except RevisionsUnreadable as error:
            self._engine.withdraw("")
            message, _, step = str(error).removeprefix(f"{self._file}: ").partition("; ")
            raise BundleRefused([BundleFault(str(self._file), 0, 0, message, step)]) from None


def _refusal(revision: str, message: str, file: Path) -> BundleRefused:
    """The record names a revision only if it has our format: OPA could return anything."""
    named = revision if revisions.is_revision(revision) else ""
    return BundleRefused([BundleFault(str(file), 0, 0, message, _RUN_CHECK)], revision=named)
