"""The policy engine: from the settings to an engine, its checks, and a watch that keeps it up to date.

OPA modules are imported only where OPA is configured, because its HTTP client is slow to import.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kblockd.config import PolicySettings
from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy.activation.bundle_watch import BundleWatch
from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.bundles import bundle as bundles
from kblockd.policy.bundles.bundle import Bundle, Origin, Reader
from kblockd.policy.bundles.signatures import Unsigned
from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.embedded import engine as embedded
from kblockd.policy.embedded.document_reader import KillableReader
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused

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
OnRefused = Callable[[BundleRefused], Awaitable[None]]
NewWatch = Callable[[OnActivated, OnActivated, OnRefused], Watch]


def open_engine(settings: PolicySettings, clock: Clock, ids: Ids) -> tuple[PolicyEngine, NewWatch]:
    """The engine, which the caller closes, and a function that creates its watch. Starts nothing."""
    if isinstance(settings.opa, RemoteOpa):
        return _remote(settings, settings.opa, clock, ids)
    engine = open_loading(settings, clock, ids)

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


def open_loading(settings: PolicySettings, clock: Clock, ids: Ids) -> LoadingEngine:
    """The embedded engine or a supervised OPA, which the caller closes; not for a remote one."""
    if isinstance(settings.opa, SupervisedOpa):
        return _supervised(settings, settings.opa, clock, ids)
    return _embedded(settings, clock, ids)


@contextmanager
def own_settings(settings: PolicySettings) -> Iterator[PolicySettings]:
    """For an engine beside the deciding one: a remote OPA is replaced by its binary, or without one by the embedded
    engine. The folder for OPA's sockets lasts as long as the context."""
    command = settings.opa.command if settings.opa else None
    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        opa = SupervisedOpa(command, Path(folder)) if command else None
        yield replace(settings, opa=opa, require_tests=False)


def read(settings: PolicySettings, path: Path | None = None) -> Bundle:
    """The configured bundle or the one at ``path``, verified as by the daemon; raises ``BundleRefused``. Blocks.

    Write permissions are checked only for the configured bundle: another one may be an author's working copy.
    """
    writers = settings.writers if path is None else None
    bundle = path or settings.bundle
    return bundles.read(bundle, settings.trust, lambda: dt.datetime.now(dt.UTC), writers=writers)


def draft(settings: PolicySettings, path: Path) -> Bundle:
    """An author's working copy, which never comes into force from here: it need not be signed, but a signature must be
    valid. Raises ``BundleRefused``. Blocks."""
    return read(replace(settings, trust=replace(settings.trust, unsigned=Unsigned.ANYTHING)), path)


def draft_of_archive(settings: PolicySettings, archive: bytes, clock: Clock) -> Bundle:
    """As ``draft``, for a ``.tar.gz`` that somebody sent: its documents are read in a process. Blocks."""
    trust = replace(settings.trust, unsigned=Unsigned.ANYTHING)
    return bundles.from_archive(archive, trust, clock.now, KillableReader(settings.memory_mib))


async def check(settings: PolicySettings, bundle: Bundle) -> Bundle:
    """The checks that ``bundle`` must pass before the configured engine may use it; raises ``BundleRefused``.

    OPA checks it if a binary is configured. For a remote OPA without one the embedded engine does, which supports a
    subset of the language with OPA's results.
    """
    opa = settings.opa
    if opa is None or opa.command is None:
        tested = settings.require_tests and opa is None
        return await embedded.check(bundle, embedded_limits(settings), server=opa is not None, require_tests=tested)
    from kblockd.policy.opa.check import check as check_by_opa

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        return await check_by_opa(bundle, opa.command, Path(folder), opa_limits(settings))


def note(settings: PolicySettings, bundle: Bundle, at: str) -> Path | None:
    """For a remote OPA, notes that ``bundle`` passed at ``at`` (RFC 3339) and returns the file; raises ``OSError``."""
    if not isinstance(settings.opa, RemoteOpa):
        return None
    from kblockd.policy.opa import revisions

    revisions.note(settings.opa.revisions, bundle, at)
    return settings.opa.revisions


def embedded_limits(settings: PolicySettings) -> EmbeddedLimits:
    """The limits of a child process."""
    return EmbeddedLimits(
        evaluate_seconds=settings.evaluate_timeout_seconds, workers=settings.workers, memory_mib=settings.memory_mib
    )


def opa_limits(settings: PolicySettings) -> OpaLimits:
    """The limits of an OPA process."""
    from kblockd.policy.opa.process import OpaLimits

    return OpaLimits(settings.evaluate_timeout_seconds, memory_mib=settings.memory_mib)


def _reader(settings: PolicySettings, clock: Clock) -> Reader:
    parse = KillableReader(settings.memory_mib)
    return lambda path: bundles.read(path, settings.trust, clock.now, parse, settings.writers)


def _embedded(settings: PolicySettings, clock: Clock, ids: Ids) -> LoadingEngine:
    limits, reader = embedded_limits(settings), _reader(settings, clock)
    return embedded.EmbeddedEngine(limits, clock, ids, reader, require_tests=settings.require_tests)


def _supervised(settings: PolicySettings, opa: SupervisedOpa, clock: Clock, ids: Ids) -> LoadingEngine:
    from kblockd.policy.opa.supervised import SupervisedEngine

    limits = opa_limits(settings)
    return SupervisedEngine(opa.command, opa.run_dir, limits, clock, ids, _reader(settings, clock))


def _remote(settings: PolicySettings, opa: RemoteOpa, clock: Clock, ids: Ids) -> tuple[PolicyEngine, NewWatch]:
    from kblockd.policy.opa.remote import RemoteEngine
    from kblockd.policy.opa.remote_watch import RemoteWatch

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
