"""The execution envelope as the pipeline sees it: the message of ``kblock.v1.Envelope``, converted once.

R is required, P a pin (present must equal what the daemon has now), B a bound (may only tighten the contract).
Source: proto/kblock/v1/types.proto; R006 to R029.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import field
from typing import Any, Final

from kblockd.domain.errors import InvalidArgument, Reason
from kblockd.domain.text import Text
from kblockd.domain.values import value_type

SCHEMA_VERSION: Final = "kblock.envelope/1"
MAX_IDENTIFIER: Final = 256
MAX_CALLER_KEY: Final = 255
_HEX256: Final = re.compile(r"[0-9a-f]{64}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_EVIDENCE: Final = re.compile(r"record_[a-z_]{1,64}")


@value_type(frozen=True, slots=True)
class TargetPin:
    """The target that the caller means; the one that counts is derived from the arguments."""

    type: str = ""
    id: str = ""
    version: str = ""


@value_type(frozen=True, slots=True)
class BindingPin:
    """P, field by field."""

    upstream: str = ""
    server_version: str = ""
    tool: str = ""
    definition_sha256: str = ""


@value_type(frozen=True, slots=True)
class BudgetBound:
    """B: authority budget; ``amount`` is a decimal string in ``unit``."""

    count: int = 0
    amount: str = ""
    unit: str = ""


@value_type(frozen=True, slots=True)
class Envelope:
    """Times are aware UTC, durations are seconds; None and "" mean absent."""

    schema_version: str
    environment: str
    operation: str
    target: TargetPin
    arguments_json: bytes
    run_id: str = ""
    action_id: str = ""
    requester: str = ""
    agent: str = ""
    tenant: str = ""
    organization: str = ""
    arguments_sha256: str = ""
    binding: BindingPin = BindingPin()
    policy_revision: str = ""
    approval_id: str = ""
    approval_expires_at: dt.datetime | None = None
    budget: BudgetBound | None = None
    caller_key: str = ""
    has_caller_key: bool = False
    preconditions: dict[str, Any] | None = None
    postconditions: dict[str, Any] | None = None
    request_timeout: float | None = None
    deadline: dt.datetime | None = None
    maximum_attempts: int = 0
    cancellation: str = ""  # "" | signal | none
    compensation_ref: str = ""
    evidence: tuple[str, ...] = ()
    arguments: Text | None = field(default=None, compare=False, repr=False)  # of arguments_json, where it was parsed


def check_shape(envelope: Envelope) -> None:
    """What can be said of the envelope alone; raises ``InvalidArgument`` naming the field (R006, IDM-19)."""
    if envelope.schema_version != SCHEMA_VERSION:
        raise InvalidArgument.field(
            "envelope.schema_version",
            f"must be {SCHEMA_VERSION!r}, the only version that this daemon knows",
            reason=Reason.UNKNOWN_SCHEMA_VERSION,
        )
    _required("envelope.environment", envelope.environment)
    _required("envelope.operation", envelope.operation)
    _required("envelope.target.id", envelope.target.id)
    if not envelope.arguments_json:
        raise InvalidArgument.field("envelope.arguments_json", "must not be empty")
    for name, value in _identifiers(envelope):
        if value:
            _identifier(name, value)
    for name, value in (
        ("envelope.arguments_sha256", envelope.arguments_sha256),
        ("envelope.binding.definition_sha256", envelope.binding.definition_sha256),
    ):
        if value and not _HEX256.fullmatch(value):
            raise InvalidArgument.field(name, "must be 64 lowercase hexadecimal digits")
    _check_caller_key(envelope)
    _check_bounds(envelope)


def _identifiers(envelope: Envelope) -> list[tuple[str, str]]:
    binding, target = envelope.binding, envelope.target
    return [
        ("envelope.run_id", envelope.run_id),
        ("envelope.action_id", envelope.action_id),
        ("envelope.requester", envelope.requester),
        ("envelope.agent", envelope.agent),
        ("envelope.tenant", envelope.tenant),
        ("envelope.organization", envelope.organization),
        ("envelope.environment", envelope.environment),
        ("envelope.operation", envelope.operation),
        ("envelope.target.type", target.type),
        ("envelope.target.id", target.id),
        ("envelope.target.version", target.version),
        ("envelope.binding.upstream", binding.upstream),
        ("envelope.binding.server_version", binding.server_version),
        ("envelope.binding.tool", binding.tool),
        ("envelope.policy_revision", envelope.policy_revision),
        ("envelope.approval_id", envelope.approval_id),
        ("envelope.compensation_ref", envelope.compensation_ref),
    ]


def _required(name: str, value: str) -> None:
    if not value.strip():
        raise InvalidArgument.field(name, "must not be empty")


def _identifier(name: str, value: str) -> None:
    if len(value.encode("utf-8", "surrogatepass")) > MAX_IDENTIFIER:
        raise InvalidArgument.field(name, f"is longer than {MAX_IDENTIFIER} bytes")
    if _CONTROL.search(value):
        raise InvalidArgument.field(name, "holds a control character")
    if value != value.strip():
        raise InvalidArgument.field(name, "starts or ends with white space")


def _check_caller_key(envelope: Envelope) -> None:
    """A blank key never falls back to the unprotected path (IDM-19)."""
    if not envelope.has_caller_key:
        return
    key = envelope.caller_key
    if not key.strip():
        raise InvalidArgument.field("envelope.caller_key", "is present but blank; leave it out or give a key")
    if len(key.encode("utf-8", "surrogatepass")) > MAX_CALLER_KEY:
        raise InvalidArgument.field("envelope.caller_key", f"is longer than {MAX_CALLER_KEY} bytes")
    if _CONTROL.search(key):
        raise InvalidArgument.field("envelope.caller_key", "holds a control character")


def _check_bounds(envelope: Envelope) -> None:
    timeout = envelope.request_timeout
    if timeout is not None and not 0 < timeout <= 86_400:
        raise InvalidArgument.field("envelope.request_timeout", "must be more than zero and at most one day")
    if len(envelope.evidence) > 32:
        raise InvalidArgument.field("envelope.evidence", "holds more than 32 names")
    for position, name in enumerate(envelope.evidence):
        if not _EVIDENCE.fullmatch(name):
            raise InvalidArgument.field(f"envelope.evidence[{position}]", "is not a record_… key of a contract")
    if envelope.budget is not None:
        # Budgets are not enforced yet; a bound that is silently ignored would be a lie.
        raise InvalidArgument.field("envelope.budget", "is not supported yet; leave it out")
    if envelope.run_id:
        raise InvalidArgument.field("envelope.run_id", "durable runs are not supported yet; leave it out")
