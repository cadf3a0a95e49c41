"""Approvals on record: requested, decided, revoked. Their use and their end are the execution's."""

from __future__ import annotations

from typing import ClassVar

from msgspec import structs

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import check, counted, derived, existing, moved, taken, touched
from kblockd.domain.ledger.record import Body, Record
from kblockd.domain.ledger.rows import ApprovalRow, Changes, Decided, Read
from kblockd.domain.ledger.values import Requested
from kblockd.domain.states import Event

_LISTS = ("listed_execution", "listed_approval")


class ApprovalRequested(Requested, Body, frozen=True, kw_only=True):
    """Approvers are asked; in the commit of stage 3."""

    TYPE: ClassVar = "approval.requested"
    WRITES: ClassVar = ("execution", "approval", "pending", *_LISTS)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The approval, pending."""
        execution = moved(read, index, record, Event.APPROVAL_REQUESTED, approval_id=self.approval_id)
        approval = derived(
            ApprovalRow,
            self,
            execution=record.execution,
            tenant=record.tenant,
            state="pending",
            decisions=(),
            records=execution.records,
        )
        return [
            (rows.execution(record.execution), execution),
            taken(read, rows.approval(self.approval_id), approval),
            counted(read, rows.pending(record.tenant, execution.agent), 1),
        ]


class ApprovalDecided(Body, frozen=True):
    """One approver's decision; its DSSE envelope is the record's aux."""

    TYPE: ClassVar = "approval.decided"
    WRITES: ClassVar = ("execution", "approval", "pending", *_LISTS)

    approval_id: str
    verdict: str
    approver: str
    owner: str
    dsse_sha256: str
    statement_sha256: str
    presented_sha256: str
    reason_sha256: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The approval is complete once ``count`` distinct owners stand behind it."""
        key = rows.approval(self.approval_id)
        approval = existing(read, key)
        check(approval.state == "pending", record, f"the approval is {approval.state}")
        decisions = (*approval.decisions, derived(Decided, self, index=index))
        owners = {decision.owner for decision in decisions if decision.verdict == "approve"}
        denied = self.verdict == "deny"
        complete = not denied and len(owners) >= approval.count
        state = "denied" if denied else "approved" if complete else "pending"
        execution = moved(read, index, record, Event.APPROVED) if complete else touched(read, index, record)
        changed = structs.replace(approval, decisions=decisions, state=state, records=execution.records)
        changes: Changes = [(rows.execution(record.execution), execution), (key, changed)]
        if complete:
            changes.append(counted(read, rows.pending(record.tenant, execution.agent), -1))
        return changes


class ApprovalRevoked(Body, frozen=True):
    """Taken back before its use; the rejection of the action is the next record of the same commit."""

    TYPE: ClassVar = "approval.revoked"
    WRITES: ClassVar = ("execution", "approval", "listed_approval")

    approval_id: str
    principal: str
    owner: str
    capacity: str
    reason_sha256: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The approval, revoked."""
        key = rows.approval(self.approval_id)
        approval = existing(read, key)
        check(approval.state in ("pending", "approved"), record, f"the approval is {approval.state}")
        execution = touched(read, index, record)
        changed = structs.replace(approval, state="revoked", records=execution.records)
        return [(rows.execution(record.execution), execution), (key, changed)]
