"""The action contract: what an action may do, how its outcome is proved, and what happens when it cannot be.

Every action type has one before it can be used (R046). The keys are those of the policy (R556 to R603) and the contract
items (R047 to R059). Values are set for each tool (R605). ``config/README.md`` explains each key to those who
write one; ``parse`` is the only way in that reports every fault with its path.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from kblockd.domain import canonical
from kblockd.domain.contract import checks
from kblockd.domain.contract.additions import without_additions
from kblockd.domain.contract.arguments import ArgumentsValidator
from kblockd.domain.contract.errors import ToolErrors
from kblockd.domain.contract.reading import Lookup, Reads
from kblockd.domain.contract.words import (
    ADDED,
    FROM_LIST,
    ActionType,
    Always,
    Count,
    JsonObject,
    Later,
    Name,
    Never,
    NotYet,
    Part,
    Pointer,
    Seconds,
    SecondsOrZero,
    Text,
    ToolName,
    later_words,
)

INVALID_CONTRACT = "kblockd_contract"
STORED = "stored"
"""In a validation's context: the contract comes from a ledger, perhaps of an older version."""


class Action(Part):
    """R557 to R559: the operation and environment that select the contract, and its risk."""

    type: ActionType
    risk_tier: Literal["low", "medium", "high", "critical"]
    environment: Name


class EffectKey(Part):
    """Where the key that the daemon derives travels to the upstream; ``none``: it is not sent."""

    place: Literal["argument", "meta", "header", "none"] = Field(alias="in")
    name: str = ""


class Tool(Part):
    """The one tool that has the effect. Tools that are only read stand under ``reads`` and ``lookup``.

    Without ``errors`` no error answer proves anything.
    """

    upstream: Name
    name: ToolName
    kind: Annotated[Literal["write"], later_words("read")]
    errors_are_effect_free: bool
    errors: Annotated[ToolErrors | None, ADDED] = None
    effect_key: EffectKey
    arguments_schema: JsonObject


class Target(Part):
    """R047: the type of what is changed, and the pointer into the arguments that names it."""

    type: Name
    id: Pointer


class Preflight(Part):
    """R560 to R566. The pipeline always does the first five; the version check needs ``reads.snapshot.version``."""

    revalidate_identity: Always = True
    revalidate_policy: Always = True
    revalidate_approval: Always = True
    require_no_conflicting_operation: Always = True
    acquire_execution_lease: Always = True
    require_current_resource_version: bool
    reserve_authority_budget: NotYet = False


class Execution(Part):
    """R567 to R574. Time-outs in seconds; the absolute deadline counts from the consumption (stage 9)."""

    require_idempotency_key: bool
    maximum_attempts: Annotated[int, Field(ge=1, le=10)]
    request_timeout_seconds: Seconds
    absolute_deadline_seconds: Seconds
    maximum_concurrent_actions: Count
    retry_unknown_outcome: NotYet = False
    sandbox_profile: Literal["api_only"] = "api_only"
    credential_source: Annotated[Literal["static", "none"] | None, later_words("workload_identity")] = None


class Progress(Part):
    """R575 to R577. Nothing asks for progress in this version, so nothing can extend a time-out."""

    accept_protocol_progress: NotYet = False
    progress_may_extend_request_timeout: NotYet = False
    progress_may_extend_absolute_deadline: NotYet = False


class Verification(Part):
    """R578 to R586 and R261 to R267. ``expected``, ``tolerated`` and ``prohibited`` are data for Rego."""

    required: bool
    authoritative_read_tool: ToolName | None
    maximum_duration_seconds: Seconds
    poll_interval_seconds: Seconds
    consistency_delay_seconds: SecondsOrZero = 0
    expected: JsonObject
    tolerated: JsonObject = Field(default_factory=dict)
    prohibited: JsonObject
    independent_data_sources: Later = None
    required_confidence: Later = None
    escalation_threshold: Later = None
    conflicting_evidence: Later = None


