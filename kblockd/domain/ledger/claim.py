"""The consumption and the send marker (stages 9 and 10)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import structs

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import check, counted, existing, moved, only, running_key, taken, target_key
from kblockd.domain.ledger.record import Body, Record, Timed, WithDecision
from kblockd.domain.ledger.rows import Changes, ExecutionRow, LinkRow, Read
from kblockd.domain.ledger.values import Fence, Number
from kblockd.domain.states import Event, ResultClass, State


class Claimed(WithDecision, frozen=True, kw_only=True):
    """The one consumption, or (``again``, 9r) a new fence for it."""

    TYPE: ClassVar = "execution.claimed"
    WRITES: ClassVar = (
        "execution",
        "twin",
        "target",
        "running",
        "approval",
        "listed_execution",
        "listed_approval",
    )

    again: bool
    effect_key: str
    fence: Fence
    holder: str
    lease_ttl_seconds: Number
    approval_id: str
    snapshot_sha256: str
    target_version: str
    deadline_at: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The approval is used, the deed and its target are taken."""
        self._check(existing(read, rows.execution(record.execution)), record)
        consumption = {} if self.again else self._consumption(record, index)
        execution = moved(
            read,
            index,
            record,
            Event.CLAIMED,
            attempt=record.attempt,
            fence=self.fence,
            holder=self.holder,
            policy_revision=self.policy_revision,
            decision_id=self.decision_id,
            result_class=ResultClass.NONE,
            code="",
            **consumption,
        )
        return only(record, execution) + ([] if self.again else _taken(read, record, execution))

    def _check(self, before: ExecutionRow, record: Record) -> None:
        """One consumption; each attempt is a new one, and each re-entry brings a newer fence for the same effect."""
        check(self.again == (before.state is State.EXECUTING), record, "9 is not 9r")
        check(record.attempt > before.marker, record, f"attempt {before.marker} was sent already")
        if self.again:
            check(self.effect_key == before.effect_key, record, "another effect key")
            newer = before.fence is not None and self.fence > before.fence
            check(newer, record, "the fence is not newer")

    def _consumption(self, record: Record, index: int) -> dict[str, Any]:
        return {
            "consumed_index": index,
            "effect_key": self.effect_key,
            "snapshot_sha256": self.snapshot_sha256,
            "claimed_at": record.at,
            "deadline_at": self.deadline_at,
            "target_version": self.target_version,
        }


def _taken(read: Read, record: Record, execution: ExecutionRow) -> Changes:
    link = LinkRow(record.execution, execution.records)
    changes: Changes = [
        taken(read, rows.twin(execution.twin), link),
        taken(read, target_key(execution), link),
        counted(read, running_key(execution), 1),
    ]
    if execution.approval_id:
        key = rows.approval(execution.approval_id)
        approval = existing(read, key)
        check(approval.state == "approved", record, f"the approval is {approval.state}")
        changes.append((key, structs.replace(approval, state="used", records=execution.records)))
    return changes


_FORGOTTEN: Final = {"finding": None, "verification": None, "recovery": "", "operation_id": "", "output_sha256": ""}


class Sent(Timed, frozen=True, kw_only=True):
    """The send marker: from here on the outcome is unknown until shown.

    What was found out about the attempts before says nothing about this one: an absence least of all.
    """

    TYPE: ClassVar = "execution.sent"
    WRITES: ClassVar = ("execution",)

    fence: Fence
    boot: str
    effect_key: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Under the claim of this attempt and this holder."""
        before = existing(read, rows.execution(record.execution))
        of_attempt: dict[str, Any] = {**_FORGOTTEN, "marker": record.attempt, "sent_at": record.at, "boot": self.boot}
        row = moved(read, index, record, Event.SENT, **of_attempt)
        held = (record.attempt, self.fence) == (before.attempt, before.fence)
        check(held, record, "the claim is another attempt's or another holder's")
        return only(record, row)


class LeaseLost(Body, frozen=True):
    """A holder fenced itself: it marks and sends nothing any more."""

    TYPE: ClassVar = "lease.lost"

    fence: Fence
