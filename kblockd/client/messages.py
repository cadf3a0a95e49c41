"""Client-side conversion: the envelope to a message; messages to outcomes, events and approvals."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from kblockd._proto.kblock.v1 import approval_service_pb2, execution_service_pb2, types_pb2
from kblockd.client.answers import Answer, answer
from kblockd.client.calls import Call
from kblockd.domain.canonical import canonical
from kblockd.domain.envelope import Envelope
from kblockd.domain.outcome import ApprovalView, CallOutcome, CallStatus, StageEvent

_CANCELLATION: Final = {
    "": types_pb2.CANCELLATION_BEHAVIOR_UNSPECIFIED,
    "signal": types_pb2.CANCELLATION_BEHAVIOR_SIGNAL,
    "none": types_pb2.CANCELLATION_BEHAVIOR_NONE,
}
_STATUSES: Final = {
    types_pb2.CALL_STATUS_COMPLETED: CallStatus.COMPLETED,
    types_pb2.CALL_STATUS_UPSTREAM_ERROR: CallStatus.UPSTREAM_ERROR,
    types_pb2.CALL_STATUS_APPROVAL_PENDING: CallStatus.APPROVAL_PENDING,
    types_pb2.CALL_STATUS_DENIED: CallStatus.DENIED,
    types_pb2.CALL_STATUS_IN_PROGRESS: CallStatus.IN_PROGRESS,
    types_pb2.CALL_STATUS_HELD: CallStatus.HELD,
}


def envelope(value: Envelope) -> types_pb2.Envelope:
    """Every field; absent fields stay absent. Raises ValueError for an unknown cancellation."""
    if value.cancellation not in _CANCELLATION:
        raise ValueError(f"cancellation: {value.cancellation!r} is neither signal nor none")
    binding = value.binding
    message = types_pb2.Envelope(
        schema_version=value.schema_version,
        run_id=value.run_id,
        action_id=value.action_id,
        requester=value.requester,
        agent=value.agent,
        tenant=value.tenant,
        organization=value.organization,
        environment=value.environment,
        target=types_pb2.Target(type=value.target.type, id=value.target.id, version=value.target.version),
        operation=value.operation,
        arguments_json=value.arguments_json,
        arguments_sha256=value.arguments_sha256,
        binding=types_pb2.ToolBinding(
            upstream=binding.upstream,
            server_version=binding.server_version,
            tool=binding.tool,
            definition_sha256=binding.definition_sha256,
        ),
        policy_revision=value.policy_revision,
        approval_id=value.approval_id,
        preconditions_json=_object(value.preconditions),
        postconditions_json=_object(value.postconditions),
        maximum_attempts=value.maximum_attempts,
        cancellation=_CANCELLATION[value.cancellation],
        compensation_ref=value.compensation_ref,
        evidence=value.evidence,
    )
    _optional(message, value)
    return message


def _optional(message: types_pb2.Envelope, value: Envelope) -> None:
    if value.has_caller_key:
        message.caller_key = value.caller_key
    if value.approval_expires_at is not None:
        message.approval_expires_at.CopyFrom(_moment(value.approval_expires_at))
    if value.deadline is not None:
        message.deadline.CopyFrom(_moment(value.deadline))
    if value.request_timeout is not None:
        message.request_timeout.CopyFrom(seconds(value.request_timeout))
    if value.budget is not None:
        budget = value.budget
        message.budget.CopyFrom(types_pb2.Budget(count=budget.count, amount=budget.amount, unit=budget.unit))


def seconds(value: float) -> Duration:
    """To the nanosecond."""
    message = Duration()
    message.FromNanoseconds(round(value * 1e9))
    return message


def read_outcome(message: types_pb2.Outcome, call: Call | None) -> Answer:
    """The typed answer; raises ValueError for an unknown status of a newer daemon."""
    if message.status not in _STATUSES:
        raise ValueError(f"{message.execution_id}: this client does not know status {message.status}; update it")
    outcome = CallOutcome(
        execution_id=message.execution_id,
        status=_STATUSES[message.status],
        state=message.state,
        phase=message.phase,
        result_class=message.result_class,
        code=message.code,
        detail=message.detail,
        executed=message.executed,
        consumed=message.consumed,
        outcome_unknown=message.outcome_unknown,
        replayed=message.replayed,
        action_sha256=message.action_sha256,
        approval_id=message.approval_id,
        output_json=message.output_json,
        result_dsse=message.result_dsse,
        receipt_dsse=message.receipt_dsse,
        receipt_proof=message.receipt_proof,
        no_receipt_reason=message.no_receipt_reason,
    )
    return answer(outcome, call, output_omitted=message.output_omitted)


def read_event(message: execution_service_pb2.StageEvent) -> StageEvent:
    """One durable record."""
    return StageEvent(
        ledger_index=message.ledger_index,
        stage=message.stage,
        name=message.name,
        at=_utc(message.at),
        took_microseconds=message.took.ToMicroseconds(),
        record_type=message.record_type,
        code=message.code,
        stages=tuple((time.stage, time.microseconds) for time in message.stages),
    )


def read_approval(message: approval_service_pb2.Approval) -> ApprovalView:
    """The approval as an approver reads it."""
    return ApprovalView(
        approval_id=message.approval_id,
        execution_id=message.execution_id,
        action_sha256=message.action_sha256,
        summary=message.summary,
        arguments_json=message.arguments_json,
        requester=message.requester,
        not_before=_utc(message.not_before),
        not_after=_utc(message.not_after),
        agent=message.agent,
        operation=message.operation,
        environment=message.environment,
        risk_tier=message.risk_tier,
        upstream=message.upstream,
        tool=message.tool,
        intent_json=message.intent_json,
        warnings=tuple(message.warnings),
        presented_sha256=message.presented_sha256,
        state=message.state,
        tenant=message.tenant,
        count=message.count,
        roles=tuple(message.roles),
        floor_roles=tuple(message.floor_roles),
        raised=message.raised,
        target_type=message.target.type,
        target_id=message.target.id,
        target_version=message.target.version,
        target_version_note=message.target_version_note,
    )


def _object(value: dict[str, Any] | None) -> bytes:
    return b"" if value is None else canonical(value)


def _moment(value: dt.datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(value.astimezone(dt.UTC))
    return message


def _utc(message: Timestamp) -> dt.datetime:
    return message.ToDatetime(tzinfo=dt.UTC)
