"""The daemon's interfaces to the services: the signatures of ``Executions``, ``Approvals`` and ``Inquiries``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from kblockd.domain.envelope import Envelope
from kblockd.domain.errors import KblockError
from kblockd.domain.ledger.rows import PolicyRow
from kblockd.domain.outcome import ApprovalView, CallOutcome, Finding, Revocation, StageEvent
from kblockd.domain.principal import Principal, View
from kblockd.policy.engine import Decision, PolicyStatus
from kblockd.policy.explain import Explanation
from kblockd.telemetry.recorder import Trace

Outcomes = list[CallOutcome]
Events = list[StageEvent]
Views = list[ApprovalView]


class ExecutionsApi(Protocol):
    """``kblockd.execution.service.Executions``; every method raises ``KblockError``."""

    async def execute(self, principal: Principal, envelope: Envelope, wait: float | None, trace: Trace) -> CallOutcome:
        """Cancelling it only stops the waiting."""
        ...

    async def get(
        self, view: View, principal: Principal, *, execution_id: str = "", caller_key: str = ""
    ) -> tuple[CallOutcome, Events]:
        """By either the id or the caller key."""
        ...

    async def shows(self, view: View, execution_id: str) -> bool:
        """Whether it may be seen; reads nothing else of it."""
        ...

    async def list(self, view: View, *, page_size: int, page_token: str, states: Sequence[str]) -> tuple[Outcomes, str]:
        """A page, and the token of the next."""
        ...

    def watch(self, view: View, execution_id: str, after_index: int) -> AsyncIterator[StageEvent]:
        """Until the execution is closed."""
        ...

    async def resolve(
        self, principal: Principal, view: View, execution_id: str, finding: Finding, reason: str
    ) -> CallOutcome:
        """Closes a held execution."""
        ...

    async def authorized(
        self, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
    ) -> bool:
        """Records authz.decided; False if it could not."""
        ...

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        """Records call.refused."""
        ...


class ApprovalsApi(Protocol):
    """``kblockd.approvals.service.Approvals``; every method raises ``KblockError``."""

    async def get(self, view: View, approval_id: str) -> ApprovalView:
        """Everything that an approver is shown."""
        ...

    async def list(self, view: View, *, page_size: int, page_token: str, states: Sequence[str]) -> tuple[Views, str]:
        """A page, and the token of the next."""
        ...

    async def decide(
        self,
        principal: Principal,
        view: View,
        approval_id: str,
        *,
        action_sha256: str,
        presented_sha256: str,
        verdict: str,
        reason: str,
    ) -> tuple[ApprovalView, bytes]:
        """The approval after the decision, and the signed decision."""
        ...

    async def revoke(self, principal: Principal, view: View, approval_id: str, *, reason: str) -> Revocation:
        """Revokes an approval before its use."""
        ...


class PoliciesApi(Protocol):
    """``kblockd.inquiries.Inquiries``; raises ``PolicyFailure`` if the policy gives no answer."""

    def status(self) -> PolicyStatus:
        """Never blocks."""
        ...

    async def activation(self) -> tuple[int, PolicyRow] | None:
        """Index and row of the newest recorded activation."""
        ...

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """A non-binding answer."""
        ...

    async def explain(self, entrypoint: str, document: Mapping[str, Any]) -> Explanation:
        """With the rules that fired."""
        ...
