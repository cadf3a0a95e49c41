"""The candidate revision: set, reported and cleared for ``PolicyService``. It lasts until it is cleared or the daemon
stops, and no record names it."""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from kblockd import decision_point
from kblockd.background import cancel, spawn
from kblockd.config import PolicySettings
from kblockd.domain.clock import Clock
from kblockd.domain.errors import InvalidArgument, Reason, ResourceExhausted
from kblockd.domain.ids import Ids
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.candidate import Candidate, ComparingEngine, Comparison
from kblockd.policy.faults import BundleRefused

MAX_FAULTS = 1000  # characters


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """The candidate since it was set."""

    bundle: Bundle
    since: dt.datetime
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class _Running:
    bundle: Bundle
    since: dt.datetime
    candidate: Candidate
    resources: AsyncExitStack

    def report(self) -> CandidateReport:
        return CandidateReport(self.bundle, self.since, self.candidate.comparison())


@dataclass(slots=True)
class Candidates:
    """At most one candidate beside the revision in force, on an engine and processes of its own."""

    comparing: ComparingEngine
    settings: PolicySettings
    clock: Clock
    ids: Ids
    _running: _Running | None = field(default=None, init=False)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def report(self) -> CandidateReport | None:
        """None without a candidate."""
        return self._running.report() if self._running else None

    async def set(self, archive: bytes) -> CandidateReport:
        """Checks a ``.tar.gz`` as an activation would and replaces the candidate; it needs neither signature nor tests.

        Raises ``InvalidArgument`` for a bundle that would be refused, ``ResourceExhausted`` while another one is being
        set or if no process could be started; both leave the earlier candidate in place.
        """
        if self._changing.locked():
            raise _busy("another candidate is being set")
        async with self._changing:
            try:
                fresh = await self._start(archive)
            except BundleRefused as refused:
                if refused.transient:
                    raise _busy(str(refused)[:MAX_FAULTS]) from refused
                raise InvalidArgument.field("bundle", str(refused)[:MAX_FAULTS]) from refused
            await self._replace(fresh)
            return fresh.report()

    async def clear(self) -> CandidateReport | None:
        """The last report of the candidate that was cleared; None if there was none."""
        async with self._changing:
            report = self.report()
            await self._replace(None)
            return report

    async def _start(self, archive: bytes) -> _Running:
        settings = self.settings
        bundle = await asyncio.to_thread(decision_point.draft_of_archive, settings, archive, self.clock)
        async with AsyncExitStack() as stack:
            own = stack.enter_context(decision_point.own_settings(settings))
            checked = await decision_point.check(own, bundle)
            engine = decision_point.open_loading(own, self.clock, self.ids)
            stack.push_async_callback(engine.close)
            await engine.activate(checked)
            candidate = Candidate(engine, settings.floors, self.clock)
            stack.push_async_callback(cancel, spawn(candidate.run()))
            return _Running(checked, self.clock.now(), candidate, stack.pop_all())

    async def _replace(self, fresh: _Running | None) -> None:
        old, self._running = self._running, fresh
        self.comparing.candidate = fresh.candidate if fresh else None
        if old:
            await old.resources.aclose()


def _busy(why: str) -> ResourceExhausted:
    return ResourceExhausted(
        Reason.OVERLOAD,
        f"the candidate was not set: {why}",
        retryable=True,
        next_step="repeat in a moment",
        retry_after_seconds=1.0,
    )
