"""Signs and opens statements; defines which role signs which kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.signing import Signer
from kblockd.domain.values import value_type
from kblockd.evidence import dsse, statements
from kblockd.evidence.jwks import KeySet, Role
from kblockd.evidence.keyring import KeyRing
from kblockd.evidence.keys import LocalSigner
from kblockd.evidence.statements import Approval, Disposition, Receipt, Result, SignedBy, Statement

S = TypeVar("S", Result, Receipt, Approval, Disposition)

ROLES: Final[dict[str, Role]] = {
    Result.KIND: Role.RESULT,
    Receipt.KIND: Role.RESULT,
    Disposition.KIND: Role.RESULT,
    Approval.KIND: Role.APPROVAL,
}


@value_type(frozen=True, slots=True)
class Signed:
    """A statement and its key: payload (a receipt's leaf), the payload's SHA-256 in hex, and the key id.

    ``sign`` makes the DSSE envelope, once: whoever asks first signs, in whichever thread.
    """

    payload: bytes
    sha256: str
    key_id: str
    sign: Callable[[], bytes]

    @property
    def envelope(self) -> bytes:
        """Signed now, if nobody has asked yet."""
        return self.sign()


def sign_statement(statement: Statement, signer: Signer) -> Signed:
    """Under the caller's choice of key. Raises ValueError above 65,535 bytes, OSError if signing fails.

    A key in memory cannot fail, and its signature may wait for another thread; any other signs here.
    """
    payload = statements.payload(statement)
    sign = functools.cache(functools.partial(dsse.sign, dsse.STATEMENT_TYPE, payload, signer))
    if not isinstance(signer, LocalSigner):
        sign()
    return Signed(payload, sha256_hex(payload), signer.key_id, sign)


def sign_result(result: Result, ring: KeyRing) -> Signed:
    """RESULT (R468). Raises as ``sign_statement``."""
    return sign_statement(result, ring.result)


def sign_receipt(receipt: Receipt, ring: KeyRing) -> Signed:
    """RECEIPT; ``payload`` is the leaf. Raises as ``sign_statement``."""
    return sign_statement(receipt, ring.result)


def sign_disposition(disposition: Disposition, ring: KeyRing) -> Signed:
    """DISPOSITION. Raises as ``sign_statement``."""
    return sign_statement(disposition, ring.result)


def sign_approval(approval: Approval, ring: KeyRing) -> Signed:
    """APPROVAL on behalf of an authenticated approver. Raises as ``sign_statement``.

    Raises ValueError for one marked as signed by its approver, because the daemon's key is not theirs.
    """
    if approval.signed_by is not SignedBy.DAEMON:
        raise ValueError("the daemon cannot sign an approval marked as signed by its approver")
    return sign_statement(approval, ring.approval)


def open_statement(envelope: bytes, kind: type[S], keyset: KeySet, *, index: int) -> S:
    """The statement, with signature, role and range at this ledger index verified.

    Raises ``BadEnvelope``, ``UnknownKey``, ``KeyNotValid``, ``BadSignature`` or ``BadStatement``.
    """
    opened = dsse.verify(envelope, dsse.STATEMENT_TYPE, keyset.raw)
    keyset.valid(opened.key_id, ROLES[kind.KIND], index)
    return statements.read(opened.payload, kind)
