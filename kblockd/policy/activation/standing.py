"""``data_dir/policy.json``: what the daemon last did about its policy. Read by CLI commands while the daemon runs.

The ledger records activations; this file adds who requested them, the last refused attempt with its reason, and the
progress of requested attempts. It is rewritten as a whole after every attempt and proves nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from kblockd.domain.clock import Clock, rfc3339
from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.faults import BundleFault, BundleRefused
from kblockd.store.lock import holder_token

NAME: Final = "policy.json"
MAX_BYTES: Final = 1 << 20
MAX_FAULTS: Final = 100

By = Literal["start", "reload", "poll"]
"""The start of the daemon, SIGHUP (``kblockd policy reload``), or a change that the daemon saw by itself."""

Outcome = Literal["activated", "unchanged", "refused", "failed"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to activate a bundle; ``revision`` is "" if it could not be read."""

    by: By
    at: str
    outcome: Outcome
    revision: str
    message: str = ""
    faults: tuple[BundleFault, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyStanding:
    """``revision`` is in force since ``since`` (RFC 3339), "" for none. ``begun`` and ``ended`` count the attempts that
    were asked for in this life of the daemon; an attempt reads the bundle after it has begun.

    ``listens``: SIGHUP asks for an attempt; before, it would end the daemon. ``life`` is the lock's word for the daemon
    that wrote this: the next one may have the same pid.
    """

    pid: int
    engine: str
    revision: str = ""
    since: str = ""
    by: str = ""
    signer: str = ""
    begun: int = 0
    ended: int = 0
    listens: bool = False
    attempt: Attempt | None = None
    refused: Attempt | None = None
    life: str = ""

    def to_json(self) -> dict[str, Any]:
        """As it is written."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> PolicyStanding:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what no daemon wrote."""
        attempts = {name: _attempt(row[name]) for name in ("attempt", "refused")}
        return cls(**{**row, **attempts})


def _attempt(row: Mapping[str, Any] | None) -> Attempt | None:
    if row is None:
        return None
    return Attempt(**{**row, "faults": tuple(BundleFault.from_json(fault) for fault in row["faults"])})


def read(data_dir: Path) -> PolicyStanding | None:
    """None where no daemon has written one that can be read. Blocks."""
    try:
        with (data_dir / NAME).open("rb") as file:
            return PolicyStanding.from_json(json.loads(file.read(MAX_BYTES)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(slots=True)
class StandingFile:
    """Of one life of the daemon, made on its loop."""

    data_dir: Path
    engine: PolicyEngine
    clock: Clock
    _standing: PolicyStanding = field(init=False)
    _before: PolicyStanding | None = field(init=False)
    _asking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _writing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._before = read(self.data_dir)
        refused = self._before.refused if self._before else None
        token = holder_token(self.data_dir)
        self._standing = PolicyStanding(os.getpid(), self.engine.status().engine, refused=refused, life=token)

    async def reload(self, attempt: Callable[[], Awaitable[bool]], by: By) -> bool:
        """One attempt that was asked for; raises what it raises."""
        async with self._asking:
            await self._write(begun=self._standing.begun + 1)
            token = _SEEN.set(seen := _Seen(by))
            try:
                good = await attempt()
                if not seen.told:
                    await self._write(attempt=self._quiet(by, good=good))
                return good
            except BaseException as error:
                await self._write(attempt=Attempt(by, self._now(), "failed", "", type(error).__name__))
                raise
            finally:
                _SEEN.reset(token)
                await self._write(ended=self._standing.begun)

    async def activated(self, revision: str, since: str, signer: str) -> None:
        """To be awaited once the revision decides."""
        seen = _told()
        old = self._before
        by = old.by if old and (old.revision, old.since) == (revision, since) else seen.by
        attempt = Attempt(seen.by, self._now(), "activated", revision)
        await self._write(revision=revision, since=since, by=by, signer=signer, attempt=attempt)

    async def refused(self, refused: BundleRefused) -> None:
        """To be awaited when the refusal is on record. An engine that left its revision has nothing in force."""
        faults = refused.faults[:MAX_FAULTS]
        attempt = Attempt(_told().by, self._now(), "refused", refused.revision, str(faults[0]), faults)
        left = {} if self.engine.status().revision else {"revision": "", "since": "", "by": "", "signer": ""}
        await self._write(refused=attempt, attempt=attempt, **left)

    async def listening(self) -> None:
        """From now on SIGHUP asks for an attempt."""
        await self._write(listens=True)

    def _quiet(self, by: By, *, good: bool) -> Attempt:
        """Nothing was recorded: it is in force already, or what answers could not be asked."""
        status = self.engine.status()
        outcome: Outcome = "unchanged" if good else "failed"
        return Attempt(by, self._now(), outcome, status.revision, status.last_error)

    async def _write(self, **changed: Any) -> None:
        """A file that cannot be written must not keep a policy from its place."""
        async with self._writing:
            self._standing = replace(self._standing, **changed)
            text = json.dumps(self._standing.to_json())
            try:
                await asyncio.to_thread(_replace, self.data_dir / NAME, text)
            except OSError as error:
                _log.warning("%s cannot be written: %s", self.data_dir / NAME, error.strerror)

    def _now(self) -> str:
        return rfc3339(self.clock.now())


@dataclass(slots=True)
class _Seen:
    """Whether the attempt that this task makes was recorded."""

    by: By
    told: bool = False


_SEEN: ContextVar[_Seen | None] = ContextVar("policy attempt", default=None)


def _told() -> _Seen:
    """Of the attempt that this task makes; without one the watch looked by itself."""
    seen = _SEEN.get() or _Seen("poll")
    seen.told = True
    return seen


def _replace(path: Path, text: str) -> None:
    """Whole, so that a reader sees the old one or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as fresh:
            fresh.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
