"""RESULT, RECEIPT, APPROVAL and DISPOSITION as in-toto Statements v1.

``payload`` turns frozen dataclasses into JCS bytes, and ``read`` accepts exactly those bytes: a member of another type,
a missing or an additional one is refused. Integers are strings, times RFC 3339 with ``Z``; an optional member is absent
if it is None. ``predicateType`` is ``https://kblockd.dev/{result,receipt,approval,disposition}/v1``.
Source: kblockd/evidence/README.md#statements; R467, R473, RCP-06.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import itertools
import re
import typing
from typing import Any, ClassVar, Final, TypeVar

from kblockd.domain.canonical import NotCanonical, parse
from kblockd.domain.states import ResultClass
from kblockd.domain.text import own
from kblockd.domain.values import value_type
from kblockd.evidence import codec
from kblockd.evidence.errors import BadStatement

STATEMENT: Final = "https://in-toto.io/Statement/v1"
MAX_PAYLOAD: Final = 65_535
"""A receipt is a leaf, and a leaf has a uint16 length in tlog-tiles."""

_HEX: Final = re.compile(r"[0-9a-f]{64}")


class SealedState(enum.StrEnum):
    """The two states in which an execution has a RESULT."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class SignedBy(enum.StrEnum):
    """Whose key signed an approval."""

    DAEMON = "daemon"
    APPROVER = "approver"


class LaterFinding(enum.StrEnum):
    """The content of a disposition (a later finding)."""

    RECONCILED = "reconciled"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    CLOSED_BY_OPERATOR = "closed_by_operator"


def _digests(*values: str | None) -> None:
    for value in values:
        if value is not None and not _HEX.fullmatch(value):
            raise ValueError("a digest is 64 lowercase hex digits")


@value_type(frozen=True, slots=True)
class TargetRef:
    """The target of the action, as derived by the contract; ``version`` is the upstream's."""

    type: str
    id: str
    version: str | None = None


@value_type(frozen=True, slots=True)
class CallerIdentity:
    """The principal and its authentication: by certificate, by API key, or, with neither, by a local socket."""

    principal: str
    spiffe_id: str | None = None
    cert_sha256: str | None = None
    api_key_id: str | None = None


@value_type(frozen=True, slots=True)
class UpstreamPlace:
    """Origin as scheme://host:port; the upstream's own id of the operation, if any."""

    origin: str
    operation_id: str | None = None


@value_type(frozen=True, slots=True)
class Idempotency:
    """Digest of the caller key, and whether the upstream answered from its own replay."""

    digest: str
    replay: bool

    def __post_init__(self) -> None:
        _digests(self.digest)


@value_type(frozen=True, slots=True)
class ApprovalUse:
    """The consumed approval, the SHA-256 of its payload and the index of the consuming record."""

    id: str
    digest: str
    consumed_index: int

    def __post_init__(self) -> None:
        _digests(self.digest)


@value_type(frozen=True, slots=True)
class PolicyUse:
    """The decision and the digest of its policy revision."""

    id: str
    digest: str


@value_type(frozen=True, slots=True)
class VerificationResult:
    """Outcome, its source (read, operator) and the digest of the read."""

    outcome: str
    source: str
    digest: str | None = None

    def __post_init__(self) -> None:
        _digests(self.digest)


@value_type(frozen=True, slots=True)
class Output:
    """Size in bytes, media type and redaction; the digest is the subject ``output``."""

    size: int
    media_type: str
    redaction: str


@value_type(frozen=True, slots=True)
class CredentialUse:
    """Reference and version of the credential; never the secret or its digest."""

    ref: str
    version: str


@value_type(frozen=True, slots=True)
class DaemonIdentity:
    """The daemon that sealed the execution."""

    version: str
    instance: str


@value_type(frozen=True, slots=True)
class Result:
    """The final outcome of an execution (R467, R468). Subjects: action, output."""

    KIND: ClassVar[str] = "result"
    SUBJECTS: ClassVar[tuple[str, ...]] = ("action", "output")

    action: str
    output_sha256: str | None
    execution_id: str
    tenant: str
    caller: CallerIdentity
    tool: str
    tool_version: str
    target: TargetRef
    state: SealedState
    result_class: ResultClass
    code: str
    attempts: int
    effect_key: str
    upstream: UpstreamPlace
    contract_sha256: str
    started_at: dt.datetime
    finished_at: dt.datetime
    idempotency: Idempotency | None
    approval: ApprovalUse | None
    policy: PolicyUse
    verification: VerificationResult | None
    output: Output | None
    credential: CredentialUse | None
    daemon: DaemonIdentity

    def __post_init__(self) -> None:
        _digests(self.action, self.output_sha256, self.contract_sha256)
        if (self.output is None) != (self.output_sha256 is None):
            raise ValueError("output and its digest come together")
        if self.result_class is ResultClass.NONE:
            raise ValueError("a result has a class")


@value_type(frozen=True, slots=True)
class LedgerEvent:
    """One record of the execution; records of the receipt's own commit have no index."""

    type: str
    leaf_hash: str
    index: int | None = None

    def __post_init__(self) -> None:
        _digests(self.leaf_hash)


@value_type(frozen=True, slots=True)
class LogIdentity:
    """The origin line of the receipt's log."""

    origin: str


