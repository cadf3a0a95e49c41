"""What came of an attempt, what was found out about it, and what was planned (stages 12 to 15)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import check, derived, existing, moved, only, touched
from kblockd.domain.ledger.record import Record, Timed, WithDecision
from kblockd.domain.ledger.rows import Changes, Finding, LateAnswer, Read, Verification
from kblockd.domain.ledger.values import Number
from kblockd.domain.states import Event, Phase, ResultClass

_EVENTS: Final = {
    ResultClass.COMPLETED_UNVERIFIED: Event.ANSWERED,
    ResultClass.UNKNOWN_OUTCOME: Event.LOST,
    ResultClass.FAILED_BEFORE_SIDE_EFFECT: Event.NOT_SENT,
    ResultClass.ACCEPTED: Event.ACCEPTED,
}


class AttemptOutcome(Timed, frozen=True, kw_only=True):
    """What the adapter said, with the facts of the answer; ``late`` when the attempt had an outcome already.

    ``proof`` names the way in which nothing happened; ``at_work``: the effect may still come. 0 is no status and no
    code of JSON-RPC. Version 0.1.0 had none of what has a default.
    """

    TYPE: ClassVar = "attempt.outcome"
    WRITES: ClassVar = ("execution",)

    sent: str
    is_error: bool
    result_class: ResultClass = msgspec.field(name="class")
    code: str
    operation: str
    output_sha256: str
    detail_sha256: str
    raw_sha256: str
    request_ids: dict[str, str]
    late: bool
    proof: str = ""
    at_work: bool = False
    answer_form: str = ""
    answer_status: Number = 0
    answer_media_type: str = ""
    answer_rpc_code: Number = 0

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """A late one is noted, and moves nothing."""
        if self.late:
            return self._noted(read, index, record)
        event = _EVENTS.get(self.result_class)
        if event is None:
            raise ValueError(f"{self.TYPE}: an attempt has no outcome {self.result_class}")
        changes: dict[str, Any] = {
            "result_class": self.result_class,
            "code": self.code,
            "output_sha256": self.output_sha256,
        }
        if self.operation:
            changes["operation_id"] = self.operation
        return only(record, moved(read, index, record, event, **changes))

    def _noted(self, read: Read, index: int, record: Record) -> Changes:
        marker = existing(read, rows.execution(record.execution)).marker
        check(0 < record.attempt <= marker, record, "an answer to what was never sent")
        late = LateAnswer(self.result_class, self.output_sha256, index)
        return only(record, touched(read, index, record, late=late))


class OperationAccepted(Timed, frozen=True, kw_only=True):
    """The upstream's own operation, before its first poll."""

    TYPE: ClassVar = "operation.accepted"
    WRITES: ClassVar = ("execution",)

    operation: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Its id."""
        row = touched(read, index, record, operation_id=self.operation)
        check(row.phase is Phase.ACCEPTED, record, "nothing was accepted")
        return only(record, row)


class Reconciled(Timed, frozen=True, kw_only=True):
    """What a look-up found, or a late answer decided."""

    TYPE: ClassVar = "finding.reconciled"
    WRITES: ClassVar = ("execution",)

    finding: str
    by: str
    read_sha256: str
    code: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """A late answer that decides is the answer, for verification and caller alike."""
        changes: dict[str, Any] = {"finding": derived(Finding, self)}
        if self.by == "late_answer":
            late = existing(read, rows.execution(record.execution)).late
            check(late is not None, record, "no answer came late")
            changes["output_sha256"] = late.output_sha256 if late else ""
        return only(record, moved(read, index, record, Event.RECONCILED, **changes))


class Verified(WithDecision, frozen=True, kw_only=True):
    """The verdict over an independent read."""

    TYPE: ClassVar = "finding.verified"
    WRITES: ClassVar = ("execution",)

    verdict: str
    source: str
    read_sha256: str
    code: str
    result_class: ResultClass = msgspec.field(name="class")

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The class that follows from it."""
        changes = {"verification": derived(Verification, self), "result_class": self.result_class}
        return only(record, moved(read, index, record, Event.VERIFIED, **changes))


class RecoveryPlanned(WithDecision, frozen=True, kw_only=True):
    """What is done about an execution that did not end well, before it is done.

    ``refused`` is what policy chose, where code did not let it be.
    """

    TYPE: ClassVar = "recovery.planned"
    WRITES: ClassVar = ("execution",)

    recovery: str
    result_class: ResultClass = msgspec.field(name="class")
    refused: str | UnsetType = UNSET

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The word, until the next attempt."""
        return only(record, moved(read, index, record, Event.RECOVERY_PLANNED, recovery=self.recovery))
