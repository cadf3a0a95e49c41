"""Get, list, decide and revoke: the signed decision, and how it is taken back.

The approver is always the authenticated principal (APR-08); one whose owner is the requester's is refused here, and
again at stages 5 and 9. Expiry is checked by the decision itself, not only by a sweep (APR-04, APR-12). A decision and
a revocation are each one commit that the consumption cannot pass unseen, in either order (``asked``, R108).
"""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kblockd.admission.offload import offload
from kblockd.approvals import checks
from kblockd.approvals.asked import Asked, asked, state_at, visible
from kblockd.approvals.checks import Capacity
from kblockd.domain.canonical import canonical, reparse, sha256_hex
from kblockd.domain.clock import Clock, parse_rfc3339, rfc3339
from kblockd.domain.errors import Aborted, InvalidArgument, Reason
from kblockd.domain.ids import Ids
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.approvals import ApprovalDecided, ApprovalRevoked
from kblockd.domain.ledger.rows import ApprovalRow
from kblockd.domain.outcome import ApprovalView, Revocation
from kblockd.domain.principal import Principal, View
from kblockd.evidence.keyring import KeyRing
from kblockd.evidence.receipts import Signed, sign_approval
from kblockd.evidence.statements import Approval, SignedBy
from kblockd.ledger.listing import newest
from kblockd.store.protocol import Append, Conflict, Payload, Store

