"""The ends of an execution that was never consumed: rejected, expired, cancelled."""

from __future__ import annotations

from typing import ClassVar

from msgspec import structs

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import counted, existing, moved, released
from kblockd.domain.ledger.record import Record, Timed
from kblockd.domain.ledger.rows import Changes, ExecutionRow, Read
from kblockd.domain.states import Event, State


class _Closed(Timed, frozen=True, kw_only=True):
    WRITES: ClassVar = (
        "execution",
        "open",
        "open_call",
        "approval",
        "pending",
        "listed_execution",
        "listed_approval",
    )
    EVENT: ClassVar[Event]
    APPROVAL: ClassVar = "void"
    """What becomes of an approval that nobody denied or revoked."""

    code: str
    policy_revision: str = ""
    reasons: tuple[str, ...] = ()

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The execution is closed, and its approval with it."""
        before = existing(read, rows.execution(record.execution))
        execution = moved(read, index, record, self.EVENT, code=self.code, closed_at=record.at)
        changes: Changes = [(rows.execution(record.execution), execution), *released(execution)]
        return changes + (self._approval(read, before, execution) if execution.approval_id else [])

    def _approval(self, read: Read, before: ExecutionRow, execution: ExecutionRow) -> Changes:
        key = rows.approval(execution.approval_id)
        approval = existing(read, key)
        state = approval.state if approval.state in ("denied", "revoked") else self.APPROVAL
        changes: Changes = [(key, structs.replace(approval, state=state, records=execution.records))]
        if before.state is State.PENDING_APPROVAL:
            changes.append(counted(read, rows.pending(execution.tenant, execution.agent), -1))
        return changes


class Rejected(_Closed, frozen=True):
    """By policy, by an approver, or because its approval was revoked."""

    TYPE: ClassVar = "execution.rejected"
    EVENT: ClassVar = Event.REJECTED


class Expired(_Closed, frozen=True):
    """It waited longer than it may."""

    TYPE: ClassVar = "execution.expired"
    EVENT: ClassVar = Event.EXPIRED
    APPROVAL: ClassVar = "expired"


class Cancelled(_Closed, frozen=True):
    """What was agreed to no longer holds."""

    TYPE: ClassVar = "execution.cancelled"
    EVENT: ClassVar = Event.CANCELLED
