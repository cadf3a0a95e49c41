"""The keys of a running daemon: loaded once, strictly checked, never created (RCP-09).

Files in ``keys/`` (folder 0700, files 0600): ``result.pem``, ``log.pem``, ``approval.pem``, ``root.pub.pem``,
``keyset.dsse.json`` (the JWKS signed by the root) and ``effect.pem``, which signs nothing (``effect_secret``). The
root's private key is offline.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kblockd.domain.signing import Signer
from kblockd.evidence import dsse, keys
from kblockd.evidence.effect_secret import EffectSecret
from kblockd.evidence.errors import EvidenceError, KeyNotValid, KeysRefused
from kblockd.evidence.jwks import KeySet, Role, thumbprint

ROOT_FILE: Final = "root.pub.pem"
KEYSET_FILE: Final = "keyset.dsse.json"


def key_file(role: Role) -> str:
    """The name of a role's private key."""
    return f"{role}.pem"


def next_file(role: Role) -> str:
    """The name of a role's new key during a rotation, until the key set names it."""
    return f"{role}.next.pem"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """One signer per role, and the public key set with its signature."""

    keyset: KeySet
    keyset_envelope: bytes = field(repr=False)
    root_public_key: bytes = field(repr=False)
    signers: dict[Role, Signer] = field(repr=False)
    effect: EffectSecret = field(repr=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        passphrase: bytes | None = None,
        root_public_key: bytes | None = None,
        uid: int | None = None,
    ) -> KeyRing:
        """Raises ``KeysRefused`` with the file and the next step for any fault.

        ``root_public_key`` (raw) pins the root; ``uid`` is the required owner of the files, by default this process's
        effective user.
        """
        owner = os.geteuid() if uid is None else uid
        keyset, envelope, root = read_keyset(folder, uid=owner)
        if root_public_key is not None and root != root_public_key:
            raise KeysRefused(f"{folder / ROOT_FILE}: not the pinned root key; do not use these keys")
        signers: dict[Role, Signer] = {}
        for role in Role:
            signers[role] = _signer(folder, role, keyset, passphrase, owner)
        return cls(keyset, envelope, root, signers, EffectSecret.load(folder, passphrase, uid=owner))

    def signer(self, role: Role) -> Signer:
        """The active key of a role."""
        return self.signers[role]

    @property
    def result(self) -> Signer:
        """Signs RESULT, RECEIPT and DISPOSITION."""
        return self.signers[Role.RESULT]

    @property
    def log(self) -> Signer:
        """Signs checkpoints."""
        return self.signers[Role.LOG]

    @property
    def approval(self) -> Signer:
        """Signs approvals on behalf of an authenticated approver."""
        return self.signers[Role.APPROVAL]


def read_keyset(folder: Path, *, uid: int) -> tuple[KeySet, bytes, bytes]:
    """(key set, its envelope, the root's raw public key), with the signature verified; raises ``KeysRefused``."""
    keys.check_folder(folder, uid=uid)
    root = keys.read_public(keys.read_guarded(folder / ROOT_FILE, uid=uid), str(folder / ROOT_FILE))
    envelope = keys.read_guarded(folder / KEYSET_FILE, uid=uid)
    return open_keyset(envelope, root, str(folder / KEYSET_FILE)), envelope, root


def open_keyset(envelope: bytes, root: bytes, name: str = "the key set") -> KeySet:
    """The key set in an envelope signed by the root; raises ``KeysRefused``."""
    try:
        opened = dsse.verify(envelope, dsse.JWKS_TYPE, {thumbprint(root): root}.get)
    except EvidenceError as error:
        raise KeysRefused(f"{name}: not signed by the root: {error}; sign it again with the offline root key") from None
    keyset = KeySet.read(opened.payload)
    if keyset.raw(thumbprint(root)) is not None:
        raise KeysRefused(f"{name}: the root key has a second role; create separate keys")
    return keyset


def _signer(folder: Path, role: Role, keyset: KeySet, passphrase: bytes | None, uid: int) -> Signer:
    file = folder / key_file(role)
    signer = keys.read_private(file, passphrase, uid=uid)
    try:
        active = keyset.active(role)
    except KeyNotValid:
        raise KeysRefused(f"{file}: the key set has no active {role} key; add one with the offline root key") from None
    if signer.public_key == active.raw:
        return signer
    if (folder / next_file(role)).exists():
        raise KeysRefused(f"{file}: a rotation was interrupted; move {next_file(role)} over {file.name}")
    raise KeysRefused(f"{file}: not the active {role} key of the key set ({active.kid}); restore the right file")
