"""Which engine decides: from the settings to an engine, its check, and what keeps it up to date.

The parts of OPA are imported where OPA is configured only: its HTTP client takes its time to import.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from kblockd.config import PolicySettings
from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy import embedded
from kblockd.policy.bundle import Bundle
from kblockd.policy.engine import PolicyEngine
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine
from kblockd.policy.pool import EmbeddedLimits
from kblockd.policy.reload import PolicyFolder

POLL_SECONDS = 1.0


class Activated(Protocol):
    """What comes into force: a bundle, or the note that it passed. ``to_json`` is kept beside the record."""

    @property
    def revision(self) -> str: ...

    @property
    def tests(self) -> int: ...

    def to_json(self) -> bytes: ...


class Watch(Protocol):
    """Keeps an engine at the newest revision that may decide."""

    async def reload(self) -> bool:
        """Now; True when the newest is in force afterwards."""
        ...

    async def run(self) -> None:
        """Until it is cancelled."""
        ...


OnActivated = Callable[[Activated], Awaitable[None]]
OnRefused = Callable[[PolicyRefused], Awaitable[None]]
Watching = Callable[[OnActivated, OnRefused], Watch]


def open_engine(settings: PolicySettings, clock: Clock, ids: Ids) -> tuple[PolicyEngine, Watching]:
    """The engine, closed by whoever opens it, and how to watch over it. Starts nothing."""
    if isinstance(settings.opa, RemoteOpa):
        return _remote(settings, settings.opa, clock, ids)
    engine = _supervised(settings, settings.opa, clock, ids) if settings.opa else _embedded(settings, clock, ids)

    def watching(on_activated: OnActivated, on_refused: OnRefused) -> Watch:
        return PolicyFolder(
            engine,
            settings.dir,
            clock,
            interval_seconds=POLL_SECONDS,
            on_activated=on_activated,
            on_refused=on_refused,
        )

    return engine, watching


async def check(settings: PolicySettings, bundle: Bundle) -> Bundle:
    """What ``bundle`` must pass before that engine may decide by it; raises ``PolicyRefused``.

    With an OPA binary at hand OPA checks it; for a remote OPA without one the embedded engine does, which takes less
    of the language and gives OPA's answers for what it takes.
    """
    opa = settings.opa
    if opa is None or opa.command is None:
        return await embedded.check(bundle, _embedded_limits(settings), server=opa is not None)
    from kblockd.policy.opa.check import check as check_by_opa
    from kblockd.policy.opa.process import OpaLimits

    limits = OpaLimits(settings.evaluate_timeout_seconds, memory_mib=settings.memory_mib)
    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        return await check_by_opa(bundle, opa.command, Path(folder), limits)


def note(settings: PolicySettings, bundle: Bundle, at: str) -> Path | None:
    """Where it is noted that ``bundle`` passed at ``at`` (RFC 3339), for a remote OPA only; raises ``OSError``."""
    if not isinstance(settings.opa, RemoteOpa):
        return None
    from kblockd.policy.opa import revisions

    revisions.note(settings.opa.revisions, bundle, at)
    return settings.opa.revisions


def _embedded_limits(settings: PolicySettings) -> EmbeddedLimits:
    return EmbeddedLimits(
        evaluate_seconds=settings.evaluate_timeout_seconds, workers=settings.workers, memory_mib=settings.memory_mib
    )


def _embedded(settings: PolicySettings, clock: Clock, ids: Ids) -> LoadingEngine:
    return embedded.EmbeddedEngine(_embedded_limits(settings), clock, ids)


def _supervised(settings: PolicySettings, opa: SupervisedOpa, clock: Clock, ids: Ids) -> LoadingEngine:
    from kblockd.policy.opa.process import OpaLimits
    from kblockd.policy.opa.supervised import SupervisedEngine

    limits = OpaLimits(settings.evaluate_timeout_seconds, memory_mib=settings.memory_mib)
    return SupervisedEngine(opa.command, opa.run_dir, limits, clock, ids)


def _remote(settings: PolicySettings, opa: RemoteOpa, clock: Clock, ids: Ids) -> tuple[PolicyEngine, Watching]:
    from kblockd.policy.opa.remote import RemoteEngine
    from kblockd.policy.opa.watch import RemoteWatch

    engine = RemoteEngine(opa.access, settings.evaluate_timeout_seconds, clock, ids)

    def watching(on_activated: OnActivated, on_refused: OnRefused) -> Watch:
        return RemoteWatch(
            engine,
            opa.revisions,
            clock,
            interval_seconds=POLL_SECONDS,
            on_activated=on_activated,
            on_refused=on_refused,
        )

    return engine, watching
