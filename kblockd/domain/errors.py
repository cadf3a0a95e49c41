"""The error tree: one class a gRPC code, one ``Reason`` a fault that a caller can act on.

::

    KblockError
      InvalidArgument       a field is wrong; nothing was recorded
      Unauthenticated       no principal
      PermissionDenied      policy or role forbids
      NotFound              no such execution, approval or record (or not visible to the caller)
      AlreadyExists         the key is bound to another call, or the race is over
      Aborted               lost a race; repeat
      FailedPrecondition    a pin, a binding, a state or a precondition does not hold
      ResourceExhausted     overload or a cap
      Unavailable           a dependency failed; nothing was executed unless ``execution_id`` says so
      Internal              a defect; the detail stays in the log

Services translate in one place (``kblockd.rpc.status``). Source: kblockd/rpc/README.md#what-a-call-answers; R673.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Reason(enum.StrEnum):
    """Stable words for ``google.rpc.ErrorInfo.reason``."""

    INVALID_FIELD = "INVALID_FIELD"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    UNKNOWN_SCHEMA_VERSION = "UNKNOWN_SCHEMA_VERSION"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    REPLAY = "REPLAY"
    DUPLICATE_IN_FLIGHT = "DUPLICATE_IN_FLIGHT"
    TARGET_BUSY = "TARGET_BUSY"
    CONFLICT = "CONFLICT"
    KEY_EXPIRED = "KEY_EXPIRED"
    TWIN_UNRESOLVED = "TWIN_UNRESOLVED"
    POLICY_CHANGED = "POLICY_CHANGED"
    OBSERVE_ENDED = "OBSERVE_ENDED"
    UNPINNED_TOOL = "UNPINNED_TOOL"
    TOOL_CHANGED = "TOOL_CHANGED"
    BINDING_CHANGED = "BINDING_CHANGED"
    PIN_MISMATCH = "PIN_MISMATCH"
    PREFLIGHT_FAILED = "PREFLIGHT_FAILED"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    DEADLINE_PASSED = "DEADLINE_PASSED"
    APPROVAL_NOT_VALID = "APPROVAL_NOT_VALID"
    APPROVAL_INSUFFICIENT = "APPROVAL_INSUFFICIENT"
    UPSTREAM_UNAVAILABLE = "UPSTREAM_UNAVAILABLE"
    TARGET_UNREADABLE = "TARGET_UNREADABLE"
    WRONG_STATE = "WRONG_STATE"
    SHOWN_DIFFERS = "SHOWN_DIFFERS"
    POLICY_UNDEFINED = "POLICY_UNDEFINED"
    POLICY_TYPE = "POLICY_TYPE"
    POLICY_ERROR = "POLICY_ERROR"
    POLICY_TIMEOUT = "POLICY_TIMEOUT"
    POLICY_DOWN = "POLICY_DOWN"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    COMMIT_UNKNOWN = "COMMIT_UNKNOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    CLOCK_BEHIND = "CLOCK_BEHIND"
    OVERLOAD = "OVERLOAD"
    CONCURRENCY_LIMIT = "CONCURRENCY_LIMIT"
    PENDING_LIMIT = "PENDING_LIMIT"
    PRINCIPAL_LIMIT = "PRINCIPAL_LIMIT"
    STORED_UNREADABLE = "STORED_UNREADABLE"
    NO_RECEIPT = "NO_RECEIPT"
    INTERNAL = "INTERNAL"


class Left(enum.StrEnum):
    """What a refusal leaves, as the sentence that closes its message.

    It is true of an action that was not consumed. Who refuses one that was takes ``KblockError.what``, which is the
    message without it.
    """

    NOTHING = "Nothing was executed or consumed."
    NOBODY_ASKED = "Nothing was executed or consumed, and nobody was asked."
    APPROVED = "Nothing was executed or consumed; the action stays approved."
    NO_ATTEMPT = "Nothing was executed for this attempt."


@dataclass(frozen=True, slots=True)
class Violation:
    """One wrong field: its path in the request and what was wrong with it."""

    field: str
    description: str


class KblockError(Exception):
    """What a caller is told: a reason, a sentence, whether anything happened, and the next step.

    ``executed`` and ``consumed`` say what is known of the action at the time of the refusal, None where nobody has
    looked; ``retryable`` means that the identical call may be repeated as it is. ``on_record``: the refusal is in the
    ledger already, with the decision that led to it.
    """

    on_record = False

    def __init__(
        self,
        reason: Reason,
        what: str,
        left: Left | None = None,
        *,
        violations: Sequence[Violation] = (),
        executed: bool | None = False,
        consumed: bool | None = False,
        retryable: bool = False,
        next_step: str = "",
        execution_id: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        message = what if left is None else f"{what} {left}"
        super().__init__(message)
        self.reason = reason
        self.what = what
        self.message = message
        self.violations = tuple(violations)
        self.executed = executed
        self.consumed = consumed
        self.retryable = retryable
        self.next_step = next_step
        self.execution_id = execution_id
        self.retry_after_seconds = retry_after_seconds


class InvalidArgument(KblockError):
    """A field is wrong. Nothing was recorded, executed or consumed."""

    @classmethod
    def field(cls, field: str, description: str, *, reason: Reason = Reason.INVALID_FIELD) -> InvalidArgument:
        """The usual case: one field, one fault."""
        return cls(
            reason,
            f"{field}: {description}. Nothing was executed or consumed.",
            violations=(Violation(field, description),),
            next_step=f"correct {field} and call again",
        )


class Unauthenticated(KblockError):
    """No principal stands behind the call."""


class PermissionDenied(KblockError):
    """Policy, role or separation of duties forbids the call."""


class NotFound(KblockError):
    """No such thing, or none that the caller may see."""


class AlreadyExists(KblockError):
    """The caller key is bound to another call, or an identical call has finished."""


class Aborted(KblockError):
    """A race was lost; the identical call may be repeated."""


class FailedPrecondition(KblockError):
    """Something that must hold does not; the message says what, and whether the action stays approved."""


class ResourceExhausted(KblockError):
    """A cap or overload; repeat later."""


class Unavailable(KblockError):
    """A dependency failed; closed means denied."""


class Internal(KblockError):
    """A defect of kblockd; the caller learns no detail."""
