"""Signing as a parameter: a file today, a KMS or PKCS#11 later (kblockd/evidence/README.md#keys)."""

from __future__ import annotations

from typing import Protocol


class Signer(Protocol):
    """One Ed25519 key with one role."""

    @property
    def key_id(self) -> str:
        """RFC 7638 thumbprint, base64url."""
        ...

    @property
    def public_key(self) -> bytes:
        """The raw 32 bytes."""
        ...

    def sign(self, message: bytes) -> bytes:
        """64 bytes; raises OSError when the key cannot be used."""
        ...
