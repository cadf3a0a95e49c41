"""The types of refusals and lost answers: reason, what happened, whether to repeat, and the next step (R673).

::

    CallError
      InvalidArgumentError, UnauthenticatedError, PermissionDeniedError, NotFoundError, AlreadyExistsError,
      AbortedError, FailedPreconditionError, ResourceExhaustedError, InternalError
      UnavailableError   from the daemon, or with ``outcome_unknown`` and NETWORK_ERROR, TIMEOUT, HTTP_ERROR (R671)
    ApprovalTimeout      the wait ended, the approval is still pending
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types

from kblockd.client.answers import Answer
from kblockd.client.calls import Call
from kblockd.domain.errors import Violation

DOMAIN: Final = "kblockd"
NETWORK_ERROR: Final = "NETWORK_ERROR"
TIMEOUT: Final = "TIMEOUT"
HTTP_ERROR: Final = "HTTP_ERROR"
_DETAILS_KEY: Final = "grpc-status-details-bin"
# Parts of gRPC's messages when an HTTP server that is not gRPC answered, such as a proxy.
_HTTP_WORDS: Final = ("http2 header with status", "http status", "content-type")
_RESUME: Final = "resume the call: the same key repeats it exactly and never runs it twice"


class CallError(Exception):
    """``executed`` and ``consumed`` are None if unknown; ``call`` is the call to resume, None for reads."""

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: str = "",
        executed: bool | None = None,
        consumed: bool | None = None,
        retryable: bool = False,
        next_step: str = "",
        execution_id: str = "",
        correlation_id: str = "",
        violations: tuple[Violation, ...] = (),
        retry_after_seconds: float | None = None,
        outcome_unknown: bool = False,
        call: Call | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.code = code
        self.executed = executed
        self.consumed = consumed
        self.retryable = retryable
        self.next_step = next_step
        self.execution_id = execution_id
        self.correlation_id = correlation_id
        self.violations = violations
        self.retry_after_seconds = retry_after_seconds
        self.outcome_unknown = outcome_unknown
        self.call = call


class InvalidArgumentError(CallError):
    """A field is wrong; ``violations`` names each. Nothing was recorded."""


class UnauthenticatedError(CallError):
    """The connection has no principal."""


class PermissionDeniedError(CallError):
    """Policy, role or separation of duties forbids the call."""


class NotFoundError(CallError):
    """It does not exist or is not visible to the caller."""


class AlreadyExistsError(CallError):
    """The caller key is bound to another call, or an identical call has finished."""


class AbortedError(CallError):
    """A race was lost; repeat the identical call."""


class FailedPreconditionError(CallError):
    """A required condition does not hold."""


class ResourceExhaustedError(CallError):
    """A limit was reached, or the daemon is overloaded; repeat later."""


class UnavailableError(CallError):
    """There was no answer, or a dependency of the daemon failed."""


class InternalError(CallError):
    """A defect of the daemon; ``correlation_id`` names its log line."""


class ApprovalTimeout(TimeoutError):
    """The wait ended; the approval is still pending and ``pending.call`` may be repeated (APR-06)."""

    def __init__(self, pending: Answer) -> None:
        super().__init__(f"{pending.execution_id} is still waiting for approval {pending.approval_id}")
        self.pending = pending


_CLASSES: Final[dict[grpc.StatusCode, type[CallError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.INTERNAL: InternalError,
}
# gRPC itself sends these before a handler has seen the call, so nothing is unknown.
_REFUSED_BY_GRPC: Final = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)


def from_rpc(error: Any, *, effect: bool, call: Call | None) -> CallError:
    """The error for a ``grpc.RpcError`` of either client. ``effect``: without an answer it is unknown what the daemon
    did."""
    code: grpc.StatusCode = error.code()
    text = error.details() or ""
    status = _status(error.trailing_metadata() or ())
    info = _info(status)
    if info is None:
        return _without_details(code, text, effect=effect, call=call)
    metadata = info.metadata
    executed, consumed = _known(metadata.get("executed")), _known(metadata.get("consumed"))
    retryable = metadata.get("retryable") == "true"
    # Consumed and not retryable means that stage 9 was passed: what happened must be looked up (R669).
    unknown = executed is None or (code is grpc.StatusCode.UNAVAILABLE and bool(consumed) and not retryable)
    return _CLASSES.get(code, InternalError)(
        status.message,
        reason=info.reason,
        code=code.name,
        executed=executed,
        consumed=consumed,
        retryable=retryable,
        next_step=metadata.get("next_step", ""),
        execution_id=metadata.get("execution_id", ""),
        correlation_id=metadata.get("correlation_id", ""),
        violations=_violations(status),
        retry_after_seconds=_retry_after(status),
        outcome_unknown=effect and unknown,
        call=call,
    )


def _without_details(code: grpc.StatusCode, text: str, *, effect: bool, call: Call | None) -> CallError:
    """For errors from outside the daemon's handlers: the network, a proxy, the deadline, or a refusal by gRPC."""
    if code in _REFUSED_BY_GRPC:
        kind = _CLASSES.get(code, FailedPreconditionError)
        return kind(text, reason=code.name, code=code.name, executed=False, consumed=False, call=call)
    return UnavailableError(
        text or code.name.lower(),
        reason=_transport_reason(code, text),
        code=code.name,
        retryable=not effect,
        next_step=_RESUME if effect else "repeat the request",
        outcome_unknown=effect,
        call=call,
    )


def _transport_reason(code: grpc.StatusCode, text: str) -> str:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TIMEOUT
    lowered = text.lower()
    if any(words in lowered for words in _HTTP_WORDS):
        return HTTP_ERROR
    return NETWORK_ERROR


def _status(metadata: Iterable[tuple[str, str | bytes]]) -> Any:
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return status_pb2.Status.FromString(value)
    return status_pb2.Status()


def _info(status: Any) -> Any:
    info = error_details_pb2.ErrorInfo()
    return next((info for detail in status.details if detail.Unpack(info) and info.domain == DOMAIN), None)


def _violations(status: Any) -> tuple[Violation, ...]:
    request = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(request):
            return tuple(Violation(v.field, v.description) for v in request.field_violations)
    return ()


def _retry_after(status: Any) -> float | None:
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            return float(retry.retry_delay.ToNanoseconds() / 1e9)
    return None


def _known(word: str | None) -> bool | None:
    return {"true": True, "false": False}.get(word or "")
