"""``PolicyService``'s queries to the policy in force: non-binding answers, and the policy's origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kblockd import decision_point
from kblockd.admission import Slots
from kblockd.config import PolicySettings
from kblockd.domain.clock import Clock
from kblockd.domain.errors import FailedPrecondition, Reason, ResourceExhausted
from kblockd.domain.ids import Ids
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import PolicyRow
from kblockd.policy.asking import nothing_in_force
from kblockd.policy.engine import Decision, PolicyEngine, PolicyStatus
from kblockd.policy.explain import Explanation
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine
from kblockd.store.protocol import Store

EVALUATIONS: Final = 4
"""Concurrent evaluations: they run on the deciding engine and must not crowd out decisions."""
EXPLANATIONS: Final = 2
"""Concurrent explanations: each runs in a process of its own."""
PRINCIPAL_SHARE: Final = 0.5
"""The fraction of either that one principal may use."""


@dataclass(frozen=True, slots=True)
class Inquiries:
    """Queries over the deciding engine; explanations use processes of their own."""

    engine: PolicyEngine
    store: Store
    settings: PolicySettings
    clock: Clock
    ids: Ids
    _evaluating: Slots = field(default_factory=lambda: Slots(EVALUATIONS, int(EVALUATIONS * PRINCIPAL_SHARE)))
    _explaining: Slots = field(default_factory=lambda: Slots(EXPLANATIONS, int(EXPLANATIONS * PRINCIPAL_SHARE)))

    def status(self) -> PolicyStatus:
        """Never blocks."""
        return self.engine.status()

    async def activation(self) -> tuple[int, PolicyRow] | None:
        """The index and row of the newest recorded activation."""
        return await self.store.get(rows.policy())

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """Raises ``PolicyFailure``, or ``ResourceExhausted`` at too many concurrent queries."""
        with _slot(self._evaluating):
            return await self.engine.evaluate(entrypoint, document)

    async def explain(self, entrypoint: str, document: Mapping[str, Any]) -> Explanation:
        """By the bundle in force. Raises ``PolicyFailure`` without one, ``FailedPrecondition`` if the engine cannot
        explain, ``ResourceExhausted`` at too many concurrent queries."""
        if isinstance(self.engine, LoadingEngine) and self.engine.bundle is None:
            raise nothing_in_force(entrypoint, closed=False)
        if not isinstance(self.engine, LoadingEngine) or self.engine.bundle is None:
            raise FailedPrecondition(
                Reason.WRONG_STATE,
                "a remote OPA does not tell which rules fired",
                next_step="run `kblockd policy eval` on the bundle, or ask Evaluate",
            )
        with _slot(self._explaining):
            try:
                return await decision_point.explain(
                    self.settings, self.engine.bundle, entrypoint, document, self.clock, self.ids
                )
            except PolicyRefused as refused:
                raise FailedPrecondition(
                    Reason.WRONG_STATE, f"the policy cannot be explained: {refused}", next_step="see the daemon's log"
                ) from refused


@contextmanager
def _slot(slots: Slots) -> Iterator[None]:
    """Holds a slot without queueing; raises ``ResourceExhausted``."""
    if not slots.try_acquire():
        raise ResourceExhausted(
            Reason.OVERLOAD,
            "too many concurrent policy queries. Nothing was done for this one.",
            retryable=True,
            next_step="ask again",
            retry_after_seconds=1.0,
        )
    try:
        yield
    finally:
        slots.release()
