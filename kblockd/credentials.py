"""Credentials from systemd: ``$CREDENTIALS_DIRECTORY`` names an in-memory folder that only this service can read.

The secret is in a file there, never in the environment and never in an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kblockd.evidence.errors import KeysRefused

KEYS: Final = "kblockd-keys"


def keys_passphrase(environment: Mapping[str, str]) -> bytes | None:
    """The passphrase of the daemon's keys, or None without such a credential.

    A trailing line end is stripped, as by ``kblockd keys init --passphrase-file``. Raises ``KeysRefused``.
    """
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return None
    file = Path(folder) / KEYS
    try:
        passphrase = file.read_bytes().rstrip(b"\r\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysRefused(f"{file}: {error.strerror}; correct LoadCredentialEncrypted= in kblockd.service") from None
    if not passphrase:
        raise KeysRefused(f"{file}: is empty; encrypt the passphrase again with systemd-creds")
    return passphrase
