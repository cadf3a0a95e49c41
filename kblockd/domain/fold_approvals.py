"""The fold over approvals: requested, decided, revoked. Their use and their end are the execution's (``fold``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kblockd.domain import rows
from kblockd.domain.moves import check, counted, existing, moved, taken, touched
from kblockd.domain.records import Record, RecordType
from kblockd.domain.rows import Changes, Read
from kblockd.domain.states import Event


def _approval_requested(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    execution = moved(read_row, index, record, Event.APPROVAL_REQUESTED, approval_id=body["approval_id"])
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
        taken(read_row, rows.approval(body["approval_id"]), approval),
        counted(read_row, rows.pending(record.tenant, execution["agent"]), 1),
    ]


def _approval_decided(read_row: Read, index: int, record: Record) -> Changes:
    body = record.body
    key = rows.approval(body["approval_id"])
    approval = existing(read_row, key)
    check(approval["state"] == "pending", record, f"the approval is {approval['state']}")
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
    execution = moved(read_row, index, record, Event.APPROVED) if complete else touched(read_row, index, record)
    changes: Changes = [
        (rows.execution(record.execution), execution),
        (key, {**approval, "decisions": decisions, "state": state, "records": execution["records"]}),
    ]
    if complete:
        changes.append(counted(read_row, rows.pending(record.tenant, execution["agent"]), -1))
    return changes


def _approval_revoked(read_row: Read, index: int, record: Record) -> Changes:
    key = rows.approval(record.body["approval_id"])
    approval = existing(read_row, key)
    check(approval["state"] in ("pending", "approved"), record, f"the approval is {approval['state']}")
    execution = touched(read_row, index, record)
    changed = {**approval, "state": "revoked", "records": execution["records"]}
    return [(rows.execution(record.execution), execution), (key, changed)]


APPROVALS: Final[Mapping[RecordType, Callable[[Read, int, Record], Changes]]] = {
    RecordType.APPROVAL_REQUESTED: _approval_requested,
    RecordType.APPROVAL_DECIDED: _approval_decided,
    RecordType.APPROVAL_REVOKED: _approval_revoked,
}
