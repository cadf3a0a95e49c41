"""Stored Ed25519 private keys: PKCS#8 in files that only their owner can read, and a Signer that uses one.

A passphrase should be 32 random bytes (systemd ``LoadCredentialEncrypted=``), not a word: the PKCS#8 of
``cryptography`` derives its key with only 2,048 rounds of PBKDF2. Source: kblockd/evidence/README.md#keys; RCP-09.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.jwks import thumbprint

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
MAX_FILE: Final = 1 << 20

Generate = Callable[[], Ed25519PrivateKey]


@dataclass(frozen=True, slots=True)
class LocalSigner:
    """A ``kblockd.domain.signing.Signer`` with a key in memory; ``repr`` shows only its id."""

    private: Ed25519PrivateKey = field(repr=False)
    public_key: bytes = field(init=False, repr=False)
    key_id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_key", self.private.public_key().public_bytes_raw())
        object.__setattr__(self, "key_id", thumbprint(self.public_key))

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self.private.sign(message)


def private_pem(key: Ed25519PrivateKey, passphrase: bytes | None) -> bytes:
    """PKCS#8, encrypted if a passphrase is given."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public_pem(raw: bytes) -> bytes:
    """SubjectPublicKeyInfo in PEM, as openssl reads it."""
    key = Ed25519PublicKey.from_public_bytes(raw)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_private(file: Path, passphrase: bytes | None, *, uid: int) -> LocalSigner:
    """The key in a guarded file; raises ``KeysRefused``; never creates one (RCP-09)."""
    data = read_guarded(file, uid=uid)
    try:
        key = serialization.load_pem_private_key(data, passphrase)
    except TypeError:
        mismatch = (
            "is encrypted, but no passphrase was given"
            if passphrase is None
            else "is not encrypted, but a passphrase was given"
        )
        raise KeysRefused(f"{file}: the key {mismatch}; see the credential kblockd-keys in config/README.md") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeysRefused(
            f"{file}: not a PKCS#8 key, or a wrong passphrase; restore the file from its backup"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeysRefused(f"{file}: not an Ed25519 key; restore the file from its backup")
    return LocalSigner(key)


def read_public(data: bytes, name: str) -> bytes:
    """The raw bytes of a PEM public key; raises ``KeysRefused``."""
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeysRefused(f"{name}: not a public key in PEM; restore the file from its backup") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeysRefused(f"{name}: not an Ed25519 public key")
    return key.public_bytes_raw()


def check_folder(folder: Path, *, uid: int) -> None:
    """Raises ``KeysRefused`` for a folder that is missing, a link, owned by another user, or open to others."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise KeysRefused(f"{folder}: {error.strerror}; create the keys with `kblockd keys init`") from None
    if not stat.S_ISDIR(status.st_mode):
        raise KeysRefused(f"{folder}: not a folder; point keys at a real folder, not at a link")
    _check_status(folder, status, FOLDER_MODE, uid)


def read_guarded(file: Path, *, uid: int) -> bytes:
    """The content of a regular file that only its owner can access; raises ``KeysRefused``. Follows no links."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise KeysRefused(f"{file}: {error.strerror}; restore it, kblockd never creates a key by itself") from None
    try:
        status = os.fstat(descriptor)  # of the opened file, not of whatever has its name by now
        if not stat.S_ISREG(status.st_mode):
            raise KeysRefused(f"{file}: not a regular file; restore it from its backup")
        _check_status(file, status, FILE_MODE, uid)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(MAX_FILE)
    finally:
        os.close(descriptor)


def write_new(file: Path, data: bytes) -> None:
    """A new file of mode 0600, on disk when it returns; raises FileExistsError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(file.parent)


def replace(file: Path, data: bytes) -> None:
    """Replaces the file atomically."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    write_new(fresh, data)
    fresh.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Makes the folder's directory entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_status(path: Path, status: os.stat_result, mode: int, uid: int) -> None:
    if status.st_uid != uid:
        what = f"{path}: belongs to uid {status.st_uid}, not to uid {uid}"
        raise KeysRefused(f"{what}; run as its owner, or chown it if it is a copy")
    actual = stat.S_IMODE(status.st_mode) & 0o777  # the set-group-ID bit, which folders inherit, grants no access
    if actual & ~mode:
        raise KeysRefused(f"{path}: mode {actual:04o}, at most {mode:04o} is safe; chmod {mode:o} it")
