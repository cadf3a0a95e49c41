"""The fold: what each record makes of the rows. Pure, total over the record types, and the only writer of rows.

The same function runs in the commit and in ``ledger verify``, so that rows cannot drift from records
(kblockd/README.md#the-one-idea). ``read`` sees the rows as they are after the group's earlier records.

A record that contradicts the rows does not fold, whatever the conditions of its commit said: a second claim of a deed,
a marker under another fence, a decision on an approval that waits for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kblockd.domain import rows
from kblockd.domain.fold_approvals import APPROVALS
from kblockd.domain.fold_configuration import CONFIGURATION
from kblockd.domain.listing import lists
from kblockd.domain.moves import check, counted, existing, given_up, moved, taken, touched
from kblockd.domain.records import Record, RecordType, read
from kblockd.domain.rows import Changes, Key, Read, Row
from kblockd.domain.states import TERMINAL, Event, Phase, ResultClass, State, advance


def fold(read_row: Read, index: int, leaf: bytes) -> Changes:
    """The rows that the record at ``index`` changes; raises ``IllegalTransition`` or ValueError on a defect."""
    record = read(leaf)
    if record.type in WITHOUT_ROWS:
        return []
    try:
        changes = RULES[record.type](read_row, index, record)
        return [*changes, *lists(read_row, index, changes)]
    except KeyError as missing:
        raise ValueError(f"{record.type} lacks {missing}") from None


_OF_THE_RECORD_ALONE: Final = ("stages", "input_payload", "reasons")


def _proposed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    row = {
        **body,
        "id": record.execution,
        "tenant": record.tenant,
        "state": str(State.PROPOSED),
        "phase": "",
        "result_class": "",
        "code": "",
        "attempt": 0,
        "marker": 0,
        "proposed_at": record.at,
        "approval_id": "",
        "records": [index],
    }
    for name in _OF_THE_RECORD_ALONE:
        row.pop(name, None)
    if body["effect"] in ("allow", "observe"):
        row["state"] = str(advance((State.PROPOSED, Phase.NONE), Event.ALLOWED)[0])
    link = {"execution": record.execution, "records": [index]}
    if body["caller_key"]:
        guard = taken(read_row, rows.caller_key(body["caller_key"]), {**link, "fingerprint": body["fingerprint"]})
    else:
        guard = taken(read_row, rows.open_call(body["fingerprint"]), link)
    return [
        taken(read_row, rows.execution(record.execution), row),
        (rows.open_execution(record.execution), link),
        guard,
    ]


def _refused(read_row: Read, index: int, record: Record) -> Changes:
    if not record.execution:
        return []
    return [(rows.refusal(record.execution, index), {"execution": record.execution, "records": [index]})]


def _closed_without_effect(event: Event, approval_state: str) -> Callable[[Read, int, Record], Changes]:
    def rule(read_row: Read, index: int, record: Record) -> Changes:
        before = existing(read_row, rows.execution(record.execution))
        execution = moved(read_row, index, record, event, code=record.body["code"], closed_at=record.at)
        changes: Changes = [(rows.execution(record.execution), execution), *_release(execution)]
        if approval_id := execution["approval_id"]:
            key = rows.approval(approval_id)
            approval = existing(read_row, key)
            state = approval["state"] if approval["state"] in ("denied", "revoked") else approval_state
            changes.append((key, {**approval, "state": state, "records": execution["records"]}))
            if before["state"] == State.PENDING_APPROVAL:
                changes.append(counted(read_row, rows.pending(record.tenant, execution["agent"]), -1))
        return changes

    return rule


def _claimed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    again = body["again"]
    _check_claim(existing(read_row, rows.execution(record.execution)), record)
    execution = moved(
        read_row,
        index,
        record,
        Event.CLAIMED,
        attempt=record.attempt,
        fence=body["fence"],
        holder=body["holder"],
        policy_revision=body["policy_revision"],
        decision_id=body["decision_id"],
        result_class="",
        code="",
        **({} if again else _consumption(record, index)),
    )
    changes: Changes = [(rows.execution(record.execution), execution)]
    if again:
        return changes
    link = {"execution": record.execution, "records": execution["records"]}
    changes += [
        taken(read_row, rows.twin(execution["twin"]), link),
        taken(read_row, _target_key(execution), link),
        counted(read_row, _running_key(execution), 1),
    ]
    if approval_id := execution["approval_id"]:
        key = rows.approval(approval_id)
        approval = existing(read_row, key)
        check(approval["state"] == "approved", record, f"the approval is {approval['state']}")
        changes.append((key, {**approval, "state": "used", "records": execution["records"]}))
    return changes


def _check_claim(before: Row, record: Record) -> None:
    """One consumption; each attempt is a new one, and each re-entry (9r) brings a newer fence for the same effect."""
    body = record.body
    check(body["again"] == (before["state"] == State.EXECUTING), record, "9 is not 9r")
    check(record.attempt > before["marker"], record, f"attempt {before['marker']} was sent already")
    if body["again"]:
        check(body["effect_key"] == before["effect_key"], record, "another effect key")
        check(_order(body["fence"]) > _order(before["fence"]), record, "the fence is not newer")


def _order(fence: Mapping[str, int]) -> tuple[int, int]:
    return (fence["incarnation"], fence["counter"])


def _consumption(record: Record, index: int) -> dict[str, Any]:
    body = record.body
    return {
        "consumed_index": index,
        "effect_key": body["effect_key"],
        "snapshot_sha256": body["snapshot_sha256"],
        "claimed_at": record.at,
        "deadline_at": body["deadline_at"],
        "target_version": body["target_version"],
    }


_OF_ONE_ATTEMPT: Final = ("finding", "verification", "recovery", "operation_id", "output_sha256")


def _sent(read_row: Read, index: int, record: Record) -> Changes:
    """What was found out about the attempts before says nothing about this one: an absence least of all."""
    before = existing(read_row, rows.execution(record.execution))
    row = moved(read_row, index, record, Event.SENT, marker=record.attempt, sent_at=record.at, boot=record.body["boot"])
    held = (record.attempt, record.body["fence"]) == (before["attempt"], before["fence"])
    check(held, record, "the claim is another attempt's or another holder's")
    return _only_execution(record, {name: value for name, value in row.items() if name not in _OF_ONE_ATTEMPT})


_OUTCOME_EVENTS: Final = {
    ResultClass.COMPLETED_UNVERIFIED: Event.ANSWERED,
    ResultClass.UNKNOWN_OUTCOME: Event.LOST,
    ResultClass.FAILED_BEFORE_SIDE_EFFECT: Event.NOT_SENT,
    ResultClass.ACCEPTED: Event.ACCEPTED,
}


def _attempt_outcome(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    if body["late"]:
        marker = existing(read_row, rows.execution(record.execution))["marker"]
        check(0 < record.attempt <= marker, record, "an answer to what was never sent")
        late = {"class": body["class"], "output_sha256": body["output_sha256"], "index": index}
        return _only_execution(record, touched(read_row, index, record, late=late))
    changes = {"result_class": body["class"], "code": body["code"], "output_sha256": body["output_sha256"]}
    if body["operation"]:
        changes["operation_id"] = body["operation"]
    event = _OUTCOME_EVENTS.get(ResultClass(body["class"]))
    if event is None:
        raise ValueError(f"{record.type}: an attempt has no outcome {body['class']}")
    return _only_execution(record, moved(read_row, index, record, event, **changes))


def _operation_accepted(read_row: Read, index: int, record: Record) -> Changes:
    row = touched(read_row, index, record, operation_id=record.body["operation"])
    check(row["phase"] == Phase.ACCEPTED, record, "nothing was accepted")
    return _only_execution(record, row)


def _reconciled(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    changes: dict[str, Any] = {"finding": {k: body[k] for k in ("finding", "by", "read_sha256")}}
    if body["by"] == "late_answer":  # then it is the answer, for verification and caller alike
        changes["output_sha256"] = existing(read_row, rows.execution(record.execution))["late"]["output_sha256"]
    return _only_execution(record, moved(read_row, index, record, Event.RECONCILED, **changes))


def _verified(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    verification = {k: body[k] for k in ("verdict", "source", "read_sha256")}
    changes = {"verification": verification, "result_class": body["class"]}
    return _only_execution(record, moved(read_row, index, record, Event.VERIFIED, **changes))


def _recovery_planned(read_row: Read, index: int, record: Record) -> Changes:
    return _only_execution(
        record, moved(read_row, index, record, Event.RECOVERY_PLANNED, recovery=record.body["recovery"])
    )


def _held(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    changes: dict[str, Any] = {"code": body["code"], "fence": None, "holder": ""}
    if body.get("class"):  # ledgers from before it have none
        changes["result_class"] = body["class"]
    execution = moved(read_row, index, record, Event.HELD, **changes)
    written: Changes = [
        (rows.execution(record.execution), execution),
        counted(read_row, _running_key(execution), -1),
    ]
    if not body["keep_lock"]:
        written += given_up(read_row, _target_key(execution), record.execution)
    return written


def _resolved(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    resolution = {k: body[k] for k in ("finding", "operator", "owner", "reason_sha256")}
    return _only_execution(record, moved(read_row, index, record, Event.RESOLVED, resolution=resolution))


def _sealed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    before = existing(read_row, rows.execution(record.execution))
    event = {State.SUCCEEDED: Event.SUCCEEDED, State.FAILED: Event.FAILED}[State(body["state"])]
    execution = moved(
        read_row,
        index,
        record,
        event,
        result_class=body["class"],
        code=body["code"],
        wire_code=body["wire_code"],
        result_sha256=body["result_sha256"],
        outcome_unknown=body["outcome_unknown"],
        sealed_index=index,
        closed_at=record.at,
        fence=None,
        holder="",
    )
    changes: Changes = [(rows.execution(record.execution), execution), *_release(execution)]
    changes += given_up(read_row, _target_key(execution), record.execution)
    if not body["outcome_unknown"]:
        changes += given_up(read_row, rows.twin(execution["twin"]), record.execution)
    if before["state"] == State.EXECUTING:
        changes.append(counted(read_row, _running_key(execution), -1))
    return changes


def _disposition(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    sealed = existing(read_row, rows.execution(record.execution))
    check(sealed.get("outcome_unknown", False), record, "the execution is not sealed as unknown")
    execution = touched(
        read_row,
        index,
        record,
        disposition={"kind": body["kind"], "sha256": body["disposition_sha256"], "index": index},
    )
    changes: Changes = [(rows.execution(record.execution), execution)]
    if body["finding"] in ("present", "absent"):
        changes += given_up(read_row, rows.twin(execution["twin"]), record.execution)
    return changes


def _receipt(read_row: Read, index: int, record: Record) -> Changes:
    return [
        (rows.receipt(record.execution), {"execution": record.execution, "index": index, "records": [index]}),
    ]


def _only_execution(record: Record, row: Row) -> Changes:
    return [(rows.execution(record.execution), row)]


def _release(execution: Row) -> Changes:
    """What a closed execution gives up: its place among the open ones, and the keyless call's guard."""
    assert State(execution["state"]) in TERMINAL  # noqa: S101 - a defect of this module, never of data
    changes: Changes = [(rows.open_execution(execution["id"]), None)]
    if not execution["caller_key"]:
        changes.append((rows.open_call(execution["fingerprint"]), None))
    return changes


