"""Requests to domain objects: nothing is repaired or ignored, and all wrong fields are named at once.

Source: proto/kblock/v1/types.proto; R006, R673, IDM-19, CAN-13.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from kblockd._proto.kblock.v1 import approval_service_pb2, execution_service_pb2, types_pb2
from kblockd.domain import canonical
from kblockd.domain.envelope import (
    MAX_IDENTIFIER,
    SCHEMA_VERSION,
    BindingPin,
    BudgetBound,
    Envelope,
    TargetPin,
    check_shape,
)
from kblockd.domain.errors import InvalidArgument, Reason, Violation
from kblockd.domain.outcome import Finding
from kblockd.domain.text import Text, foreign

DEFAULT_PAGE: Final = 50
MAX_PAGE: Final = 100
DEFAULT_LEAVES: Final = 100
MAX_LEAVES: Final = 1000
MAX_REASON: Final = 2000  # characters
MAX_SECONDS: Final = 86_400
MAX_FAULTS: Final = 16
MAX_STATES: Final = 64
MAX_UNKNOWN: Final = 4096
"""Up to this many bytes, unknown fields are walked to name them: each takes a microsecond, and a megabyte may hold half
a million."""
_MIN_TIMESTAMP: Final = -62_135_596_800  # 0001-01-01T00:00:00Z
_MAX_TIMESTAMP: Final = 253_402_300_799  # 9999-12-31T23:59:59Z
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_T = TypeVar("_T")

_CANCELLATION: Final = {
    types_pb2.CANCELLATION_BEHAVIOR_UNSPECIFIED: "",
    types_pb2.CANCELLATION_BEHAVIOR_SIGNAL: "signal",
    types_pb2.CANCELLATION_BEHAVIOR_NONE: "none",
}
_FINDINGS: Final = {
    execution_service_pb2.FINDING_EFFECT_PRESENT: Finding.PRESENT,
    execution_service_pb2.FINDING_EFFECT_ABSENT: Finding.ABSENT,
    execution_service_pb2.FINDING_UNPROVABLE: Finding.UNPROVABLE,
}
_VERDICTS: Final = {
    approval_service_pb2.VERDICT_APPROVE: "approve",
    approval_service_pb2.VERDICT_DENY: "deny",
}


class Faults:
    """Collects up to ``MAX_FAULTS`` wrong fields, so that a caller learns of all of them in one answer."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def add(self, field: str, description: str) -> None:
        """Adds one wrong field."""
        if len(self._violations) < MAX_FAULTS:
            self._violations.append(Violation(field, description))

    def raise_any(self) -> None:
        """Raises ``InvalidArgument`` with all violations, if there are any."""
        if not self._violations:
            return
        sentence = "; ".join(f"{v.field}: {v.description}" for v in self._violations)
        raise InvalidArgument(
            Reason.INVALID_FIELD,
            f"{sentence}. Nothing was executed or consumed.",
            violations=self._violations,
            next_step=f"correct {', '.join(v.field for v in self._violations)} and call again",
        )


def documents_bytes(message: types_pb2.Envelope) -> int:
    """Bytes of the envelope's three JSON documents."""
    return len(message.arguments_json) + len(message.preconditions_json) + len(message.postconditions_json)


def envelope(message: types_pb2.Envelope, *, max_arguments: int = canonical.MAX_BYTES) -> Envelope:
    """The envelope; raises ``InvalidArgument``. Another schema version is refused before anything else is read, and
    more than ``max_arguments`` bytes of arguments, preconditions and postconditions together before they are parsed."""
    if message.schema_version != SCHEMA_VERSION:
        raise InvalidArgument.field(
            "envelope.schema_version",
            f"must be {SCHEMA_VERSION!r}, the only version that this daemon supports",
            reason=Reason.UNKNOWN_SCHEMA_VERSION,
        )
    faults = Faults()
    for field, number in unknown_fields(message, "envelope"):
        faults.add(field, f"holds the unknown field number {number}")
    _check_size(message, max_arguments)
    converted = _envelope(message, faults)
    faults.raise_any()
    check_shape(converted)
    return converted


