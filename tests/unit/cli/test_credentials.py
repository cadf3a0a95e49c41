"""The passphrase of the daemon's keys: from systemd's credential folder and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kblockd.credentials import KEYS, keys_passphrase
from kblockd.evidence.ceremony import init_keys
from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.keyring import KeyRing


def test_encrypted_keys_are_opened_with_the_credential(tmp_path: Path) -> None:
    """A line end in the file is no part of the passphrase, at either end."""
    init_keys(tmp_path / "keys", tmp_path / "root.pem", passphrase=b"c2VjcmV0", root_passphrase=None)
    (tmp_path / KEYS).write_bytes(b"c2VjcmV0\n")
    given = keys_passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert KeyRing.load(tmp_path / "keys", passphrase=given).keyset.version == 1
    with pytest.raises(KeysRefused, match="kblockd-keys"):
        KeyRing.load(tmp_path / "keys", passphrase=keys_passphrase({}))


def test_no_credential_is_no_passphrase(tmp_path: Path) -> None:
    assert keys_passphrase({}) is None
    assert keys_passphrase({"CREDENTIALS_DIRECTORY": ""}) is None
    assert keys_passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)}) is None
    assert keys_passphrase({"KBLOCKD_KEYS": "secret", "kblockd-keys": "secret"}) is None


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_credential_refuses_and_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEYS).write_bytes(content)
    with pytest.raises(KeysRefused, match="systemd-creds"):
        keys_passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_a_credential_that_cannot_be_read_refuses(tmp_path: Path) -> None:
    (tmp_path / KEYS).mkdir()
    with pytest.raises(KeysRefused, match="LoadCredentialEncrypted"):
        keys_passphrase({"CREDENTIALS_DIRECTORY": str(tmp_path)})
