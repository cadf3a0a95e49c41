"""Every type of record, and how a leaf is read: the envelope first, then the body by its type and version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.ledger.approvals import ApprovalDecided, ApprovalRequested, ApprovalRevoked
from kblockd.domain.ledger.attempt import (
    AttemptOutcome,
    OperationAccepted,
    Reconciled,
    RecoveryPlanned,
    Verified,
)
from kblockd.domain.ledger.claim import Claimed, LeaseLost, Sent
from kblockd.domain.ledger.closing import Cancelled, Expired, Rejected
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
from kblockd.domain.ledger.proposal import CallRefused, Proposed
from kblockd.domain.ledger.record import FORM, RECEIPT_PREDICATE, Body, Envelope, Record
from kblockd.domain.ledger.sealing import Disposition, Held, Receipt, Resolved, Sealed

BODIES: Final[tuple[type[Body], ...]] = (
    Proposed,
    ApprovalRequested,
    ApprovalDecided,
    ApprovalRevoked,
    CallRefused,
    Rejected,
    Expired,
    Cancelled,
    Claimed,
    Sent,
    AttemptOutcome,
    OperationAccepted,
    Reconciled,
    Verified,
    RecoveryPlanned,
    Held,
    Resolved,
    Sealed,
    Disposition,
    Receipt,
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


class StoredUnreadable(FailedPrecondition, ValueError):
    """Something stored is of a later release than this one, or of no form that a release ever wrote."""

    def __init__(self, what: str) -> None:
        super().__init__(
            Reason.STORED_UNREADABLE,
            f"{what} cannot be read by this release.",
            executed=None,
            consumed=None,
            next_step="run the release that wrote it, or a later one",
        )


class _Predicate(msgspec.Struct):
    execution_id: str = msgspec.field(name="executionId")
    issued_at: str = msgspec.field(name="issuedAt")


class _Statement(msgspec.Struct):
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: _Predicate


_ENVELOPE: Final = msgspec.json.Decoder(Envelope)
_STATEMENT: Final = msgspec.json.Decoder(_Statement)
_DECODERS: Final[Mapping[tuple[str, str], msgspec.json.Decoder[Body]]] = {
    (f"{FORM}{body.VERSION}", body.TYPE): msgspec.json.Decoder(body)
    for body in (*BODIES, *OLDER)
    if body is not Receipt
}


def envelope(leaf: bytes) -> Envelope:
    """What is around the body, for who lists records and looks no further: of later releases as well.

    Raises ValueError as ``read`` does.
    """
    try:
        return _ENVELOPE.decode(leaf)
    except msgspec.ValidationError:
        found = _receipt(leaf)
    return Envelope(found.at, 0, msgspec.Raw(b"{}"), found.execution, found.stage, "", found.type, RECEIPT_PREDICATE)


def read(leaf: bytes) -> Record:
    """A record from its leaf, its body in the newest form.

    Raises ValueError for bytes that are neither a record nor a receipt, ``StoredUnreadable`` (a ValueError, too) for a
    record of a type, a version or with a field that this release does not know.
    """
    try:
        found = _ENVELOPE.decode(leaf)
    except msgspec.ValidationError:
        return _receipt(leaf)
    decoder = _DECODERS.get((found.v, found.type))
    if decoder is None:
        raise StoredUnreadable(f"a record {found.type[:64]!r} of the form {found.v[:64]!r}")
    try:
        body = decoder.decode(found.body).upgraded()
    except msgspec.ValidationError as error:
        raise StoredUnreadable(f"the body of a record {found.type!r} ({error})") from None
    return Record(body, found.at, found.tenant, found.execution, found.attempt, found.stage)


def _receipt(leaf: bytes) -> Record:
    try:
        statement = _STATEMENT.decode(leaf)
    except msgspec.ValidationError:
        raise ValueError("neither a record nor a receipt") from None
    if statement.predicate_type != RECEIPT_PREDICATE:
        raise ValueError("neither a record nor a receipt")
    predicate = statement.predicate
    return Record(Receipt(), predicate.issued_at, execution=predicate.execution_id, stage=16)
