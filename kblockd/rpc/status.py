"""One table from reasons and error classes to gRPC codes, and ``google.rpc.Status`` with its details.

Source: kblockd/rpc/README.md#what-a-call-answers; R673 (status, code, detail, whether anything executed or was
consumed), R668, R669.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types

from kblockd.domain import errors
from kblockd.domain.errors import FailedPrecondition, Internal, KblockError, Reason, Unavailable
from kblockd.domain.ids import Ids
from kblockd.policy.engine import PolicyFailure
from kblockd.store.protocol import StoreFailed

DOMAIN: Final = "kblockd"
DETAILS_KEY: Final = "grpc-status-details-bin"
# Trailing metadata may have 8 KiB in all; beyond that the client's gRPC replaces the status, so longer texts are cut.
# The message is sent percent-encoded and the details as base64; both are measured in that form.
MAX_MESSAGE: Final = 1024
MAX_DETAILS: Final = 4800  # bytes, which base64 turns into 6,400
MAX_VIOLATIONS: Final = 12
MAX_DESCRIPTION: Final = 200

# For these it is unknown at the time of the answer whether anything was executed or consumed, so both are omitted.
UNDECIDED: Final = frozenset({Reason.INTERNAL, Reason.COMMIT_UNKNOWN, Reason.SHUTTING_DOWN})

_PRINTABLE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

_Code = grpc.StatusCode
_log = logging.getLogger(__name__)

CLASSES: Final[Mapping[type[KblockError], grpc.StatusCode]] = {
    errors.InvalidArgument: _Code.INVALID_ARGUMENT,
    errors.Unauthenticated: _Code.UNAUTHENTICATED,
    errors.PermissionDenied: _Code.PERMISSION_DENIED,
    errors.NotFound: _Code.NOT_FOUND,
    errors.AlreadyExists: _Code.ALREADY_EXISTS,
    errors.Aborted: _Code.ABORTED,
    errors.FailedPrecondition: _Code.FAILED_PRECONDITION,
    errors.ResourceExhausted: _Code.RESOURCE_EXHAUSTED,
    errors.Unavailable: _Code.UNAVAILABLE,
    errors.Internal: _Code.INTERNAL,
}

REASONS: Final[Mapping[Reason, grpc.StatusCode]] = {
    Reason.INVALID_FIELD: _Code.INVALID_ARGUMENT,
    Reason.UNKNOWN_TOOL: _Code.INVALID_ARGUMENT,
    Reason.UNKNOWN_SCHEMA_VERSION: _Code.INVALID_ARGUMENT,
    Reason.UNAUTHENTICATED: _Code.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: _Code.PERMISSION_DENIED,
    Reason.NOT_FOUND: _Code.NOT_FOUND,
    Reason.IDEMPOTENCY_CONFLICT: _Code.ALREADY_EXISTS,
    Reason.REPLAY: _Code.ALREADY_EXISTS,
    Reason.DUPLICATE_IN_FLIGHT: _Code.ABORTED,
    Reason.TARGET_BUSY: _Code.ABORTED,
    Reason.CONFLICT: _Code.ABORTED,
    Reason.KEY_EXPIRED: _Code.FAILED_PRECONDITION,
    Reason.TWIN_UNRESOLVED: _Code.FAILED_PRECONDITION,
    Reason.POLICY_CHANGED: _Code.FAILED_PRECONDITION,
    Reason.OBSERVE_ENDED: _Code.FAILED_PRECONDITION,
    Reason.UNPINNED_TOOL: _Code.FAILED_PRECONDITION,
    Reason.TOOL_CHANGED: _Code.FAILED_PRECONDITION,
    Reason.BINDING_CHANGED: _Code.FAILED_PRECONDITION,
    Reason.PIN_MISMATCH: _Code.FAILED_PRECONDITION,
    Reason.PREFLIGHT_FAILED: _Code.FAILED_PRECONDITION,
    Reason.PRECONDITION_FAILED: _Code.FAILED_PRECONDITION,
    Reason.DEADLINE_PASSED: _Code.FAILED_PRECONDITION,
    Reason.APPROVAL_NOT_VALID: _Code.FAILED_PRECONDITION,
    Reason.APPROVAL_INSUFFICIENT: _Code.FAILED_PRECONDITION,
    Reason.UPSTREAM_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.TARGET_UNREADABLE: _Code.FAILED_PRECONDITION,
    Reason.WRONG_STATE: _Code.FAILED_PRECONDITION,
    Reason.SHOWN_DIFFERS: _Code.FAILED_PRECONDITION,
    Reason.POLICY_UNDEFINED: _Code.UNAVAILABLE,
    Reason.POLICY_TYPE: _Code.UNAVAILABLE,
    Reason.POLICY_ERROR: _Code.FAILED_PRECONDITION,
    Reason.POLICY_TIMEOUT: _Code.UNAVAILABLE,
    Reason.POLICY_DOWN: _Code.UNAVAILABLE,
    Reason.STORE_UNAVAILABLE: _Code.UNAVAILABLE,
    Reason.COMMIT_UNKNOWN: _Code.UNAVAILABLE,
    Reason.SHUTTING_DOWN: _Code.UNAVAILABLE,
    Reason.CLOCK_BEHIND: _Code.UNAVAILABLE,
    Reason.OVERLOAD: _Code.RESOURCE_EXHAUSTED,
    Reason.CONCURRENCY_LIMIT: _Code.RESOURCE_EXHAUSTED,
    Reason.PENDING_LIMIT: _Code.RESOURCE_EXHAUSTED,
    Reason.PRINCIPAL_LIMIT: _Code.RESOURCE_EXHAUSTED,
    Reason.STORED_UNREADABLE: _Code.FAILED_PRECONDITION,
    Reason.NO_RECEIPT: _Code.FAILED_PRECONDITION,
    Reason.INTERNAL: _Code.INTERNAL,
}


def code_of(error: KblockError) -> grpc.StatusCode:
    """By the error's class, as its raiser chose; an error without a specific class goes by its reason."""
    return CLASSES.get(type(error)) or REASONS[error.reason]


