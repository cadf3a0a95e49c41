"""The bounds of an envelope may only tighten the contract (proto/kblock/v1/types.proto; R025 to R029)."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from kblockd.domain.clock import rfc3339
from kblockd.domain.contract.model import ActionContract
from kblockd.domain.envelope import Envelope
from kblockd.domain.errors import InvalidArgument
from kblockd.domain.values import value_type

RECORDS: Final = (
    "record_precondition_snapshot",
    "record_tool_contract_hash",
    "record_downstream_operation_id",
    "record_verification_result",
    "record_recovery_actions",
)


@value_type(frozen=True, slots=True)
class EffectiveLimits:
    """What holds for one execution: the contract, tightened. Part of the action digest."""

    request_timeout_ms: int
    absolute_deadline_seconds: int
    deadline: dt.datetime | None
    maximum_attempts: int
    maximum_concurrent_actions: int
    cancellation: str
    preconditions: Mapping[str, Any]
    postconditions: Mapping[str, Any]
    verification_seconds: int
    compensation: str = ""

    @property
    def request_timeout_seconds(self) -> float:
        """For the whole exchange of one attempt (C18)."""
        return self.request_timeout_ms / 1000

    def no_attempt_after(self, consumed_at: dt.datetime) -> dt.datetime:
        """The moment after which no attempt begins: counted from the consumption (stage 9), or the envelope's."""
        bound = consumed_at + dt.timedelta(seconds=self.absolute_deadline_seconds)
        return bound if self.deadline is None else min(bound, self.deadline)

    def until(self, deadline: dt.datetime | None) -> EffectiveLimits:
        """The same, ended by ``deadline`` as well: the earlier one holds (R025)."""
        if deadline is None or (self.deadline is not None and self.deadline <= deadline):
            return self
        return dataclasses.replace(self, deadline=deadline)

    def as_json(self) -> dict[str, Any]:
        """``limits`` of the action document (kblockd/domain/digests.md#digests); whole numbers, units in the names."""
        return {
            "requestTimeoutMs": self.request_timeout_ms,
            "absoluteDeadlineSeconds": self.absolute_deadline_seconds,
            "deadline": rfc3339(self.deadline) if self.deadline else "",
            "maximumAttempts": self.maximum_attempts,
            "maximumConcurrentActions": self.maximum_concurrent_actions,
            "cancellation": self.cancellation,
            "preconditions": dict(self.preconditions),
            "postconditions": dict(self.postconditions),
            "verificationSeconds": self.verification_seconds,
            "compensation": self.compensation,
        }


def tighten(contract: ActionContract, envelope: Envelope) -> EffectiveLimits:
    """The contract under the envelope's bounds; raises ``InvalidArgument`` naming the field that would widen it."""
    execution = contract.execution
    if envelope.budget is not None:
        raise InvalidArgument.field("envelope.budget", "not supported yet; leave it out")
    if envelope.maximum_attempts > execution.maximum_attempts:
        raise _wider("maximum_attempts", str(envelope.maximum_attempts), str(execution.maximum_attempts))
    if envelope.cancellation not in ("", contract.cancellation):
        raise _wider("cancellation", envelope.cancellation, contract.cancellation)
    for position, name in enumerate(envelope.evidence):
        if name not in RECORDS:
            raise InvalidArgument.field(f"envelope.evidence[{position}]", f"is none of {', '.join(RECORDS)}")
    return EffectiveLimits(
        request_timeout_ms=_request_timeout_ms(contract, envelope.request_timeout),
        absolute_deadline_seconds=execution.absolute_deadline_seconds,
        deadline=envelope.deadline,
        maximum_attempts=envelope.maximum_attempts or execution.maximum_attempts,
        maximum_concurrent_actions=execution.maximum_concurrent_actions,
        cancellation=contract.cancellation,
        preconditions=envelope.preconditions or {},
        postconditions=envelope.postconditions or {},
        verification_seconds=contract.verification.maximum_duration_seconds,
    )


def _request_timeout_ms(contract: ActionContract, seconds: float | None) -> int:
    bound = contract.execution.request_timeout_seconds
    if seconds is None:
        return bound * 1000
    if not 0.001 <= seconds <= bound:
        if seconds < bound:
            raise InvalidArgument.field("envelope.request_timeout", "must be at least one millisecond")
        raise _wider("request_timeout", f"{seconds:g} s", f"{bound} s")
    return round(seconds * 1000)


def _wider(name: str, asked: str, bound: str) -> InvalidArgument:
    description = f"{asked} is wider than the action contract's {bound}; it may only tighten"
    return InvalidArgument.field(f"envelope.{name}", description)
