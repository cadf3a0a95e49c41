"""What a call answers, free of any wire format (kblockd/rpc/README.md#what-a-call-answers)."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass


class CallStatus(enum.StrEnum):
    """The statuses of ``kblock.v1.CallStatus``."""

    COMPLETED = "completed"
    UPSTREAM_ERROR = "upstream_error"
    APPROVAL_PENDING = "approval_pending"
    DENIED = "denied"
    IN_PROGRESS = "in_progress"
    HELD = "held"


class Finding(enum.StrEnum):
    """What a reconciliation or an operator found of the effect."""

    PRESENT = "present"
    ABSENT = "absent"
    UNPROVABLE = "unprovable"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One execution as its caller may see it; ``output_json`` holds only what the contract reveals."""

    execution_id: str
    status: CallStatus
    state: str
    phase: str = ""
    result_class: str = ""
    code: str = ""
    detail: str = ""
    executed: bool = False
    consumed: bool = False
    outcome_unknown: bool = False
    replayed: bool = False
    action_sha256: str = ""
    approval_id: str = ""
    output_json: bytes = b""
    result_dsse: bytes = b""
    receipt_dsse: bytes = b""
    receipt_proof: str = ""
    no_receipt_reason: str = ""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """One durable record of an execution; ``stages`` are (number, microseconds) of the stages that led to it."""

    ledger_index: int
    stage: int
    name: str
    at: dt.datetime
    took_microseconds: int
    record_type: str
    code: str
    stages: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """What an approver reads; ``presented_sha256`` is the digest of all of it but itself, ``state`` and ``tenant``.

    ``count`` owners must approve, each with one of ``roles`` and one of ``floor_roles`` (empty: any role); ``raised``
    says how the approval floor raised what policy asked for. ``target_version`` is that of the request; without one
    ``target_version_note`` says why.
    """

    approval_id: str
    execution_id: str
    action_sha256: str
    summary: str
    arguments_json: bytes
    requester: str
    not_before: dt.datetime
    not_after: dt.datetime
    agent: str
    operation: str
    environment: str
    risk_tier: str
    upstream: str
    tool: str
    intent_json: bytes
    warnings: tuple[str, ...]
    presented_sha256: str
    state: str
    tenant: str
    count: int
    roles: tuple[str, ...] = ()
    floor_roles: tuple[str, ...] = ()
    raised: str = ""
    target_type: str = ""
    target_id: str = ""
    target_version: str = ""
    target_version_note: str = ""


@dataclass(frozen=True, slots=True)
class Revocation:
    """An approval that was taken back before its use; ``ledger_index`` is that of its record."""

    approval_id: str
    execution_id: str
    ledger_index: int
