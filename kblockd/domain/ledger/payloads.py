"""Payloads as they are read back: by the digest on record, which alone vouches for them, since they are in no tree."""

from __future__ import annotations

from typing import Any

from kblockd.domain.canonical import NotCanonical, reparse, sha256_hex
from kblockd.domain.errors import StoredUnreadable


def document(digest: str, data: bytes) -> Any:
    """What was stored under that digest; raises ``StoredUnreadable``, also when it was altered."""
    try:
        if sha256_hex(data) == digest:
            return reparse(data)
    except NotCanonical:
        pass
    raise _unreadable(digest)


def salted(digest: str, data: bytes) -> Any:
    """The value beside its salt; raises ``StoredUnreadable``."""
    found = document(digest, data)
    if not isinstance(found, dict) or "value" not in found:
        raise _unreadable(digest)
    return found["value"]


def _unreadable(digest: str) -> StoredUnreadable:
    return StoredUnreadable(f"the payload {digest[:12]}…")