def _envelope(message: types_pb2.Envelope, faults: Faults) -> Envelope:
    pin = message.binding
    return Envelope(
        schema_version=message.schema_version,
        environment=message.environment,
        operation=message.operation,
        target=TargetPin(message.target.type, message.target.id, message.target.version),
        arguments_json=message.arguments_json,
        arguments=_text("envelope.arguments_json", message.arguments_json, faults),
        run_id=message.run_id,
        action_id=message.action_id,
        requester=message.requester,
        agent=message.agent,
        tenant=message.tenant,
        organization=message.organization,
        arguments_sha256=message.arguments_sha256,
        binding=BindingPin(pin.upstream, pin.server_version, pin.tool, pin.definition_sha256),
        policy_revision=message.policy_revision,
        approval_id=message.approval_id,
        approval_expires_at=_moment(message, "approval_expires_at", faults),
        budget=_budget(message),
        caller_key=message.caller_key,
        has_caller_key=message.HasField("caller_key"),
        preconditions=_object("envelope.preconditions_json", message.preconditions_json, faults),
        postconditions=_object("envelope.postconditions_json", message.postconditions_json, faults),
        request_timeout=_timeout(message, faults),
        deadline=_moment(message, "deadline", faults),
        maximum_attempts=message.maximum_attempts,
        cancellation=_cancellation(message, faults),
        compensation_ref=message.compensation_ref,
        evidence=tuple(message.evidence),
    )


def wait(request: execution_service_pb2.ExecutionServiceExecuteRequest) -> float | None:
    """Seconds, None when absent; raises ``InvalidArgument``."""
    if not request.HasField("wait"):
        return None
    faults = Faults()
    seconds = duration("wait", request.wait, faults)
    if seconds is not None and seconds > MAX_SECONDS:
        faults.add("wait", "is longer than one day")
    faults.raise_any()
    return seconds


def refuse_unknown(request: Message) -> None:
    """Raises ``InvalidArgument`` for unknown fields of the request.

    Those of an envelope are left to ``envelope``, which checks its schema version first.
    """
    for at, number in _bounded(request, "request"):
        if not at.startswith("request.envelope"):
            raise InvalidArgument.field(at, f"holds the unknown field number {number}")


def identifier(field: str, value: str) -> str:
    """A required identifier; raises ``InvalidArgument``."""
    if not value.strip():
        raise InvalidArgument.field(field, "must not be empty")
    if len(value.encode()) > MAX_IDENTIFIER:
        raise InvalidArgument.field(field, f"is longer than {MAX_IDENTIFIER} bytes")
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise InvalidArgument.field(field, "holds a control character")
    return value


def digest(field: str, value: str) -> str:
    """A required SHA-256 in lowercase hex; raises ``InvalidArgument``."""
    if len(value) != 64 or any(c not in "0123456789abcdef" for c in value):
        raise InvalidArgument.field(field, "must be 64 lowercase hexadecimal digits")
    return value


def reason(field: str, value: str, *, required: bool) -> str:
    """Free text for the payload store; raises ``InvalidArgument``."""
    if required and not value.strip():
        raise InvalidArgument.field(field, "must not be empty")
    if len(value) > MAX_REASON:
        raise InvalidArgument.field(field, f"is longer than {MAX_REASON} characters")
    return value


def finding(number: int) -> Finding:
    """Raises ``InvalidArgument`` for UNSPECIFIED and for unknown numbers."""
    return _known("finding", number, _FINDINGS)


def verdict(number: int) -> str:
    """ "approve" or "deny"; raises ``InvalidArgument`` for UNSPECIFIED and for unknown numbers."""
    return _known("verdict", number, _VERDICTS)


def page_size(size: int) -> int:
    """0 means the default; larger values are capped at ``MAX_PAGE``."""
    return min(size or DEFAULT_PAGE, MAX_PAGE)


def page_token(token: str) -> str:
    """Opaque to the caller; raises ``InvalidArgument`` for a malformed one."""
    return identifier("page_token", token) if token else ""


def leaves(limit: int) -> int:
    """0 means the default; larger values are capped at ``MAX_LEAVES``."""
    return min(limit or DEFAULT_LEAVES, MAX_LEAVES)


