"""The end of a consumed execution: held, resolved, sealed; its receipt, and what was learnt afterwards."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import (
    check,
    counted,
    derived,
    existing,
    given_up,
    moved,
    only,
    released,
    running_key,
    target_key,
    touched,
)
from kblockd.domain.ledger.record import RECEIPT, Body, Record, Timed
from kblockd.domain.ledger.rows import Changes, LaterWord, Read, ReceiptRow, Resolution
from kblockd.domain.states import Event, ResultClass, State


class Held(Timed, frozen=True, kw_only=True):
    """Waits for an operator; containment keeps the target's lock. An empty class leaves the one that it has."""

    TYPE: ClassVar = "execution.held"
    WRITES: ClassVar = ("execution", "target", "running", "listed_execution")

    code: str
    keep_lock: bool
    result_class: ResultClass = msgspec.field(name="class", default=ResultClass.NONE)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Nobody advances it any more."""
        changes: dict[str, Any] = {"code": self.code, "fence": None, "holder": ""}
        if self.result_class:
            changes["result_class"] = self.result_class
        execution = moved(read, index, record, Event.HELD, **changes)
        written = [*only(record, execution), counted(read, running_key(execution), -1)]
        return written if self.keep_lock else written + given_up(read, target_key(execution), record.execution)


class Resolved(Timed, frozen=True, kw_only=True):
    """An operator's finding on a held execution, in the commit of its seal."""

    TYPE: ClassVar = "execution.resolved"
    WRITES: ClassVar = ("execution",)

    finding: str
    operator: str
    owner: str
    reason_sha256: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Who found what."""
        return only(record, moved(read, index, record, Event.RESOLVED, resolution=derived(Resolution, self)))


_EVENTS: Final = {State.SUCCEEDED: Event.SUCCEEDED, State.FAILED: Event.FAILED}


class Sealed(Timed, frozen=True, kw_only=True):
    """The final transition; the RESULT's DSSE envelope is the record's aux."""

    TYPE: ClassVar = "result.sealed"
    WRITES: ClassVar = ("execution", "open", "open_call", "target", "twin", "running", "listed_execution")

    state: State
    result_class: ResultClass = msgspec.field(name="class")
    code: str
    wire_code: str
    detail_sha256: str
    result_sha256: str
    key: str
    outcome_unknown: bool

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """What the execution held is released; the deed only when its outcome is known."""
        before = existing(read, rows.execution(record.execution))
        event = _EVENTS.get(self.state)
        if event is None:
            raise ValueError(f"{self.TYPE}: no end is {self.state}")
        execution = moved(
            read,
            index,
            record,
            event,
            result_class=self.result_class,
            code=self.code,
            wire_code=self.wire_code,
            result_sha256=self.result_sha256,
            outcome_unknown=self.outcome_unknown,
            sealed_index=index,
            closed_at=record.at,
            fence=None,
            holder="",
        )
        changes = [*only(record, execution), *released(execution)]
        changes += given_up(read, target_key(execution), record.execution)
        if not self.outcome_unknown:
            changes += given_up(read, rows.twin(execution.twin), record.execution)
        if before.state is State.EXECUTING:
            changes.append(counted(read, running_key(execution), -1))
        return changes


class Receipt(Body, frozen=True):
    """The in-toto Statement that closes an execution. Its leaf is its DSSE payload, so there are no fields here."""

    TYPE: ClassVar = RECEIPT
    WRITES: ClassVar = ("receipt",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Where it stands."""
        return [(rows.receipt(record.execution), ReceiptRow(record.execution, (index,), index))]


class Disposition(Timed, frozen=True, kw_only=True):
    """What an execution that was sealed as unknown turned out to be; its DSSE envelope is the record's aux."""

    TYPE: ClassVar = "disposition"
    WRITES: ClassVar = ("execution", "twin")

    kind: str
    finding: str
    result_class: ResultClass = msgspec.field(name="class")
    operator: str
    owner: str
    reason_sha256: str
    disposition_sha256: str

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The RESULT stays; the deed is free once it is known."""
        sealed = existing(read, rows.execution(record.execution))
        check(sealed.outcome_unknown, record, "the execution is not sealed as unknown")
        word = LaterWord(self.kind, self.disposition_sha256, index)
        execution = touched(read, index, record, disposition=word)
        known = self.finding in ("present", "absent")
        freed = given_up(read, rows.twin(execution.twin), record.execution) if known else []
        return only(record, execution) + freed
