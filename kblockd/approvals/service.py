"""Get, list and decide: who may approve what, and the signed decision.

The approver is always the authenticated principal (APR-08); one whose owner is the requester's is refused here, and
again at stages 5 and 9. Expiry is checked by the decision itself, not only by a sweep (APR-04, APR-12).
"""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kblockd.domain import rows
from kblockd.domain.canonical import canonical, reparse, sha256_hex
from kblockd.domain.clock import Clock, parse_rfc3339, rfc3339
from kblockd.domain.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Reason
from kblockd.domain.ids import Ids
from kblockd.domain.outcome import ApprovalView
from kblockd.domain.principal import Principal, View
from kblockd.domain.records import Record, RecordType
from kblockd.evidence.keyring import KeyRing
from kblockd.evidence.receipts import Signed, sign_approval
from kblockd.evidence.statements import Approval, SignedBy
from kblockd.store.protocol import Append, AtVersion, Condition, Conflict, Payload, Row, Store

MAX_REASON = 2000
MAX_PAGE = 200


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approval requests of one daemon. ``principals`` are as configured now; ``keys`` sign for them."""

    store: Store
    principals: Mapping[str, Principal]
    keys: KeyRing
    clock: Clock
    ids: Ids
    on_decided: Callable[[str], None] = lambda execution_id: None

    async def get(self, view: View, approval_id: str) -> ApprovalView:
        """Raises ``NotFound`` for one that does not exist or that the caller may not see."""
        _, row = await self._row(view, approval_id)
        return await self._shown(row)

    async def list(
        self, view: View, *, page_size: int, page_token: str, states: Sequence[str]
    ) -> tuple[list[ApprovalView], str]:
        """Newest first; ``page_token`` is the last approval id of the page before."""
        size = min(page_size or 50, MAX_PAGE)
        found: list[ApprovalView] = []
        after = rows.approval(page_token) if page_token else None
        while True:
            scanned = await self.store.scan(("approval",), after=after, limit=256, reverse=True)
            for key, _, row in scanned:
                after = key
                if not view.shows(row["tenant"], row["agent"]):
                    continue
                if states and self._state(row) not in states:
                    continue
                found.append(await self._shown(row))
                if len(found) == size:
                    return found, str(key[1])
            if len(scanned) < 256:
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

        Raises ``InvalidArgument``, ``NotFound``, ``PermissionDenied``, ``FailedPrecondition``, ``Aborted``.
        """
        if verdict not in ("approve", "deny"):
            raise InvalidArgument.field("verdict", "must be VERDICT_APPROVE or VERDICT_DENY")
        if len(reason) > MAX_REASON:
            raise InvalidArgument.field("reason", f"is longer than {MAX_REASON} characters")
        version, row = await self._row(view, approval_id)
        self._check_shown(row, action_sha256, presented_sha256)
        self._check_state(row)
        self._check_approver(principal, row)
        execution = await self.store.get(rows.execution(row["execution"]))
        if execution is None:
            raise NotFound(Reason.NOT_FOUND, f"the execution of {approval_id} does not exist")
        signed = self._signed(principal, row, verdict, execution[1])
        records, payloads = self._records(principal, row, verdict, reason, signed)
        conditions: list[Condition] = [
            AtVersion(rows.approval(approval_id), version),
            AtVersion(rows.execution(row["execution"]), execution[0]),
            *await self._principal_condition(principal),
        ]
        try:
            ticket = await self.store.commit(conditions, records, payloads, label="04.await_approval")
        except Conflict:
            raise Aborted(
                Reason.CONFLICT,
                "somebody else decided at the same moment. Nothing was recorded.",
                retryable=True,
                next_step="look at the approval again",
            ) from None
        await ticket.durable()
        self.on_decided(row["execution"])
        return await self.get(view, approval_id), signed.envelope

    async def _principal_condition(self, principal: Principal) -> builtins.list[Condition]:
        """A principal that is being disabled at this moment does not decide."""
        found = await self.store.get(rows.principal(principal.id))
        return [AtVersion(rows.principal(principal.id), found[0])] if found else []

    def _records(
        self, principal: Principal, row: Row, verdict: str, reason: str, signed: Signed
    ) -> tuple[builtins.list[Append], builtins.list[Payload]]:
        at = rfc3339(self.clock.now())
        said = canonical({"salt": self.ids.salt(), "kind": "reason", "value": reason})
        said_sha256 = sha256_hex(said)
        body = {
            "approval_id": row["approval_id"],
            "verdict": verdict,
            "approver": principal.id,
            "owner": principal.owner,
            "dsse_sha256": sha256_hex(signed.envelope),
            "statement_sha256": signed.sha256,
            "presented_sha256": row["presented_sha256"],
            "reason_sha256": said_sha256,
        }
        execution = row["execution"]
        records = [
            Append(
                Record(RecordType.APPROVAL_DECIDED, at, row["tenant"], execution, 0, 4, body).leaf(), signed.envelope
            )
        ]
        if verdict == "deny":
            rejected = {"code": "APPROVAL_DENIED", "policy_revision": "", "reasons": []}
            records.append(Append(Record(RecordType.REJECTED, at, row["tenant"], execution, 0, 4, rejected).leaf()))
        return records, [Payload(rows.payload(execution, said_sha256), said)]

    def _signed(self, principal: Principal, row: Row, verdict: str, execution: Row) -> Signed:
        statement = Approval(
            action=row["action_sha256"],
            approval_id=row["approval_id"],
            approver=principal.id,
            owner=principal.owner,
            decision=verdict,
            presented_sha256=row["presented_sha256"],
            max_uses=1,
            not_before=parse_rfc3339(row["not_before"]),
            not_after=parse_rfc3339(row["not_after"]),
            policy_digest=execution["policy_revision"],
            signed_by=SignedBy.DAEMON,
        )
        return sign_approval(statement, self.keys)

    def _check_shown(self, row: Row, action_sha256: str, presented_sha256: str) -> None:
        for field, given, wanted in (
            ("action_sha256", action_sha256, row["action_sha256"]),
            ("presented_sha256", presented_sha256, row["presented_sha256"]),
        ):
            if not given:
                raise InvalidArgument.field(field, "must be the digest of what you were shown")
            if given != wanted:
                raise FailedPrecondition(
                    Reason.SHOWN_DIFFERS,
                    f"{field} is not that of this request: you decided on something else than what is asked. "
                    "Nothing was recorded.",
                    next_step="read the approval again and decide on what it shows",
                )

    def _check_state(self, row: Row) -> None:
        state = self._state(row)
        if state != "pending":
            raise FailedPrecondition(
                Reason.APPROVAL_NOT_VALID,
                f"the approval is {state}, so it can no longer be decided. Nothing was recorded.",
                next_step="the agent must ask anew" if state == "expired" else "nothing is left to do",
                execution_id=row["execution"],
            )

    def _check_approver(self, principal: Principal, row: Row) -> None:
        current = self.principals.get(principal.id)
        if current is None or current != principal:
            raise PermissionDenied(Reason.PERMISSION_DENIED, f"{principal.id} is not configured as it was")
        requester = self.principals.get(row["requester"])
        if principal.owner in (row["owner"], requester.owner if requester else ""):
            raise PermissionDenied(
                Reason.PERMISSION_DENIED,
                f"{principal.id} has the same owner as the requester: nobody approves their own action",
                next_step="ask somebody else to decide",
            )
        if row["roles"] and not set(row["roles"]) & set(principal.roles):
            raise PermissionDenied(
                Reason.PERMISSION_DENIED,
                f"{principal.id} has none of the roles that policy asks for: {', '.join(row['roles'])}",
                next_step="ask somebody who has one of them",
            )
        if any(decision["owner"] == principal.owner for decision in row["decisions"]):
            raise FailedPrecondition(
                Reason.APPROVAL_NOT_VALID,
                "this owner has decided already; a second approval must come from somebody else",
                next_step="ask somebody else to decide",
            )

    def _state(self, row: Row) -> str:
        if row["state"] in ("pending", "approved") and self.clock.now() >= parse_rfc3339(row["not_after"]):
            return "expired"
        return str(row["state"])

    async def _row(self, view: View, approval_id: str) -> tuple[int, Row]:
        found = await self.store.get(rows.approval(approval_id)) if approval_id else None
        if found is None or not view.shows(found[1]["tenant"], found[1]["agent"]):
            raise NotFound(Reason.NOT_FOUND, f"there is no approval {approval_id[:80]!r} that you may see")
        return found

    async def _shown(self, row: Row) -> ApprovalView:
        data = await self.store.payload(rows.payload(row["execution"], row["presentation_payload"]))
        shown: dict[str, Any] = reparse(data)["value"] if data else {}
        return ApprovalView(
            approval_id=row["approval_id"],
            execution_id=row["execution"],
            action_sha256=row["action_sha256"],
            summary=shown.get("summary", "(deleted)"),
            arguments_json=canonical(shown["arguments"]) if shown else b"",
            requester=row["requester"],
            not_before=_time(row["not_before"]),
            not_after=_time(row["not_after"]),
            agent=row["agent"],
            operation=shown.get("operation", ""),
            environment=shown.get("environment", ""),
            risk_tier=shown.get("risk_tier", ""),
            upstream=shown.get("upstream", ""),
            tool=shown.get("tool", ""),
            intent_json=canonical(shown["intent"]) if shown else b"",
            warnings=tuple(shown.get("warnings", ())),
            presented_sha256=row["presented_sha256"],
            state=self._state(row),
            tenant=row["tenant"],
            count=row["count"],
        )


def _time(text: str) -> dt.datetime:
    return parse_rfc3339(text)
