"""The secret under which effect keys are derived: one file beside the signing keys, one secret a tenant.

Backups must hold it. A restored ledger that derives other effect keys turns the repeat of a call into a second deed at
an upstream which knows the first one by its key (EVI-15); and whoever has it can try arguments against a RESULT's
effect key (EVI-14), so it is guarded as the signing keys are.

The file is a PKCS#8 Ed25519 key, because that is the one container here that a passphrase encrypts. Its 32 bytes are
used as a seed and never sign anything; its public half names it in the ledger without giving it away.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kblockd.evidence import keys
from kblockd.evidence.errors import KeysRefused

EFFECT_FILE: Final = "effect.pem"
ROLE: Final = "effect"
_LABEL: Final = b"kblockd.effect-secret/1\0"


@dataclass(frozen=True, slots=True)
class EffectSecret:
    """The seed of all tenants' secrets; ``repr`` shows its id only."""

    seed: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    key_id: str

    @classmethod
    def of(cls, signer: keys.LocalSigner) -> EffectSecret:
        """From the key of the file."""
        return cls(signer.private.private_bytes_raw(), signer.public_key, signer.key_id)

    @classmethod
    def load(cls, folder: Path, passphrase: bytes | None, *, uid: int) -> EffectSecret:
        """Raises ``KeysRefused``, never makes one."""
        file = folder / EFFECT_FILE
        if not file.exists():
            raise KeysRefused(
                f"{file}: missing; restore it from the backup of this ledger. Only for a data directory that was "
                "written before effect keys had a secret, `kblockd ledger upgrade` makes it"
            )
        return cls.of(keys.read_private(file, passphrase, uid=uid))

    def record_body(self) -> dict[str, Any]:
        """The body of its ``key.added``: no range and no key set, because nothing is ever verified with it."""
        return {"kid": self.key_id, "role": ROLE, "publicKey": self.public_key.hex()}

    def tenant(self, name: str) -> bytes:
        """32 bytes: the tenant's own secret."""
        return hmac.new(self.seed, _LABEL + name.encode(), hashlib.sha256).digest()
