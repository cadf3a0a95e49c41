"""Key ceremonies: init, rotation, retirement. Each needs the root key, which is offline at all other times.

Every ceremony produces a new key set signed by the root. The daemon records it at its next start: the bodies of
``key.added`` and ``key.retired`` name it by digest, and the signed key set itself is the record's aux.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.ledger.values import SigningKey
from kblockd.evidence import dsse, keys
from kblockd.evidence.effect_secret import EFFECT_FILE
from kblockd.evidence.errors import KeyNotValid, KeysRefused
from kblockd.evidence.jwks import KeySet, PublicKey, Role
from kblockd.evidence.keyring import KEYSET_FILE, ROOT_FILE, key_file, next_file, read_keyset


@dataclass(frozen=True, slots=True)
class KeySetChange:
    """The result of a ceremony: the new key set, its signed envelope, and the keys that it added or ended."""

    keyset: KeySet
    envelope: bytes
    added: tuple[PublicKey, ...]
    retired: tuple[PublicKey, ...]


def init_keys(
    folder: Path,
    root_file: Path,
    *,
    passphrase: bytes | None = None,
    root_passphrase: bytes | None = None,
    generate: keys.Generate = Ed25519PrivateKey.generate,
) -> KeySetChange:
    """New keys in a new folder, and the root's private key in ``root_file``, to be taken offline.

    Raises ``KeysRefused`` if either already exists or the root would be among the daemon's keys. The folder appears
    complete or not at all; the root file is written just before that, so that a failure leaves no keys without a root.
    """
    _check_places(folder, root_file)
    root = keys.LocalSigner(generate())
    signers = {role: keys.LocalSigner(generate()) for role in Role}
    added = tuple(PublicKey(role, signer.public_key, 0) for role, signer in signers.items())
    change = _signed(KeySet(1, added), root, added=added)
    files = {key_file(role): keys.private_pem(signer.private, passphrase) for role, signer in signers.items()}
    files |= {ROOT_FILE: keys.public_pem(root.public_key), KEYSET_FILE: change.envelope}
    files[EFFECT_FILE] = keys.private_pem(generate(), passphrase)
    fresh = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    try:
        fresh.mkdir(mode=keys.FOLDER_MODE)
        fresh.chmod(keys.FOLDER_MODE)
        for name, data in files.items():
            keys.write_new(fresh / name, data)
        keys.write_new(root_file, keys.private_pem(root.private, root_passphrase))
        fresh.rename(folder)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise KeysRefused(f"{error.filename}: {error.strerror}; no keys were created") from None
    keys.sync_folder(folder.parent)
    return change


def add_effect_secret(
    folder: Path,
    *,
    passphrase: bytes | None = None,
    uid: int | None = None,
    generate: keys.Generate = Ed25519PrivateKey.generate,
) -> bool:
    """Adds the secret of effect keys to a folder that was created before there was one; False if it exists.

    Atomic, so it can be repeated. Raises ``KeysRefused``. The caller must know that the ledger has never had such a
    secret: a second one would give the same calls different effect keys.
    """
    owner = os.geteuid() if uid is None else uid
    keys.check_folder(folder, uid=owner)
    if (folder / EFFECT_FILE).exists():
        return False
    keys.read_private(folder / key_file(Role.RESULT), passphrase, uid=owner)  # checks the passphrase
    keys.replace(folder / EFFECT_FILE, keys.private_pem(generate(), passphrase))
    return True


def add_key(
    folder: Path,
    root_file: Path,
    role: Role,
    *,
    from_index: int,
    passphrase: bytes | None = None,
    root_passphrase: bytes | None = None,
    uid: int | None = None,
    generate: keys.Generate = Ed25519PrivateKey.generate,
) -> KeySetChange:
    """A new key for a role, valid from a ledger index (the size of the stopped ledger); the old key ends before it.

    Destroys the old private key; its public half stays in the key set, so old receipts keep verifying (RCP-08). Raises
    ``KeysRefused``.
    """
    keyset, root = _open(folder, root_file, root_passphrase, uid)
    signer = keys.LocalSigner(generate())
    retired = _end(keyset, role, from_index)
    fresh = PublicKey(role, signer.public_key, from_index)
    ended = {key.kid: key for key in retired}
    previous = tuple(ended.get(key.kid, key) for key in keyset.keys)
    change = _signed(KeySet(keyset.version + 1, (*previous, fresh)), root, added=(fresh,), retired=retired)
    # In this order an interruption can be recognised: the key, then the key set that names it, then the final name.
    keys.replace(folder / next_file(role), keys.private_pem(signer.private, passphrase))
    keys.replace(folder / KEYSET_FILE, change.envelope)
    (folder / next_file(role)).replace(folder / key_file(role))
    keys.sync_folder(folder)
    return change


def retire(
    folder: Path,
    root_file: Path,
    kid: str,
    *,
    to_index: int,
    root_passphrase: bytes | None = None,
    uid: int | None = None,
) -> KeySetChange:
    """Ends a key at a ledger index, without a successor; an index before the current end revokes it.

    Raises ``KeysRefused``. A range can only be shortened. The key ring does not load until the role has an active key.
    """
    keyset, root = _open(folder, root_file, root_passphrase, uid)
    known = [key for key in keyset.keys if key.kid == kid]
    if not known:
        raise KeysRefused(f"no key {kid[:64]!r} in the key set")
    if known[0].to_index is not None and to_index > known[0].to_index:
        raise KeysRefused(f"{kid} already ended at {known[0].to_index}; a range is never extended")
    ended = dataclasses.replace(known[0], to_index=to_index)
    changed = tuple(ended if key.kid == kid else key for key in keyset.keys)
    change = _signed(KeySet(keyset.version + 1, changed), root, retired=(ended,))
    keys.replace(folder / KEYSET_FILE, change.envelope)
    return change


def signing_key(key: PublicKey, keyset_envelope: bytes) -> SigningKey:
    """What ``key.added``, ``key.retired`` and ``key.revoked`` say; the envelope itself is the record's aux."""
    return SigningKey(
        kid=key.kid,
        role=str(key.role),
        public_key=key.raw.hex(),
        from_index=key.from_index,
        to_index=UNSET if key.to_index is None else key.to_index,
        keyset_sha256=sha256_hex(keyset_envelope),
    )


