"""Domain objects to messages of at most 4 MiB, because a larger answer would fail after the work was done.

Source: kblockd/rpc/README.md#what-a-call-answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from kblockd._proto.kblock.v1 import approval_service_pb2, execution_service_pb2, ledger_service_pb2, types_pb2
from kblockd.domain.outcome import ApprovalView, CallOutcome, CallStatus, StageEvent

MAX_ANSWER: Final = 4 << 20
LEAVES_BUDGET: Final = 3 << 20  # bytes of leaves in one answer; the remainder is for framing

_STATUSES: Final = {
    CallStatus.COMPLETED: types_pb2.CALL_STATUS_COMPLETED,
    CallStatus.UPSTREAM_ERROR: types_pb2.CALL_STATUS_UPSTREAM_ERROR,
    CallStatus.APPROVAL_PENDING: types_pb2.CALL_STATUS_APPROVAL_PENDING,
    CallStatus.DENIED: types_pb2.CALL_STATUS_DENIED,
    CallStatus.IN_PROGRESS: types_pb2.CALL_STATUS_IN_PROGRESS,
    CallStatus.HELD: types_pb2.CALL_STATUS_HELD,
}


def outcome(value: CallOutcome) -> types_pb2.Outcome:
    """The complete outcome for its caller."""
    message = listed(value)
    message.output_json = value.output_json
    message.result_dsse = value.result_dsse
    message.receipt_dsse = value.receipt_dsse
    message.receipt_proof = value.receipt_proof
    return message


def listed(value: CallOutcome) -> types_pb2.Outcome:
    """Without output and evidence, to keep pages small."""
    return types_pb2.Outcome(
        execution_id=value.execution_id,
        status=_STATUSES[value.status],
        state=value.state,
        phase=value.phase,
        result_class=value.result_class,
        code=value.code,
        detail=value.detail,
        executed=value.executed,
        consumed=value.consumed,
        outcome_unknown=value.outcome_unknown,
        replayed=value.replayed,
        action_sha256=value.action_sha256,
        approval_id=value.approval_id,
        no_receipt_reason=value.no_receipt_reason,
    )


def fit(answer: Message, held: types_pb2.Outcome) -> None:
    """Drops the output of ``held`` (part of ``answer``) if the answer would be too large to send."""
    if answer.ByteSize() > MAX_ANSWER - 1024:
        held.output_json = b""
        held.output_omitted = True


def event(value: StageEvent) -> execution_service_pb2.StageEvent:
    """One event of Get and Watch."""
    return execution_service_pb2.StageEvent(
        ledger_index=value.ledger_index,
        stage=value.stage,
        name=value.name,
        at=moment(value.at),
        took=microseconds(value.took_microseconds),
        record_type=value.record_type,
        code=value.code,
        stages=[
            execution_service_pb2.StageTime(stage=number, microseconds=microseconds)
            for number, microseconds in value.stages
        ],
    )


def approval(value: ApprovalView) -> approval_service_pb2.Approval:
    """Everything that the approver is shown and that ``presented_sha256`` covers."""
    message = listed_approval(value)
    message.arguments_json = value.arguments_json
    message.intent_json = value.intent_json
    return message


def listed_approval(value: ApprovalView) -> approval_service_pb2.Approval:
    """Without arguments and intent, to keep pages small."""
    return approval_service_pb2.Approval(
        approval_id=value.approval_id,
        execution_id=value.execution_id,
        action_sha256=value.action_sha256,
        summary=value.summary,
        requester=value.requester,
        state=value.state,
        not_before=moment(value.not_before),
        not_after=moment(value.not_after),
        agent=value.agent,
        operation=value.operation,
        environment=value.environment,
        risk_tier=value.risk_tier,
        upstream=value.upstream,
        tool=value.tool,
        presented_sha256=value.presented_sha256,
        warnings=value.warnings,
        tenant=value.tenant,
        count=value.count,
        roles=value.roles,
        floor_roles=value.floor_roles,
        raised=value.raised,
        target=types_pb2.Target(type=value.target_type, id=value.target_id, version=value.target_version),
        target_version_note=value.target_version_note,
    )


def leaves(records: Iterable[tuple[int, bytes]]) -> list[ledger_service_pb2.Leaf]:
    """As many, in order, as fit into one answer; at least one."""
    fitting: list[ledger_service_pb2.Leaf] = []
    size = 0
    for index, leaf in records:
        size += len(leaf)
        if fitting and size > LEAVES_BUDGET:
            break
        fitting.append(ledger_service_pb2.Leaf(index=index, leaf=leaf))
    return fitting


def moment(value: dt.datetime) -> Timestamp:
    """UTC, to the microsecond."""
    message = Timestamp()
    message.FromDatetime(value.astimezone(dt.UTC))
    return message


def microseconds(value: int) -> Duration:
    """A duration."""
    message = Duration()
    message.FromMicroseconds(value)
    return message
