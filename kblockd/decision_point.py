"""The policy engine: from the settings to an engine, its checks, and a watch that keeps it up to date.

OPA modules are imported only where OPA is configured, because its HTTP client is slow to import.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kblockd.config import PolicySettings
from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy import bundle as bundles
from kblockd.policy import embedded, reviewer
from kblockd.policy import explain as explaining
from kblockd.policy.asking import Asker
from kblockd.policy.bundle import Bundle, Origin, Reader
from kblockd.policy.engine import PolicyEngine
from kblockd.policy.explain import EmbeddedObserver, Explanation
from kblockd.policy.faults import PolicyRefused, refusal
from kblockd.policy.loading import LoadingEngine
from kblockd.policy.pool import EmbeddedLimits
from kblockd.policy.reading import KillableReader
from kblockd.policy.reload import BundleWatch
from kblockd.policy.review.findings import Finding
from kblockd.policy.signatures import Unsigned
from kblockd.policy.trials import EmbeddedTester, Trials

if TYPE_CHECKING:
    from kblockd.policy.opa.process import OpaLimits

POLL_SECONDS = 1.0


class Activated(Protocol):
    """A revision that comes into force: a bundle, or for a remote OPA the note that it passed. ``to_json`` is stored
    beside the record."""

    @property
    def revision(self) -> str: ...

    @property
    def origin(self) -> Origin: ...

    @property
    def tests(self) -> int: ...

    def to_json(self) -> bytes: ...


class Watch(Protocol):
    """Keeps an engine at the newest permitted revision."""

    async def reload(self) -> bool:
        """Reloads now; True if the newest revision is in force afterwards."""
        ...

    async def run(self) -> None:
        """Runs until cancelled."""
        ...


OnActivated = Callable[[Activated], Awaitable[None]]
OnRefused = Callable[[PolicyRefused], Awaitable[None]]
NewWatch = Callable[[OnActivated, OnActivated, OnRefused], Watch]


def open_engine(settings: PolicySettings, clock: Clock, ids: Ids) -> tuple[PolicyEngine, NewWatch]:
    """The engine, which the caller closes, and a function that creates its watch. Starts nothing."""
    if isinstance(settings.opa, RemoteOpa):
        return _remote(settings, settings.opa, clock, ids)
    opa = settings.opa
    engine = _supervised(settings, opa, clock, ids) if opa else _embedded(settings, clock, ids)

    def new_watch(on_activated: OnActivated, on_in_force: OnActivated, on_refused: OnRefused) -> Watch:
        return BundleWatch(
            engine,
            settings.bundle,
            clock,
            interval_seconds=POLL_SECONDS,
            on_activated=on_activated,
            on_in_force=on_in_force,
            on_refused=on_refused,
        )

    return engine, new_watch


def read(settings: PolicySettings, path: Path | None = None) -> Bundle:
    """The configured bundle or the one at ``path``, verified as by the daemon; raises ``PolicyRefused``. Blocks.

    Write permissions are checked only for the configured bundle: another one may be an author's working copy.
    """
    writers = settings.writers if path is None else None
    bundle = path or settings.bundle
    return bundles.read(bundle, settings.trust, lambda: dt.datetime.now(dt.UTC), writers=writers)


def draft(settings: PolicySettings, path: Path) -> Bundle:
    """An author's working copy, which never comes into force from here: it need not be signed, but a signature must be
    valid. Raises ``PolicyRefused``. Blocks."""
    return read(replace(settings, trust=replace(settings.trust, unsigned=Unsigned.ANYTHING)), path)


async def check(settings: PolicySettings, bundle: Bundle) -> Bundle:
    """The checks that ``bundle`` must pass before the configured engine may use it; raises ``PolicyRefused``.

    OPA checks it if a binary is configured. For a remote OPA without one the embedded engine does, which supports a
    subset of the language with OPA's results.
    """
    opa = settings.opa
    if opa is None or opa.command is None:
        tested = settings.require_tests and opa is None
        return await embedded.check(bundle, _embedded_limits(settings), server=opa is not None, require_tests=tested)
    from kblockd.policy.opa.check import check as check_by_opa

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        return await check_by_opa(bundle, opa.command, Path(folder), _opa_limits(settings))


async def explain(
    settings: PolicySettings,
    bundle: Bundle,
    entrypoint: str,
    document: Mapping[str, Any],
    clock: Clock,
    ids: Ids,
    *,
    quoting: bool = False,
) -> Explanation:
    """The configured engine's decision by ``bundle`` for an input, and which rules fired; raises ``PolicyRefused``.

    Runs in temporary processes, so that the deciding engine and its deadline are unaffected. ``quoting``: errors may
    quote the input, because its author reads them.
    """
    opa = settings.opa
    if opa is None:
        embedded_asker = Asker(embedded.ENGINE, clock, ids)
        observer = EmbeddedObserver(_embedded_limits(settings), quoting)
        return await explaining.explain(bundle, entrypoint, document, observer, embedded_asker, settings.floors)
    if opa.command is None:
        message = "a remote OPA does not tell which rules fired"
        raise refusal("policy.opa", message, "name an OPA binary as policy.opa.command")
    from kblockd.policy.opa.explain import OpaObserver

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        by_opa = OpaObserver(opa.command, Path(folder), _opa_limits(settings), quoting)
        asker = Asker("opa", clock, ids)
        return await explaining.explain(bundle, entrypoint, document, by_opa, asker, settings.floors)


async def run_tests(settings: PolicySettings, bundle: Bundle, only: str) -> Trials:
    """Runs the tests of ``bundle`` whose name matches ``only`` (RE2); raises ``PolicyRefused``."""
    opa = settings.opa
    if opa is None or opa.command is None:
        return await EmbeddedTester(_embedded_limits(settings)).test(bundle, only)
    from kblockd.policy.opa.trials import OpaTester

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        return await OpaTester(opa.command, Path(folder), _opa_limits(settings)).test(bundle, only)


async def review(settings: PolicySettings, bundle: Bundle) -> tuple[Finding, ...]:
    """Findings about ``bundle`` for its authors, beyond ``check``."""
    return await reviewer.review(bundle, _embedded_limits(settings), server=settings.opa is not None)


def note(settings: PolicySettings, bundle: Bundle, at: str) -> Path | None:
    """For a remote OPA, notes that ``bundle`` passed at ``at`` (RFC 3339) and returns the file; raises ``OSError``."""
    if not isinstance(settings.opa, RemoteOpa):
        return None
    from kblockd.policy.opa import revisions

    revisions.note(settings.opa.revisions, bundle, at)
    return settings.opa.revisions


def _embedded_limits(settings: PolicySettings) -> EmbeddedLimits:
    return EmbeddedLimits(
        evaluate_seconds=settings.evaluate_timeout_seconds, workers=settings.workers, memory_mib=settings.memory_mib
    )


def _opa_limits(settings: PolicySettings) -> OpaLimits:
    from kblockd.policy.opa.process import OpaLimits

    return OpaLimits(settings.evaluate_timeout_seconds, memory_mib=settings.memory_mib)


def _reader(settings: PolicySettings, clock: Clock) -> Reader:
    parse = KillableReader(settings.memory_mib)
    return lambda path: bundles.read(path, settings.trust, clock.now, parse, settings.writers)


def _embedded(settings: PolicySettings, clock: Clock, ids: Ids) -> LoadingEngine:
    limits, reader = _embedded_limits(settings), _reader(settings, clock)
    return embedded.EmbeddedEngine(limits, clock, ids, reader, require_tests=settings.require_tests)


def _supervised(settings: PolicySettings, opa: SupervisedOpa, clock: Clock, ids: Ids) -> LoadingEngine:
    from kblockd.policy.opa.supervised import SupervisedEngine

    limits = _opa_limits(settings)
    return SupervisedEngine(opa.command, opa.run_dir, limits, clock, ids, _reader(settings, clock))


def _remote(settings: PolicySettings, opa: RemoteOpa, clock: Clock, ids: Ids) -> tuple[PolicyEngine, NewWatch]:
    from kblockd.policy.opa.remote import RemoteEngine
    from kblockd.policy.opa.watch import RemoteWatch

    engine = RemoteEngine(opa.access, settings.evaluate_timeout_seconds, clock, ids)

    def new_watch(on_activated: OnActivated, on_in_force: OnActivated, on_refused: OnRefused) -> Watch:
        return RemoteWatch(
            engine,
            opa.revisions,
            clock,
            interval_seconds=POLL_SECONDS,
            on_activated=on_activated,
            on_in_force=on_in_force,
            on_refused=on_refused,
            writers=settings.writers,
        )

    return engine, new_watch