def _check_places(folder: Path, root_file: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise KeysRefused(f"{folder}: exists; keys are never overwritten, choose a new folder")
    if root_file.exists() or root_file.is_symlink():
        raise KeysRefused(f"{root_file}: exists; a root key is never overwritten")
    if folder.resolve() in root_file.resolve().parents:
        raise KeysRefused(f"{root_file}: is among the daemon's keys; the root must be taken offline")
    for place in (folder.parent, root_file.parent):
        if not place.is_dir():
            raise KeysRefused(f"{place}: no such folder; create it first")


def _open(folder: Path, root_file: Path, passphrase: bytes | None, uid: int | None) -> tuple[KeySet, keys.LocalSigner]:
    owner = os.geteuid() if uid is None else uid
    keyset, _, pinned = read_keyset(folder, uid=owner)
    root = keys.read_private(root_file, passphrase, uid=owner)
    if root.public_key != pinned:
        raise KeysRefused(f"{root_file}: not the root of these keys ({ROOT_FILE} differs)")
    return keyset, root


def _end(keyset: KeySet, role: Role, from_index: int) -> tuple[PublicKey, ...]:
    """The role's active key, ended just before the index; empty if the role has none."""
    try:
        active = keyset.active(role)
    except KeyNotValid:
        return ()
    if from_index <= active.from_index:
        raise KeysRefused(
            f"the active {role} key starts at {active.from_index}; a successor must start later, not at {from_index}"
        )
    return (dataclasses.replace(active, to_index=from_index - 1),)


def _signed(
    keyset: KeySet, root: keys.LocalSigner, *, added: Sequence[PublicKey] = (), retired: Sequence[PublicKey] = ()
) -> KeySetChange:
    envelope = dsse.sign(dsse.JWKS_TYPE, keyset.payload(), root)
    return KeySetChange(keyset, envelope, tuple(added), tuple(retired))
