"""Every type of record, and how a leaf is read: the envelope first, then the body by its type and version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kblockd.domain.errors import StoredUnreadable
from kblockd.domain.ledger.approvals import ApprovalDecided, ApprovalRequested, ApprovalRevoked
from kblockd.domain.ledger.attempt import (
    AttemptOutcome,
    FindingReconciled,
    FindingVerified,
    OperationAccepted,
    RecoveryPlanned,
)
from kblockd.domain.ledger.claim import ExecutionClaimed, ExecutionSent, LeaseLost
from kblockd.domain.ledger.closing import ExecutionCancelled, ExecutionExpired, ExecutionRejected
from kblockd.domain.ledger.configuration import (
    AuthzDecided,
    ContractActivated,
    DaemonStarted,
    DaemonStopped,
    KeyAdded,
    KeyRetired,
    KeyRevoked,
    PolicyActivated,
    PolicyRefused,
    PrincipalChanged,
    StorePruned,
    StoreRestored,
    UpstreamActivated,
)
from kblockd.domain.ledger.proposal import CallRefused, ExecutionProposed
from kblockd.domain.ledger.record import FORM, RECEIPT_PREDICATE, Body, LeafEnvelope, Record
from kblockd.domain.ledger.sealing import (
    DispositionAdded,
    ExecutionHeld,
    ExecutionResolved,
    ReceiptIssued,
    ResultSealed,
)

BODIES: Final[tuple[type[Body], ...]] = (
    ExecutionProposed,
    ApprovalRequested,
    ApprovalDecided,
    ApprovalRevoked,
    CallRefused,
    ExecutionRejected,
    ExecutionExpired,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionSent,
    AttemptOutcome,
    OperationAccepted,
    FindingReconciled,
    FindingVerified,
    RecoveryPlanned,
    ExecutionHeld,
    ExecutionResolved,
    ResultSealed,
    DispositionAdded,
    ReceiptIssued,
    PolicyActivated,
    ContractActivated,
    UpstreamActivated,
    PrincipalChanged,
    KeyAdded,
    KeyRetired,
    KeyRevoked,
    DaemonStarted,
    StorePruned,
    AuthzDecided,
    DaemonStopped,
    LeaseLost,
    PolicyRefused,
    StoreRestored,
)
"""In the order of the documentation. An older version of a type is a class of its own in ``OLDER``."""
OLDER: Final[tuple[type[Body], ...]] = ()


class _Predicate(msgspec.Struct):
    execution_id: str = msgspec.field(name="executionId")
    issued_at: str = msgspec.field(name="issuedAt")


class _Statement(msgspec.Struct):
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: _Predicate


_ENVELOPE: Final = msgspec.json.Decoder(LeafEnvelope)
_STATEMENT: Final = msgspec.json.Decoder(_Statement)
_DECODERS: Final[Mapping[tuple[str, str], msgspec.json.Decoder[Body]]] = {
    (f"{FORM}{body.VERSION}", body.TYPE): msgspec.json.Decoder(body)
    for body in (*BODIES, *OLDER)
    if body is not ReceiptIssued
}


def envelope(leaf: bytes) -> LeafEnvelope:
    """What is around the body, for who lists records and looks no further: of later releases as well.

    Raises ``StoredUnreadable`` for bytes that are neither a record nor a receipt.
    """
    try:
        return _ENVELOPE.decode(leaf)
    except ValueError:
        found = _receipt(leaf)
    return LeafEnvelope(
        found.at, 0, msgspec.Raw(b"{}"), found.execution, found.stage, "", found.type, RECEIPT_PREDICATE
    )


def read(leaf: bytes) -> Record:
    """A record from its leaf, its body in the newest form.

    Raises ``StoredUnreadable`` (a ValueError, too) for bytes that are neither a record nor a receipt, and for a record
    of a type, a version or fields that this release does not know.
    """
    try:
        found = _ENVELOPE.decode(leaf)
    except ValueError:
        return _receipt(leaf)
    return Record(_body(found), found.at, found.tenant, found.execution, found.attempt, found.stage)


def _body(found: LeafEnvelope) -> Body:
    try:
        return _DECODERS[found.v, found.type].decode(found.body).upgraded()
    except (KeyError, ValueError):
        what = f"a record {found.type[:64]!r} of the form {found.v[:64]!r}"
        raise StoredUnreadable(what) from None


def _receipt(leaf: bytes) -> Record:
    try:
        statement = _STATEMENT.decode(leaf)
    except ValueError:
        raise _foreign() from None
    if statement.predicate_type != RECEIPT_PREDICATE:
        raise _foreign()
    predicate = statement.predicate
    return Record(ReceiptIssued(), predicate.issued_at, execution=predicate.execution_id, stage=16)


def _foreign() -> StoredUnreadable:
    return StoredUnreadable("what is neither a record nor a receipt")
