"""Ledger records: identifiers, codes, digests and numbers, never content (R503).

A leaf is the JCS of ``{v, type, at, tenant, execution, attempt, stage, body}``; the one exception is the receipt,
whose leaf is its DSSE payload (an in-toto Statement). What a person may have to delete is a payload row beside the
record, under its digest, which the record names.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

import orjson

from kblockd.domain.canonical import without_floats
from kblockd.domain.values import value_type

VERSION: Final = "kblockd.record/1"
MAX_LEAF: Final = 65_535
_WORD: Final = re.compile(r"[\x21-\x7e]{1,256}")
RECEIPT_PREDICATE: Final = "https://kblockd.dev/receipt/v1"
_FIELDS: Final = frozenset({"v", "type", "at", "tenant", "execution", "attempt", "stage", "body"})


def identifier(text: str) -> str:
    """A foreign identifier as a record may hold it: a short printable word as it is, else its digest (R503)."""
    if not text or _WORD.fullmatch(text):
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class RecordType(enum.StrEnum):
    """Every kind of record (kblockd/ledger/README.md#records, and what stage 0 decides)."""

    AUTHZ_DECIDED = "authz.decided"
    PROPOSED = "execution.proposed"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_REVOKED = "approval.revoked"
    CALL_REFUSED = "call.refused"
    REJECTED = "execution.rejected"
    EXPIRED = "execution.expired"
    CANCELLED = "execution.cancelled"
    CLAIMED = "execution.claimed"
    SENT = "execution.sent"
    ATTEMPT_OUTCOME = "attempt.outcome"
    OPERATION_ACCEPTED = "operation.accepted"
    RECONCILED = "finding.reconciled"
    VERIFIED = "finding.verified"
    RECOVERY_PLANNED = "recovery.planned"
    HELD = "execution.held"
    RESOLVED = "execution.resolved"
    SEALED = "result.sealed"
    DISPOSITION = "disposition"
    LEASE_LOST = "lease.lost"
    POLICY_ACTIVATED = "policy.activated"
    POLICY_REFUSED = "policy.refused"
    CONTRACT_ACTIVATED = "contract.activated"
    UPSTREAM_ACTIVATED = "upstream.activated"
    PRINCIPAL_CHANGED = "principal.changed"
    KEY_ADDED = "key.added"
    KEY_RETIRED = "key.retired"
    KEY_REVOKED = "key.revoked"
    STORE_PRUNED = "store.pruned"
    STORE_RESTORED = "store.restored"
    DAEMON_STARTED = "daemon.started"
    DAEMON_STOPPED = "daemon.stopped"
    RECEIPT = "receipt"


@value_type(frozen=True, slots=True)
class Record:
    """One record; ``stage`` is the pipeline's number, or None outside the pipeline."""

    type: RecordType
    at: str
    tenant: str = ""
    execution: str = ""
    attempt: int = 0
    stage: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    def leaf(self) -> bytes:
        """The bytes that the tree hashes; raises ValueError above ``MAX_LEAF``, for a float (units are whole in
        records, so that a row folds to the same bytes for ever) and for a receipt, which brings its own leaf."""
        if self.type is RecordType.RECEIPT:
            raise ValueError("a receipt brings its own leaf")
        data = without_floats(
            {
                "v": VERSION,
                "type": self.type.value,
                "at": self.at,
                "tenant": self.tenant,
                "execution": self.execution,
                "attempt": self.attempt,
                "stage": self.stage,
                "body": self.body,
            }
        )
        if len(data) > MAX_LEAF:
            raise ValueError(f"{self.type}: a record of {len(data)} bytes, at most {MAX_LEAF} are possible")
        return data


def read(leaf: bytes) -> Record:
    """A record from its leaf; raises ValueError for bytes that are neither a record nor a receipt."""
    document = orjson.loads(leaf)
    if not isinstance(document, dict):
        raise ValueError("neither a record nor a receipt")
    try:
        if document.get("v") == VERSION:
            return _record(document)
        if document.get("predicateType") == RECEIPT_PREDICATE:
            predicate = document["predicate"]
            return Record(RecordType.RECEIPT, predicate["issuedAt"], execution=predicate["executionId"], stage=16)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record without its fields ({error})") from None
    raise ValueError("neither a record nor a receipt")


def _record(document: Mapping[str, Any]) -> Record:
    type_ = RecordType(document["type"])
    if type_ is RecordType.RECEIPT or document.keys() != _FIELDS:
        raise ValueError(f"{type_}: not the fields of a record")
    return Record(
        type_,
        document["at"],
        document["tenant"],
        document["execution"],
        document["attempt"],
        document["stage"],
        document["body"],
    )
