"""Stage 3 on record: what is proposed, and what is refused instead."""

from __future__ import annotations

from typing import ClassVar, TypedDict

from msgspec import UNSET, UnsetType

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import derived, taken
from kblockd.domain.ledger.record import Body, Record
from kblockd.domain.ledger.rows import CallerKeyRow, Changes, ExecutionRow, LinkRow, Read, Row, RowKey
from kblockd.domain.ledger.values import Agreed, Floor, Number, Timings
from kblockd.domain.states import Event, Phase, ResultClass, State, advance


class Proposed(Agreed, Body, frozen=True, kw_only=True):
    """An execution begins. What it was decided on stays in its row; the reasons and the kept input do not."""

    TYPE: ClassVar = "execution.proposed"
    WRITES: ClassVar = ("execution", "open", "caller_key", "open_call", "agent", "listed_execution")

    input_payload: str = ""
    reasons: tuple[str, ...] = ()
    stages: Timings | UnsetType = UNSET

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The execution, and what binds the call to it."""
        link = LinkRow(record.execution, (index,))
        return [
            taken(read, rows.execution(record.execution), self._row(index, record)),
            (rows.open_execution(record.execution), link),
            self._guard(read, link),
        ]

    def _row(self, index: int, record: Record) -> ExecutionRow:
        proposed = (State.PROPOSED, Phase.NONE)
        allowed = self.effect in ("allow", "observe")
        return derived(
            ExecutionRow,
            self,
            id=record.execution,
            tenant=record.tenant,
            state=(advance(proposed, Event.ALLOWED) if allowed else proposed)[0],
            phase=Phase.NONE,
            result_class=ResultClass.NONE,
            code="",
            attempt=0,
            marker=0,
            proposed_at=record.at,
            approval_id="",
            records=(index,),
        )

    def _guard(self, read: Read, link: LinkRow) -> tuple[RowKey[Row], Row]:
        if self.caller_key:
            row = CallerKeyRow(link.execution, link.records, self.fingerprint)
            return taken(read, rows.caller_key(self.caller_key), row)
        return taken(read, rows.open_call(self.fingerprint), link)


class CallRefused(Body, frozen=True):
    """A refusal, or (with ``count``) how many of its kind were counted between two times.

    With the decision that led to it, where there was one (stages 3 and 8), and what that decision would have let be.
    """

    TYPE: ClassVar = "call.refused"
    WRITES: ClassVar = ("refusal",)

    reason: str
    principal: str
    method: str
    refers_to: str | UnsetType = UNSET
    message_sha256: str | UnsetType = UNSET
    count: Number | UnsetType = UNSET  # of refusals, or of the approvals that the decision asked for
    since: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    policy_engine: str | UnsetType = UNSET
    policy_revision: str | UnsetType = UNSET
    decision_id: str | UnsetType = UNSET
    input_sha256: str | UnsetType = UNSET
    input_payload: str | UnsetType = UNSET
    policy_us: Number | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    effect: str | UnsetType = UNSET
    observe_until: str | UnsetType = UNSET
    floor: Floor | UnsetType | None = UNSET
    roles: tuple[str, ...] | UnsetType = UNSET
    floor_roles: tuple[str, ...] | UnsetType = UNSET

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """A row of its own, where it concerned a known execution."""
        if not record.execution:
            return []
        return [(rows.refusal(record.execution, index), LinkRow(record.execution, (index,)))]


class RefusalDetails(TypedDict, total=False):
    """What a refusal may say beside reason, principal and method."""

    refers_to: str
    message_sha256: str
    count: int
    policy_engine: str
    policy_revision: str
    decision_id: str
    input_sha256: str
    input_payload: str
    policy_us: int
    reasons: tuple[str, ...]
    effect: str
    observe_until: str
    floor: Floor | None
    roles: tuple[str, ...]
    floor_roles: tuple[str, ...]