MAX_PAGE = 200
LIVE: Final = frozenset({"pending", "approved"})
STATES: Final = LIVE | {"denied", "expired", "revoked", "used", "void"}
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approval requests of one daemon. ``principals`` are as configured now; ``keys`` sign for them."""

    store: Store
    principals: Mapping[str, Principal]
    keys: KeyRing
    clock: Clock
    ids: Ids
    on_decided: Callable[[str], None] = lambda execution_id: None
    check_space: Callable[[], None] = lambda: None

    async def get(self, view: View, approval_id: str) -> ApprovalView:
        """Raises ``NotFound`` for one that does not exist or that the caller may not see."""
        _, row = await visible(self.store, view, approval_id)
        return await self._shown(row)

    async def list(
        self, view: View, *, page_size: int, page_token: str, states: Sequence[str]
    ) -> tuple[list[ApprovalView], str]:
        """Newest first, without arguments and intent, a megabyte of each; ``page_token`` is the last approval id of the
        page before."""
        size = min(page_size or 50, MAX_PAGE)
        if page_token and await self.store.get(rows.approval(page_token)) is None:
            raise InvalidArgument.field("page_token", "was never a next_page_token of this list")
        looked = {*states, *LIVE} if "expired" in states else set(states)  # what has lapsed is still in its list
        found: list[ApprovalView] = []
        async for approval_id in newest(self.store, "approval", view, looked, STATES, page_token):
            stored = await self.store.get(rows.approval(approval_id))
            if stored is None or not view.shows(stored[1].tenant, stored[1].agent):
                continue
            if not states or state_at(stored[1], self.clock.now()) in states:
                found.append(await self._shown(stored[1], brief=True))
                if len(found) == size:
                    return found, approval_id
        return found, ""

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
        """Signs and records one approver's decision; durable when it returns.

        Raises ``InvalidArgument``, ``NotFound``, ``PermissionDenied``, ``FailedPrecondition``, ``Aborted``, and what
        ``check_space`` raises.
        """
        if verdict not in ("approve", "deny"):
            raise InvalidArgument.field("verdict", "must be VERDICT_APPROVE or VERDICT_DENY")
        if verdict == "approve":
            self.check_space()  # a denial and a revocation end something
        checks.check_reason(reason, required=False)
        found = await asked(self.store, principal, view, approval_id)
        checks.check_shown(found.row, action_sha256, presented_sha256)
        now = self.clock.now()  # one reading for the check and the record: no decision is dated behind its term
        checks.check_state(found, now, "decided", "pending")
        checks.check_approver(self.principals, principal, found.row)
        signed = self._signed(principal, found, verdict)
        try:
            await self._record_decision(principal, found, verdict, reason, signed, rfc3339(now))
        except Conflict:
            raise _raced() from None
        return await self.get(view, approval_id), signed.envelope

    async def revoke(self, principal: Principal, view: View, approval_id: str, *, reason: str) -> Revocation:
        """Takes back what is pending or approved, before its consumption, and so rejects the action; durable when it
        returns. No later consumption passes, and one that came first refuses the revocation: it says so.

        A race is met again by itself, unlike that of a decision: what stops an action stays right whatever else has
        been decided meanwhile. Raises ``InvalidArgument``, ``NotFound``, ``PermissionDenied``, ``FailedPrecondition``,
        ``Aborted``.
        """
        checks.check_reason(reason, required=True)
        for _ in range(_TRIES):
            found = await asked(self.store, principal, view, approval_id)
            capacity = checks.check_revoker(self.principals, principal, found.row)
            now = self.clock.now()
            checks.check_state(found, now, "revoked", "pending", "approved")
            with suppress(Conflict):
                index = await self._record_revocation(principal, found, capacity, reason, rfc3339(now))
                return Revocation(approval_id, found.row.execution, index)
        raise _raced()

    async def _record_decision(
        self, principal: Principal, found: Asked, verdict: str, reason: str, signed: Signed, at: str
    ) -> None:
        said_sha256, said = found.said(self.ids, reason)
        body = ApprovalDecided(
            approval_id=found.row.approval_id,
            verdict=verdict,
            approver=principal.id,
            owner=principal.owner,
            dsse_sha256=sha256_hex(signed.envelope),
            statement_sha256=signed.sha256,
            presented_sha256=found.row.presented_sha256,
            reason_sha256=said_sha256,
        )
        records = [found.append(body, at, signed.envelope)]
        if verdict == "deny":
            records.append(found.rejected(at, "APPROVAL_DENIED"))
        await self._commit(found, records, said)

    async def _record_revocation(
        self, principal: Principal, found: Asked, capacity: Capacity, reason: str, at: str
    ) -> int:
        """The index of its record. It needs no signature of its own: nobody is asked to act on it elsewhere."""
        said_sha256, said = found.said(self.ids, reason)
        body = ApprovalRevoked(
            approval_id=found.row.approval_id,
            principal=principal.id,
            owner=principal.owner,
            capacity=str(capacity),
            reason_sha256=said_sha256,
        )
        records = [found.append(body, at), found.rejected(at, "APPROVAL_REVOKED")]
        return await self._commit(found, records, said)

    async def _commit(self, found: Asked, records: builtins.list[Append], said: Payload) -> int:
        """The index of the first record, durable; raises ``Conflict``. Who waits for the execution is told."""
        ticket = await found.commit(self.store, records, [said])
        await ticket.durable()
        self.on_decided(found.row.execution)
        return ticket.first_index

    def _signed(self, principal: Principal, found: Asked, verdict: str) -> Signed:
        row = found.row
        statement = Approval(
            action=row.action_sha256,
            approval_id=row.approval_id,
            approver=principal.id,
            owner=principal.owner,
            decision=verdict,
            presented_sha256=row.presented_sha256,
            max_uses=1,
            not_before=parse_rfc3339(row.not_before),
            not_after=parse_rfc3339(row.not_after),
            policy_digest=found.execution.policy_revision,
            signed_by=SignedBy.DAEMON,
        )
        return sign_approval(statement, self.keys)

    async def _shown(self, row: ApprovalRow, *, brief: bool = False) -> ApprovalView:
        data = await self.store.payload(rows.payload(row.execution, row.presentation_payload))
        shown, arguments, intent = await offload(len(data), _presented, data, brief) if data else ({}, b"", b"")
        return ApprovalView(
            approval_id=row.approval_id,
            execution_id=row.execution,
            action_sha256=row.action_sha256,
            summary=shown.get("summary", "(deleted)"),
            arguments_json=arguments,
            requester=row.requester,
            not_before=_time(row.not_before),
            not_after=_time(row.not_after),
            agent=row.agent,
            operation=shown.get("operation", ""),
            environment=shown.get("environment", ""),
            risk_tier=shown.get("risk_tier", ""),
            upstream=shown.get("upstream", ""),
            tool=shown.get("tool", ""),
            intent_json=intent,
            warnings=tuple(shown.get("warnings", ())),
            presented_sha256=row.presented_sha256,
            state=state_at(row, self.clock.now()),
            tenant=row.tenant,
            count=row.count,
            roles=row.roles,
            floor_roles=row.floor_roles,
            raised=shown.get("approvals", {}).get("raised", ""),
            target_type=shown.get("target", {}).get("type", ""),
            target_id=shown.get("target", {}).get("id", ""),
            target_version=shown.get("target_version", ""),
            target_version_note=shown.get("target_version_note", ""),
        )


def _presented(data: bytes, brief: bool) -> tuple[dict[str, Any], bytes, bytes]:
    """What was shown, and its arguments and intent as they are sent: as long as an agent likes, within bounds; a
    ``brief`` one has neither."""
    shown: dict[str, Any] = reparse(data)["value"]
    arguments, intent = shown.pop("arguments"), shown.pop("intent")
    return (shown, b"", b"") if brief else (shown, canonical(arguments), canonical(intent))


def _raced() -> Aborted:
    return Aborted(
        Reason.CONFLICT,
        "somebody else decided at the same moment. Nothing was recorded.",
        retryable=True,
        next_step="look at the approval again",
    )


def _time(text: str) -> dt.datetime:
    return parse_rfc3339(text)