def states(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Raises ``InvalidArgument`` naming each name that is not a state."""
    faults = Faults()
    if len(names) > MAX_STATES:
        faults.add("states", f"{len(names)} names exceed the limit of {MAX_STATES}")
    for position, name in enumerate(names[:MAX_STATES]):
        if name not in known:
            faults.add(f"states[{position}]", f"must be one of {', '.join(sorted(known))}")
    faults.raise_any()
    return tuple(names)


def duration(field: str, value: Duration, faults: Faults) -> float | None:
    """Seconds; a fault if negative, out of range or of mixed signs."""
    if not -315_576_000_000 <= value.seconds <= 315_576_000_000 or not -999_999_999 <= value.nanos <= 999_999_999:
        faults.add(field, "is not a valid duration")
    elif value.seconds < 0 or value.nanos < 0:
        faults.add(field, "must not be negative")
    else:
        return float(value.seconds + value.nanos / 1e9)
    return None


def timestamp(field: str, value: Timestamp, faults: Faults) -> dt.datetime | None:
    """Aware UTC, rounded down to the microsecond (which never loosens a bound); a fault outside years 1 to 9999."""
    if not _MIN_TIMESTAMP <= value.seconds <= _MAX_TIMESTAMP:
        faults.add(field, "must be in the years 1 to 9999")
    elif not 0 <= value.nanos <= 999_999_999:
        faults.add(field, "nanos must be between 0 and 999999999")
    else:
        return _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return None


def unknown_fields(message: Message, at: str) -> list[tuple[str, int]]:
    """(path of the message, number of the unknown field) for the first unknown fields at any depth.

    Raises ``InvalidArgument`` as ``_bounded`` does.
    """
    return list(itertools.islice(_bounded(message, at), MAX_FAULTS))


def _bounded(message: Message, at: str) -> Iterator[tuple[str, int]]:
    """The unknown fields; raises ``InvalidArgument`` for more than ``MAX_UNKNOWN`` bytes of them without walking them
    (AGT-02)."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    unknown = message.ByteSize() - known.ByteSize()
    if unknown > MAX_UNKNOWN:
        raise InvalidArgument.field(at, f"holds {unknown} bytes of unknown fields")
    return _unknown_fields(message, at) if unknown else iter(())


def _unknown_fields(message: Message, at: str) -> Iterator[tuple[str, int]]:
    unknown = UnknownFieldSet(message)
    for position in range(len(unknown)):
        yield at, unknown[position].field_number
    for descriptor, value in message.ListFields():
        if descriptor.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        for member in value if descriptor.is_repeated else [value]:
            yield from _unknown_fields(member, f"{at}.{descriptor.name}")


def _known(field: str, number: int, known: Mapping[Any, _T]) -> _T:
    if number not in known:
        raise InvalidArgument.field(field, f"{number} is not one of the {len(known)} known values")
    return known[number]


def _check_size(message: types_pb2.Envelope, limit: int) -> None:
    own = len(message.arguments_json)
    if own > limit:
        raise InvalidArgument.field("envelope.arguments_json", f"{own} bytes exceed the limit of {limit}")
    if (size := documents_bytes(message)) > limit:
        longer = "pre" if len(message.preconditions_json) >= len(message.postconditions_json) else "post"
        what = f"arguments, preconditions and postconditions together: {size} bytes exceed the limit of {limit}"
        raise InvalidArgument.field(f"envelope.{longer}conditions_json", what)


def _text(field: str, text: bytes, faults: Faults) -> Text | None:
    """A JSON object whose size has been checked; None if empty or, with a fault, invalid."""
    try:
        return foreign(text, max_bytes=len(text)) if text else None
    except canonical.NotCanonical as error:
        faults.add(field, str(error))
        return None


def _object(field: str, text: bytes, faults: Faults) -> dict[str, Any] | None:
    found = _text(field, text, faults)
    return found.value if found is not None else None


def _moment(message: types_pb2.Envelope, name: str, faults: Faults) -> dt.datetime | None:
    if not message.HasField(name):  # type: ignore[arg-type]  # the stubs want a literal
        return None
    return timestamp(f"envelope.{name}", getattr(message, name), faults)


def _timeout(message: types_pb2.Envelope, faults: Faults) -> float | None:
    if not message.HasField("request_timeout"):
        return None
    return duration("envelope.request_timeout", message.request_timeout, faults)


def _cancellation(message: types_pb2.Envelope, faults: Faults) -> str:
    if message.cancellation not in _CANCELLATION:
        faults.add("envelope.cancellation", f"{message.cancellation} is not a value of CancellationBehavior")
        return ""
    return _CANCELLATION[message.cancellation]


def _budget(message: types_pb2.Envelope) -> BudgetBound | None:
    if not message.HasField("budget"):
        return None
    return BudgetBound(message.budget.count, message.budget.amount, message.budget.unit)
