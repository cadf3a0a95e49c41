"""What a caller may see of an execution: its outcome, with the revealed part of the output, and its events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kblockd.admission.offload import offload, size_of
from kblockd.domain.canonical import canonical
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.contract import reveal
from kblockd.domain.errors import StoredUnreadable
from kblockd.domain.ledger import envelope, identifier, read, rows
from kblockd.domain.ledger.record import Body, LeafEnvelope, Record
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.ledger.sealing import ResultSealed
from kblockd.domain.ledger.values import Timings
from kblockd.domain.outcome import CallOutcome, CallStatus, StageEvent
from kblockd.domain.stages import named
from kblockd.domain.states import ResultClass, State, acted
from kblockd.execution.journal import NOTHING, Entry, Written
from kblockd.execution.load import load_reveal, value_if_readable
from kblockd.execution.parts import Parts
from kblockd.store.protocol import Append

_STATUS: Final = {
    State.SUCCEEDED: CallStatus.COMPLETED,
    State.FAILED: CallStatus.UPSTREAM_ERROR,
    State.PENDING_APPROVAL: CallStatus.APPROVAL_PENDING,
    State.APPROVED: CallStatus.APPROVAL_PENDING,
    State.REJECTED: CallStatus.DENIED,
    State.EXPIRED: CallStatus.DENIED,
    State.CANCELLED: CallStatus.DENIED,
    State.HELD: CallStatus.HELD,
    State.EXECUTING: CallStatus.IN_PROGRESS,
    State.PROPOSED: CallStatus.IN_PROGRESS,
}
_SENTENCES: Final = {
    State.PENDING_APPROVAL: "waits for an approval; when it is given, repeat the identical call",
    State.APPROVED: "approved and not consumed; repeat the identical call to run it",
    State.EXPIRED: "the time to approve or to run it has passed; nothing ran",
    State.CANCELLED: "the action is void; nothing ran",
    State.HELD: "an operator must resolve it; the effect may exist",
    State.EXECUTING: "still executing; repeat the identical call to wait on",
}
_BY_PEOPLE: Final = {
    "APPROVAL_DENIED": "an approver denied it; nothing ran",
    "APPROVAL_REVOKED": "its approval was revoked before it was used; nothing ran",
}
_VOID: Final = {
    "APPROVAL_INSUFFICIENT": "more approvals are asked for now than were given, so the action is void; nothing ran",
    "BINDING_CHANGED": "what was decided on has changed since (its tool, contract or target), so the action is void; "
    "nothing ran",
    "STORED_UNREADABLE": "what was agreed on is stored in a form that this release does not read, so the action is "
    "void; nothing ran",
}
_ENDED: Final = {
    ResultClass.NOT_STARTED: "the upstream was not called",
    ResultClass.FAILED_BEFORE_SIDE_EFFECT: "the call had no effect",
    ResultClass.FAILED_AFTER_SIDE_EFFECT: "there is an effect, and not the expected one",
    ResultClass.UNKNOWN_OUTCOME: "nobody knows whether there is an effect",
}
_UNKNOWN: Final = "sent, no valid answer; the upstream may have acted"


async def outcome(
    parts: Parts, row: ExecutionRow, *, replayed: bool = False, brief: bool = False, own: Written = NOTHING
) -> CallOutcome:
    """The outcome of one execution, from its row and payloads; ``brief`` (in lists) leaves out output and evidence.

    ``own`` is what the run that just ended has written: what it holds is not read back.
    """
    state = row.state
    sealed = state in (State.SUCCEEDED, State.FAILED)
    proof, receipt, missing = await _receipt(parts, row, own) if sealed and not brief else ("", b"", "")
    return CallOutcome(
        execution_id=row.id,
        status=_STATUS[state],
        state=str(state),
        phase=str(row.phase),
        result_class=str(row.result_class),
        code=_code(row, state),
        detail=await _detail(parts, row, state, own),
        executed=acted(state, row.marker, row.result_class),
        consumed=bool(row.claimed_at),
        outcome_unknown=row.result_class == ResultClass.UNKNOWN_OUTCOME,
        replayed=replayed,
        action_sha256=row.action_sha256,
        approval_id=row.approval_id,
        output_json=await _revealed(parts, row, own) if state is State.SUCCEEDED and not brief else b"",
        result_dsse=await _aux(parts, row.sealed_index, own) if sealed and not brief else b"",
        receipt_dsse=receipt,
        receipt_proof=proof,
        no_receipt_reason=missing,
    )


async def events(parts: Parts, row: ExecutionRow, after_index: int | None = None) -> list[StageEvent]:
    """The durable records of an execution in order, those after ``after_index`` only."""
    found = []
    for index in row.records:
        if after_index is not None and index <= after_index:
            continue
        record = await parts.store.leaf(index)
        if record is not None:
            found.append(_event(index, record.leaf))
    return _timed(found)


def _timed(found: list[StageEvent]) -> list[StageEvent]:
    """Each with the time of its own stage: the first that a later record names, when nothing else ended between."""
    timed = list(found)
    open_since = 0
    for position, event in enumerate(found):
        if event.stages:
            number, took = event.stages[0]
            for earlier in reversed(range(open_since, position)):
                if found[earlier].stage == number:
                    timed[earlier] = replace(found[earlier], took_microseconds=took)
                    break
            open_since = position
    return timed


def _event(index: int, leaf: bytes) -> StageEvent:
    """Its own time is not known from the record: the stage that made the commit had not ended then.

    Of a record of a later release only the envelope is told.
    """
    record, code, stages = _told(leaf)
    return StageEvent(
        ledger_index=index,
        stage=record.stage or 0,
        name=named(record.stage),
        at=parse_rfc3339(record.at),
        took_microseconds=0,
        record_type=record.type,
        code=code,
        stages=stages,
    )


def _told(leaf: bytes) -> tuple[Record | LeafEnvelope, str, Timings]:
    try:
        record = read(leaf)
    except StoredUnreadable:
        return envelope(leaf), "", ()
    return record, _event_code(record.body), record.body.timings()


def _event_code(body: Body) -> str:
    for name in ("wire_code", "code", "verdict", "finding", "recovery", "effect", "result_class"):
        if word := getattr(body, name, ""):
            return str(word)
    return ""


def _code(row: ExecutionRow, state: State) -> str:
    if state is State.FAILED:
        return row.wire_code or row.code
    if state is State.EXPIRED:
        return "TASK_EXPIRED"
    if state is State.SUCCEEDED:
        return ""
    if state in (State.EXECUTING, State.PROPOSED):
        return "EXECUTION_IN_PROGRESS"
    return row.code


async def _detail(parts: Parts, row: ExecutionRow, state: State, own: Written) -> str:
    """The precise code stands in front of the daemon's own words (R665).

    Neither a policy's messages nor an upstream's text: those reach a caller only as the contract's ``reveal`` says.
    """
    if state is State.CANCELLED and row.code in _VOID:
        return _VOID[row.code]
    if state in _SENTENCES:
        return _SENTENCES[state]
    if state is State.REJECTED and row.code in _BY_PEOPLE:
        return _BY_PEOPLE[row.code]
    if state is State.REJECTED:
        why = await value_if_readable(parts, row.id, row.reasons_sha256) or []
        return f"refused by policy: {', '.join(identifier(r['code']) for r in why)[:2000] or row.code}"
    if state is State.FAILED:
        said = await _sealed_detail(parts, row, own) or _ENDED.get(row.result_class, "")
        unknown = f" ({_UNKNOWN})" if row.result_class == ResultClass.UNKNOWN_OUTCOME else ""
        return f"{row.wire_code or row.code}: {said}{unknown}"
    return await _sealed_detail(parts, row, own)


async def _sealed_detail(parts: Parts, row: ExecutionRow, own: Written) -> str:
    record = await _record(parts, row.sealed_index, own)
    if record is None:
        return ""
    try:
        body = read(record.leaf).body
    except StoredUnreadable:
        return ""
    if not isinstance(body, ResultSealed):
        return ""
    return str(await value_if_readable(parts, row.id, body.detail_sha256, own) or "")


async def _revealed(parts: Parts, row: ExecutionRow, own: Written) -> bytes:
    document: dict[str, Any] = {}
    for name, digest in (("output", row.output_sha256), ("snapshot", row.snapshot_sha256)):
        value = await value_if_readable(parts, row.id, digest, own)
        if value is not None:
            document[name] = value
    pointers = await load_reveal(parts, row)
    return await offload(size_of(document), lambda: canonical(reveal(pointers, document)))


async def _record(parts: Parts, index: int | None, own: Written) -> Append | Entry | None:
    if index is None:
        return None
    return own.records.get(index) or await parts.store.leaf(index)


async def _aux(parts: Parts, index: int | None, own: Written) -> bytes:
    record = await _record(parts, index, own)
    if isinstance(record, Entry):
        return record.made()
    return record.aux if record else b""


async def _receipt(parts: Parts, row: ExecutionRow, own: Written) -> tuple[str, bytes, str]:
    """(proof, DSSE, reason for their absence): C31."""
    found = await parts.store.get(rows.receipt(row.id))
    if found is None:
        return "", b"", "the execution was closed without a receipt"
    index = found[1].index
    signed = await _aux(parts, index, own)
    try:
        proof = await parts.ledger.proof(index)
    except OSError:
        return "", signed, "the log key cannot be used just now; ask for the proof later"
    return proof.text(), signed, ""