def to_status(error: KblockError, *, correlation_id: str = "") -> status_pb2.Status:
    """``google.rpc.Status``: always ErrorInfo, BadRequest for wrong fields, RetryInfo if a time is known.

    An INTERNAL error carries only the correlation id, without executed/consumed, which are unknown.
    """
    internal = code_of(error) is _Code.INTERNAL
    message = f"internal error {correlation_id}".strip() if internal else _message(error.message)
    status = status_pb2.Status(code=code_of(error).value[0], message=message)
    metadata = _metadata(error, internal)
    if correlation_id:
        metadata["correlation_id"] = correlation_id
    info = error_details_pb2.ErrorInfo(reason=str(error.reason), domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if error.violations:
        status.details.add().Pack(_bad_request(error, MAX_DETAILS - status.ByteSize()))
    if error.retry_after_seconds is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after_seconds * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def translate(error: BaseException, ids: Ids) -> tuple[KblockError, str]:
    """Any exception as a ``KblockError``, and the correlation id under which an unexpected one was logged (or "")."""
    if isinstance(error, Internal):
        return error, _logged(error, ids)
    if isinstance(error, KblockError):
        return error, ""
    if isinstance(error, PolicyFailure):
        return policy_unavailable(error), ""
    if isinstance(error, StoreFailed):
        return _store_unavailable(error), _logged(error, ids)
    return Internal(
        Reason.INTERNAL,
        "internal error",
        next_step="look the execution up by its caller key before repeating; give the operator the correlation id",
    ), _logged(error, ids)


def policy_unavailable(failure: PolicyFailure) -> KblockError:
    """An engine failure at stage 0 is a refusal, never an answer (kblockd/policy/README.md#the-five-questions). This
    call did nothing, but it may repeat one that did, which is not known yet: so executed and consumed are omitted."""
    refusal = FailedPrecondition if failure.reason is Reason.POLICY_ERROR else Unavailable
    step = "repeat the identical call later" if failure.passing else "repeating does not help"
    return refusal(
        failure.reason,
        f"the policy gave no decision ({failure.reason}). Nothing was done for this call.",
        executed=None,
        consumed=None,
        retryable=failure.passing,
        next_step=f"{step}; the operator sees the cause in `kblockd policy status`",
    )


def _store_unavailable(failure: StoreFailed) -> Unavailable:
    # Only the pipeline knows whether stage 9 was passed; here the cautious answer is the only true one.
    reason = Reason.COMMIT_UNKNOWN if failure.unknown else Reason.STORE_UNAVAILABLE
    return Unavailable(
        reason,
        "the store cannot serve",
        retryable=not failure.unknown,
        next_step="look the execution up by its caller key before repeating",
    )


def _logged(error: BaseException, ids: Ids) -> str:
    correlation_id = ids.new("err")
    _log.error("call failed, correlation id %s", correlation_id, exc_info=error)
    return correlation_id


def _metadata(error: KblockError, internal: bool) -> dict[str, str]:
    metadata = {"retryable": _word(error.retryable), "execution_id": error.execution_id, "next_step": error.next_step}
    if not internal and error.reason not in UNDECIDED:
        known = {"executed": error.executed, "consumed": error.consumed}
        metadata |= {name: _word(value) for name, value in known.items() if value is not None}
    return {key: _cut(value, MAX_MESSAGE) for key, value in metadata.items() if value}


def _bad_request(error: KblockError, room: int) -> error_details_pb2.BadRequest:
    """As many violations, in order, as fit into ``room`` bytes; at least one."""
    request = error_details_pb2.BadRequest()
    for violation in error.violations[:MAX_VIOLATIONS]:
        request.field_violations.add(
            field=_cut(violation.field, MAX_DESCRIPTION), description=_cut(violation.description, MAX_DESCRIPTION)
        )
        if len(request.field_violations) > 1 and request.ByteSize() > room:
            del request.field_violations[-1]
            break
    return request


def _word(value: bool) -> str:
    return "true" if value else "false"


def _message(text: str) -> str:
    """Cut to ``MAX_MESSAGE`` bytes as sent, where each byte outside printable ASCII takes three."""
    text = _cut(text, MAX_MESSAGE)
    while (encoded := len(quote(text, safe=_PRINTABLE))) > MAX_MESSAGE:
        text = _cut(text, len(text.encode()) * MAX_MESSAGE // encoded)
    return text


def _cut(text: str, limit: int) -> str:
    """Cut to ``limit`` UTF-8 bytes; lone surrogates have no UTF-8 and are replaced."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= limit else data[: limit - 3].decode("utf-8", "ignore") + "…"
