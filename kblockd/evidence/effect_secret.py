"""The secret for deriving effect keys: one file beside the signing keys, one derived secret per tenant.

Backups must include it. If a restored ledger derived different effect keys, an upstream that recognises calls by their
key would execute a repeat as a second action (EVI-15). Whoever has the secret can test guessed arguments against a
RESULT's effect key (EVI-14), so it is protected like the signing keys.

The file is a PKCS#8 Ed25519 key, because that is the format here that supports a passphrase. Its 32 bytes are a seed
and never sign anything; its public half identifies the secret in the ledger without revealing it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kblockd.domain.ledger.values import SigningKey
from kblockd.evidence import keys
from kblockd.evidence.errors import KeysRefused

EFFECT_FILE: Final = "effect.pem"
ROLE: Final = "effect"
_LABEL: Final = b"kblockd.effect-secret/1\0"


@dataclass(frozen=True, slots=True)
class EffectSecret:
    """The seed of all tenants' secrets; ``repr`` shows only its id."""

    seed: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    key_id: str

    @classmethod
    def of(cls, signer: keys.LocalSigner) -> EffectSecret:
        """From the file's key."""
        return cls(signer.private.private_bytes_raw(), signer.public_key, signer.key_id)

    @classmethod
    def load(cls, folder: Path, passphrase: bytes | None, *, uid: int) -> EffectSecret:
        """Raises ``KeysRefused``; never creates one."""
        file = folder / EFFECT_FILE
        if not file.exists():
            raise KeysRefused(
                f"{file}: missing; restore it from the backup of this ledger. Only for a data directory that was "
                "written before effect keys had a secret, `kblockd ledger upgrade` creates it"
            )
        return cls.of(keys.read_private(file, passphrase, uid=uid))

    def signing_key(self) -> SigningKey:
        """What its ``key.added`` says: neither range nor key set, because it never verifies anything."""
        return SigningKey(kid=self.key_id, role=ROLE, public_key=self.public_key.hex())

    def tenant(self, name: str) -> bytes:
        """32 bytes: the tenant's own secret."""
        return hmac.new(self.seed, _LABEL + name.encode(), hashlib.sha256).digest()