class Recovery(Part):
    """R587 to R592: the words that bound what ``kblock.recovery`` may choose (``derive.permitted_recoveries``)."""

    transient_failure: Literal["retry_same_idempotency_key", "manual"]
    unknown_outcome: Literal["reconcile"]
    partial_completion: Literal["contain_then_evaluate", "contain", "manual"]
    verification_failure: Annotated[Literal["contain", "manual"], later_words("manual_or_compensate", "compensate")]
    compensation_workflow: Later = None
    irreversible_step: bool


class Evidence(Part):
    """R593 to R599: what an execution leaves behind."""

    record_precondition_snapshot: Always = True
    record_tool_contract_hash: Always = True
    record_downstream_operation_id: Always = True
    record_verification_result: Always = True
    record_recovery_actions: Always = True
    capture_raw_credentials: Never = False
    capture_sensitive_content: NotYet = False


class Emergency(Part):
    """R600 to R603: later; a contract may say that it does not count on them."""

    action_kill_switch: NotYet = False
    tool_kill_switch: NotYet = False
    credential_revocation: NotYet = False
    operator_handoff: NotYet = False


class Owners(Part):
    """R678 to R686: who answers for what. Text for people and for the approver; code compares nothing."""

    action_contract: Text | None = None
    runtime_engine: Text | None = None
    idempotency: Text | None = None
    sandbox_identity: Text | None = None
    verification: Text | None = None
    compensation: Text | None = None
    telemetry: Text | None = None
    incident: Text | None = None
    final_outcome: Text | None = None


class ActionContract(Part):
    """One action type in one environment. Frozen; ``sha256`` is what approvals and results bind.

    Raises ``pydantic.ValidationError``; use ``parse`` for faults with paths.
    """

    version: Annotated[int, Field(ge=1)]
    action: Action
    tool: Tool
    target: Target
    intent: JsonObject | None = None
    summary: Text
    preconditions: JsonObject = Field(default_factory=dict)
    reads: Reads
    lookup: Annotated[tuple[Lookup, ...], FROM_LIST]
    side_effects: Annotated[tuple[Text, ...], FROM_LIST, Field(min_length=1)]
    point_of_no_return: bool
    idempotency_scope: Literal["effect_key", "none"]
    cancellation: Annotated[Literal["none"], later_words("signal")] = "none"
    preflight: Preflight
    execution: Execution
    progress: Progress = Progress()
    verification: Verification
    recovery: Recovery
    evidence: Evidence
    emergency: Emergency = Emergency()
    owners: Owners = Owners()
    reveal: Annotated[tuple[Pointer, ...], FROM_LIST]

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> ActionContract:
        if faults := checks.faults(self, stored=bool(info.context and info.context.get(STORED))):
            text = "; ".join(map(str, faults))
            raise PydanticCustomError(INVALID_CONTRACT, "{text}", {"text": text, "faults": tuple(faults)})
        return self

    @property
    def operation(self) -> str:
        """The envelope's ``operation``: ``action.type``."""
        return self.action.type

    @property
    def environment(self) -> str:
        """The envelope's ``environment``."""
        return self.action.environment

    @property
    def key(self) -> tuple[str, str]:
        """(operation, environment): what selects a contract."""
        return self.action.type, self.action.environment

    @property
    def requires_approval(self) -> bool:
        """R003, R307, R762: past a point of no return policy alone is not enough; a person approves."""
        return self.point_of_no_return or self.recovery.irreversible_step

    @cached_property
    def document(self) -> dict[str, Any]:
        """Every key with its effective value as plain JSON, defaults included: Rego's ``input.contract``. Read only.

        Keys that came later are in it only where they are not at their defaults (``additions``).
        """
        return without_additions(self, self.model_dump(mode="json", by_alias=True))

    @cached_property
    def sha256(self) -> str:
        """SHA-256 over the JCS of ``document``, lowercase hex: contractSha256 of kblockd/domain/digests.md."""
        return canonical.digest(self.document)

    @cached_property
    def arguments(self) -> ArgumentsValidator:
        """The compiled ``tool.arguments_schema``."""
        return ArgumentsValidator(self.tool.arguments_schema)