@value_type(frozen=True, slots=True)
class Receipt:
    """Confirms that a RESULT was sealed, and by which records. Subjects: result, action, approval."""

    KIND: ClassVar[str] = "receipt"
    SUBJECTS: ClassVar[tuple[str, ...]] = ("result", "action", "approval")

    result: str
    action: str
    approval: str | None
    execution_id: str
    state: SealedState
    ledger: LogIdentity
    events: tuple[LedgerEvent, ...]
    issued_at: dt.datetime

    def __post_init__(self) -> None:
        _digests(self.result, self.action, self.approval)
        placed = [event.index for event in self.events]
        known = [index for index in placed if index is not None]
        if placed[: len(known)] != known or any(a >= b for a, b in itertools.pairwise(known)):
            raise ValueError("events must be in ledger order; only those of the receipt's own commit have no index")


@value_type(frozen=True, slots=True)
class Approval:
    """One approver's decision over one action digest (R473). Subject: action."""

    KIND: ClassVar[str] = "approval"
    SUBJECTS: ClassVar[tuple[str, ...]] = ("action",)

    action: str
    approval_id: str
    approver: str
    owner: str
    decision: str
    presented_sha256: str
    max_uses: int
    not_before: dt.datetime
    not_after: dt.datetime
    policy_digest: str
    signed_by: SignedBy

    def __post_init__(self) -> None:
        _digests(self.action, self.presented_sha256)
        if self.not_after < self.not_before:
            raise ValueError("notAfter is before notBefore")


@value_type(frozen=True, slots=True)
class Disposition:
    """A later finding about a RESULT, which it does not change (RCP-11). Subject: result.

    ``previous`` is the SHA-256 of the previous disposition's payload; ``operator`` the principal who closed it.
    """

    KIND: ClassVar[str] = "disposition"
    SUBJECTS: ClassVar[tuple[str, ...]] = ("result",)

    result: str
    execution_id: str
    finding: LaterFinding
    result_class: ResultClass
    source: str
    evidence_sha256: str | None
    operator: str | None
    previous: str | None
    issued_at: dt.datetime

    def __post_init__(self) -> None:
        _digests(self.result, self.evidence_sha256, self.previous)


Statement = Result | Receipt | Approval | Disposition
S = TypeVar("S", Result, Receipt, Approval, Disposition)

# The output's digest is a subject, while ``output`` in the predicate describes it.
_ATTRIBUTE: Final = {("result", "output"): "output_sha256"}


def predicate_type(kind: type[Statement]) -> str:
    """The URI of a kind of statement."""
    return f"https://kblockd.dev/{kind.KIND}/v1"


def payload(statement: Statement) -> bytes:
    """The JCS bytes to sign, and for a receipt its leaf. Raises ValueError above ``MAX_PAYLOAD`` bytes."""
    predicate = codec.write(statement)
    subjects = [(name, predicate.pop(member, None)) for name, member in _members(typing.cast(Any, type(statement)))]
    data = own(
        {
            "_type": STATEMENT,
            "predicateType": predicate_type(type(statement)),
            "subject": [{"name": name, "digest": {"sha256": d}} for name, d in subjects if d is not None],
            "predicate": predicate,
        }
    )
    if len(data) > MAX_PAYLOAD:
        raise ValueError(f"a {statement.KIND} of {len(data)} bytes exceeds the limit of {MAX_PAYLOAD}")
    return data


def read(data: bytes, kind: type[S]) -> S:
    """The statement in a payload; raises ``BadStatement`` for bytes that ``payload`` would not have produced."""
    try:
        document = parse(data, max_bytes=MAX_PAYLOAD)
    except NotCanonical as error:
        raise BadStatement(f"not strict JSON: {error}") from None
    if set(document) != {"_type", "predicateType", "subject", "predicate"}:
        raise BadStatement("/: must hold exactly _type, predicateType, subject, predicate")
    if document["_type"] != STATEMENT or document["predicateType"] != predicate_type(kind):
        raise BadStatement(f"/predicateType: not a {kind.KIND} of version 1")
    predicate = document["predicate"]
    if not isinstance(predicate, dict):
        raise BadStatement("/predicate: must be an object")
    subjects = _subjects(document["subject"], kind)
    clash = subjects.keys() & predicate.keys()
    if clash:
        raise BadStatement(f"/predicate/{min(clash)}: unknown")
    statement = codec.read(kind, {**predicate, **subjects})
    if payload(statement) != data:
        raise BadStatement("the payload is not in canonical form")
    return statement


def _attribute(kind: str, subject: str) -> str:
    return _ATTRIBUTE.get((kind, subject), subject)


@functools.cache
def _members(kind: Any) -> tuple[tuple[str, str], ...]:
    """(subject, corresponding member)."""
    return tuple((name, codec.camel(_attribute(kind.KIND, name))) for name in kind.SUBJECTS)


def _subjects(value: Any, kind: type[Statement]) -> dict[str, Any]:
    subjects: dict[str, Any] = {}
    for position, subject in enumerate(value if isinstance(value, list) else [None]):
        shape = isinstance(subject, dict) and set(subject) == {"name", "digest"} and isinstance(subject["digest"], dict)
        if not shape or set(subject["digest"]) != {"sha256"} or subject["name"] not in kind.SUBJECTS:
            raise BadStatement(f"/subject/{position}: not a subject of a {kind.KIND}")
        subjects[codec.camel(_attribute(kind.KIND, subject["name"]))] = subject["digest"]["sha256"]
    return subjects