def _target_key(execution: Row) -> Key:
    target = execution["target"]
    return rows.target(execution["tenant"], execution["upstream"], target["type"], target["id"])


def _running_key(execution: Row) -> Key:
    return rows.running(execution["tenant"], execution["operation"], execution["environment"])


RULES: Final[Mapping[RecordType, Callable[[Read, int, Record], Changes]]] = {
    RecordType.PROPOSED: _proposed,
    **APPROVALS,
    RecordType.CALL_REFUSED: _refused,
    RecordType.REJECTED: _closed_without_effect(Event.REJECTED, "void"),
    RecordType.EXPIRED: _closed_without_effect(Event.EXPIRED, "expired"),
    RecordType.CANCELLED: _closed_without_effect(Event.CANCELLED, "void"),
    RecordType.CLAIMED: _claimed,
    RecordType.SENT: _sent,
    RecordType.ATTEMPT_OUTCOME: _attempt_outcome,
    RecordType.OPERATION_ACCEPTED: _operation_accepted,
    RecordType.RECONCILED: _reconciled,
    RecordType.VERIFIED: _verified,
    RecordType.RECOVERY_PLANNED: _recovery_planned,
    RecordType.HELD: _held,
    RecordType.RESOLVED: _resolved,
    RecordType.SEALED: _sealed,
    RecordType.DISPOSITION: _disposition,
    RecordType.RECEIPT: _receipt,
    **CONFIGURATION,
}

WITHOUT_ROWS: Final = frozenset(
    {
        RecordType.AUTHZ_DECIDED,
        RecordType.LEASE_LOST,
        RecordType.POLICY_REFUSED,
        RecordType.STORE_RESTORED,
        RecordType.DAEMON_STOPPED,
    }
)
"""On record and nothing more: no commit is conditioned on them."""
