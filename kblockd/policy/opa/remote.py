"""An OPA that somebody else runs, as an engine: it decides only while it serves the revision that is in force.

What comes into force is for ``RemoteWatch`` to say. An answer of another revision is a denial, never a swap: the
activation must be on record before it decides anything, and stage 9 compares the revision with that record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason
from kblockd.domain.ids import Ids
from kblockd.policy.deciding import Decision, PolicyFailure, PolicyStatus, entrypoints
from kblockd.policy.deciding.evaluator import CLOSED, Ask, Evaluator, nothing_in_force
from kblockd.policy.deciding.samples import SAMPLES
from kblockd.policy.opa.access import RemoteAccess
from kblockd.policy.opa.client import Opa

ENGINE: Final = "opa"


class RemoteEngine:
    """A ``PolicyEngine`` that loads nothing. Until a revision is in force every question raises POLICY_UNDEFINED."""

    def __init__(self, access: RemoteAccess, evaluate_seconds: float, clock: Clock, ids: Ids) -> None:
        self._access = access
        self._seconds = evaluate_seconds
        self._evaluator = Evaluator(ENGINE, clock, ids)
        self._opa: Opa | None = None
        self._seen: tuple[tuple[int, ...], ...] = ()
        self._revision = ""
        self._fault = "OPA was not asked yet"
        self._closed = False

    def status(self) -> PolicyStatus:
        """``ready`` while a revision is in force and OPA served it at the last poll."""
        ready = bool(self._revision) and not self._fault and not self._closed
        return PolicyStatus(ENGINE, self._revision, ready, self._fault)

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """See ``PolicyEngine``; an answer of another revision than the one in force is POLICY_DOWN."""

        def in_force() -> tuple[str, Ask]:
            revision, opa = self._revision, self._opa
            if self._closed or not revision or opa is None:
                raise nothing_in_force(entrypoint, closed=self._closed)

            async def ask(entrypoint: str, document: bytes) -> Mapping[str, Any]:
                return await opa.ask(entrypoint, document, revision, self._seconds)

            return revision, ask

        return await self._evaluator.decide(in_force, entrypoint, document)

    async def close(self) -> None:
        """Ends the connections. Idempotent."""
        self._closed = True
        if self._opa:
            await self._opa.close()

    async def connect(self) -> None:
        """With the token and certificates as the files hold them now; raises ``AccessRefused`` and keeps the old."""
        seen = await asyncio.to_thread(self._access.seen)
        if self._opa and seen == self._seen:
            return
        fresh = Opa(await asyncio.to_thread(self._access.endpoint))
        old, self._opa, self._seen = self._opa, fresh, seen
        if old:
            await old.retire()

    async def served(self, seconds: float) -> str:
        """The revision that OPA serves now; raises ``PolicyFailure``."""
        if self._opa is None or self._closed:
            raise PolicyFailure(Reason.POLICY_DOWN, CLOSED)
        return await self._opa.revision(seconds)

    async def probe(self, revision: str, seconds: float) -> None:
        """Asks every entry point of that revision with the samples; raises ``PolicyFailure`` for the first misfit."""
        if self._opa is None or self._closed:
            raise PolicyFailure(Reason.POLICY_DOWN, CLOSED)
        for entrypoint in entrypoints.ENTRYPOINTS:
            for sample in SAMPLES:
                reply = await self._opa.ask(entrypoint, sample, revision, seconds)
                if "value" not in reply:
                    raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is undefined for the sample input")
                entrypoints.check(entrypoint, reply["value"])

    def put_in_force(self, revision: str) -> None:
        """Applies from the next query on."""
        self._revision, self._fault = revision, ""

    def withdraw(self, fault: str) -> None:
        """Nothing is in force afterwards."""
        self._revision, self._fault = "", fault

    def set_last_error(self, fault: str) -> None:
        """Sets the result of the last poll; "" if OPA serves the revision in force."""
        self._fault = fault
