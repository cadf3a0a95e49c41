"""The fold: what each record makes of the rows. Pure, total over the record types, and the only writer of rows.

The same function runs in the commit and in ``ledger verify``, so that rows cannot drift from records (design
section 1). ``read`` sees the rows as they are after the group's earlier records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kblockd.domain import rows
from kblockd.domain.records import Record, RecordType, read
from kblockd.domain.rows import Key
from kblockd.domain.states import TERMINAL, Event, Phase, ResultClass, State, advance

Row = Mapping[str, Any]
Read = Callable[[Key], Row | None]
Changes = list[tuple[Key, Row | None]]


def fold(read_row: Read, index: int, leaf: bytes) -> Changes:
    """The rows that the record at ``index`` changes; raises ``IllegalTransition`` or ValueError on a defect."""
    record = read(leaf)
    rule = _RULES.get(record.type)
    return rule(read_row, index, record) if rule else []


def _proposed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    row = {
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
        **body,
    }
    row.pop("stages", None)
    if body["effect"] in ("allow", "observe"):
        row["state"] = str(advance((State.PROPOSED, Phase.NONE), Event.ALLOWED)[0])
    link = {"execution": record.execution, "records": [index]}
    changes: Changes = [
        (rows.execution(record.execution), row),
        (rows.open_execution(record.execution), link),
    ]
    if body["caller_key"]:
        changes.append((rows.caller_key(body["caller_key"]), {**link, "fingerprint": body["fingerprint"]}))
    else:
        changes.append((rows.open_call(body["fingerprint"]), link))
    return changes


def _approval_requested(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    execution = _moved(read_row, index, record, Event.APPROVAL_REQUESTED, approval_id=body["approval_id"])
    approval = {
        **{k: v for k, v in body.items() if k != "stages"},
        "execution": record.execution,
        "tenant": record.tenant,
        "state": "pending",
        "decisions": [],
        "records": execution["records"],
    }
    return [
        (rows.execution(record.execution), execution),
        (rows.approval(body["approval_id"]), approval),
        _counted(read_row, rows.pending(record.tenant, execution["agent"]), 1),
    ]


def _approval_decided(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    key = rows.approval(body["approval_id"])
    approval = _existing(read_row, key)
    decision = {
        "approver": body["approver"],
        "owner": body["owner"],
        "verdict": body["verdict"],
        "dsse_sha256": body["dsse_sha256"],
        "statement_sha256": body["statement_sha256"],
        "index": index,
    }
    decisions = [*approval["decisions"], decision]
    owners = {d["owner"] for d in decisions if d["verdict"] == "approve"}
    denied = body["verdict"] == "deny"
    complete = not denied and len(owners) >= approval["count"]
    state = "denied" if denied else "approved" if complete else "pending"
    execution = _moved(read_row, index, record, Event.APPROVED) if complete else _touched(read_row, index, record)
    changes: Changes = [
        (rows.execution(record.execution), execution),
        (key, {**approval, "decisions": decisions, "state": state, "records": execution["records"]}),
    ]
    if complete:
        changes.append(_counted(read_row, rows.pending(record.tenant, execution["agent"]), -1))
    return changes


def _approval_revoked(read_row: Read, index: int, record: Record) -> Changes:
    key = rows.approval(record.body["approval_id"])
    execution = _touched(read_row, index, record)
    approval = {**_existing(read_row, key), "state": "revoked", "records": execution["records"]}
    return [(rows.execution(record.execution), execution), (key, approval)]


def _refused(read_row: Read, index: int, record: Record) -> Changes:
    if not record.execution:
        return []
    return [(rows.refusal(record.execution, index), {"execution": record.execution, "records": [index]})]


def _closed_without_effect(event: Event, approval_state: str) -> Callable[[Read, int, Record], Changes]:
    def rule(read_row: Read, index: int, record: Record) -> Changes:
        before = _existing(read_row, rows.execution(record.execution))
        execution = _moved(read_row, index, record, event, code=record.body["code"], closed_at=record.at)
        changes: Changes = [(rows.execution(record.execution), execution), *_release(execution)]
        if approval_id := execution["approval_id"]:
            key = rows.approval(approval_id)
            approval = _existing(read_row, key)
            state = approval["state"] if approval["state"] in ("denied", "revoked") else approval_state
            changes.append((key, {**approval, "state": state, "records": execution["records"]}))
            if before["state"] == State.PENDING_APPROVAL:
                changes.append(_counted(read_row, rows.pending(record.tenant, execution["agent"]), -1))
        return changes

    return rule


def _claimed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    again = body["again"]
    execution = _moved(
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
        (rows.twin(execution["twin"]), link),
        (_target_key(execution), link),
        _counted(read_row, _running_key(execution), 1),
    ]
    if approval_id := execution["approval_id"]:
        key = rows.approval(approval_id)
        approval = {**_existing(read_row, key), "state": "used", "records": execution["records"]}
        changes.append((key, approval))
    return changes


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


def _sent(read_row: Read, index: int, record: Record) -> Changes:
    return _only_execution(
        record,
        _moved(
            read_row,
            index,
            record,
            Event.SENT,
            marker=record.attempt,
            sent_at=record.at,
            boot=record.body["boot"],
        ),
    )


_OUTCOME_EVENTS: Final = {
    ResultClass.COMPLETED_UNVERIFIED: Event.ANSWERED,
    ResultClass.UNKNOWN_OUTCOME: Event.LOST,
    ResultClass.FAILED_BEFORE_SIDE_EFFECT: Event.NOT_SENT,
    ResultClass.ACCEPTED: Event.ACCEPTED,
}


def _attempt_outcome(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    if body["late"]:
        late = {"class": body["class"], "output_sha256": body["output_sha256"], "index": index}
        return _only_execution(record, _touched(read_row, index, record, late=late))
    changes = {"result_class": body["class"], "code": body["code"], "output_sha256": body["output_sha256"]}
    if body["operation"]:
        changes["operation"] = body["operation"]
    event = _OUTCOME_EVENTS[ResultClass(body["class"])]
    return _only_execution(record, _moved(read_row, index, record, event, **changes))


def _operation_accepted(read_row: Read, index: int, record: Record) -> Changes:
    return _only_execution(record, _touched(read_row, index, record, operation=record.body["operation"]))


def _reconciled(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    finding = {k: body[k] for k in ("finding", "by", "read_sha256")}
    return _only_execution(record, _moved(read_row, index, record, Event.RECONCILED, finding=finding))


def _verified(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    verification = {k: body[k] for k in ("verdict", "source", "read_sha256")}
    changes = {"verification": verification, "result_class": body["class"]}
    return _only_execution(record, _moved(read_row, index, record, Event.VERIFIED, **changes))


def _recovery_planned(read_row: Read, index: int, record: Record) -> Changes:
    return _only_execution(
        record, _moved(read_row, index, record, Event.RECOVERY_PLANNED, recovery=record.body["recovery"])
    )


def _held(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    execution = _moved(read_row, index, record, Event.HELD, code=body["code"], fence=None, holder="")
    changes: Changes = [
        (rows.execution(record.execution), execution),
        _counted(read_row, _running_key(execution), -1),
    ]
    if not body["keep_lock"]:
        changes.append((_target_key(execution), None))
    return changes


def _resolved(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    resolution = {k: body[k] for k in ("finding", "operator", "owner", "reason_sha256")}
    return _only_execution(record, _moved(read_row, index, record, Event.RESOLVED, resolution=resolution))


def _sealed(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    before = _existing(read_row, rows.execution(record.execution))
    event = Event.SUCCEEDED if body["state"] == State.SUCCEEDED else Event.FAILED
    execution = _moved(
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
    changes.append((_target_key(execution), None))
    if not body["outcome_unknown"]:
        changes.append((rows.twin(execution["twin"]), None))
    if before["state"] == State.EXECUTING:
        changes.append(_counted(read_row, _running_key(execution), -1))
    return changes


def _disposition(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    execution = _touched(
        read_row,
        index,
        record,
        disposition={"kind": body["kind"], "sha256": body["disposition_sha256"], "index": index},
    )
    changes: Changes = [(rows.execution(record.execution), execution)]
    if body["finding"] in ("present", "absent"):
        changes.append((rows.twin(execution["twin"]), None))
    return changes


def _receipt(read_row: Read, index: int, record: Record) -> Changes:
    return [
        (rows.receipt(record.execution), {"execution": record.execution, "index": index, "records": [index]}),
    ]


def _activation(key_of: Callable[[Mapping[str, Any]], Key]) -> Callable[[Read, int, Record], Changes]:
    """Rows that one record determines whole: policy, contract, upstream, principal, daemon."""

    def rule(read_row: Read, index: int, record: Record) -> Changes:
        return [(key_of(record.body), {**record.body, "at": record.at, "records": [index]})]

    return rule


def _key_added(read_row: Read, index: int, record: Record) -> Changes:
    row = {**record.body, "state": "active", "records": [index]}
    return [(rows.key(record.body["kid"]), row), (rows.active_key(record.body["role"]), row)]


def _key_ended(read_row: Read, index: int, record: Record) -> Changes:
    """Retired or revoked; the record repeats what the row needs, so that it stands alone."""
    row = {**record.body, "state": str(record.type).partition(".")[2], "records": [index]}
    active = read_row(rows.active_key(record.body["role"]))
    changes: Changes = [(rows.key(record.body["kid"]), row)]
    if active and active["kid"] == record.body["kid"]:
        changes.append((rows.active_key(record.body["role"]), None))
    return changes


def _existing(read_row: Read, key: Key) -> Row:
    row = read_row(key)
    if row is None:
        raise ValueError(f"a record refers to {key[0]} {key[-1]}, which does not exist")
    return row


def _touched(read_row: Read, index: int, record: Record, **changes: Any) -> dict[str, Any]:
    row = _existing(read_row, rows.execution(record.execution))
    return {**row, **changes, "records": [*row["records"], index]}


def _moved(read_row: Read, index: int, record: Record, event: Event, **changes: Any) -> dict[str, Any]:
    row = _existing(read_row, rows.execution(record.execution))
    state, phase = advance((State(row["state"]), Phase(row["phase"])), event)
    return {**row, **changes, "state": str(state), "phase": str(phase), "records": [*row["records"], index]}


def _only_execution(record: Record, row: Row) -> Changes:
    return [(rows.execution(record.execution), row)]


def _counted(read_row: Read, key: Key, by: int) -> tuple[Key, Row | None]:
    row = read_row(key)
    count = (row["count"] if row else 0) + by
    return (key, {"count": count} if count else None)


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


_RULES: Final[Mapping[RecordType, Callable[[Read, int, Record], Changes]]] = {
    RecordType.PROPOSED: _proposed,
    RecordType.APPROVAL_REQUESTED: _approval_requested,
    RecordType.APPROVAL_DECIDED: _approval_decided,
    RecordType.APPROVAL_REVOKED: _approval_revoked,
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
    RecordType.POLICY_ACTIVATED: _activation(lambda body: rows.policy()),
    RecordType.CONTRACT_ACTIVATED: _activation(lambda b: rows.contract(b["operation"], b["environment"])),
    RecordType.UPSTREAM_ACTIVATED: _activation(lambda b: rows.upstream(b["name"])),
    RecordType.PRINCIPAL_CHANGED: _activation(lambda b: rows.principal(b["id"])),
    RecordType.KEY_ADDED: _key_added,
    RecordType.KEY_RETIRED: _key_ended,
    RecordType.KEY_REVOKED: _key_ended,
    RecordType.DAEMON_STARTED: _activation(lambda body: rows.daemon()),
}
