"""Authorization values, read just before use and dropped afterwards; never in a repr, a log, an error or the ledger.

A file is trusted only if nobody but its owner can read it, the owner is root or the daemon's user, and nobody else may
write a folder above it. Source: R624, R631, R632, R640; case LOC-02.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.paths import Unsafe, Writers, open_path
from kblockd.upstream.faults import UpstreamFault

_MAX_BYTES: Final = 8192
# A shorter value could be an ordinary word, which cannot be scrubbed from answers.
_MIN_BYTES: Final = 8
_VALUE: Final = re.compile(rb"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


class CredentialFault(UpstreamFault):
    """The credential cannot be used. ``code`` is CREDENTIAL_UNREADABLE or CREDENTIAL_INVALID; never holds the value."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference, ``none``, ``file:PATH`` or ``env:NAME``; the value is never stored.

    ``writers``: the only users who may own the file and write the folders above it; None: root and this process's user.
    """

    ref: str
    writers: Writers | None = None

    def read(self, environment: Mapping[str, str] = os.environ) -> bytes | None:
        """The current Authorization value, or None; raises ``CredentialFault``."""
        kind, _, where = self.ref.partition(":")
        if kind == "none":
            return None
        if kind == "file":
            value = _from_file(Path(where), self.writers or Writers(frozenset({0, os.geteuid()})))
        elif where in environment:
            value = os.fsencode(environment[where])
        else:
            raise CredentialFault("CREDENTIAL_UNREADABLE", f"the environment variable {where} is not set")
        return _checked(self.ref, value)


def _from_file(path: Path, writers: Writers) -> bytes:
    try:
        with open_path(path) as file:
            if not file.is_file:
                raise CredentialFault("CREDENTIAL_UNREADABLE", f"{path}: not a regular file")
            if file.mode & 0o077:
                what = f"{path}: group or others may read it; chmod 600 and replace the credential"
                raise CredentialFault("CREDENTIAL_UNREADABLE", what)
            writers.judge(file.steps)
            value = file.read(_MAX_BYTES + 3)
    except OSError as error:
        raise CredentialFault("CREDENTIAL_UNREADABLE", f"{path}: {error.strerror}") from None
    except Unsafe as unsafe:
        raise CredentialFault("CREDENTIAL_UNREADABLE", f"{unsafe}, and replace the credential") from None
    return value.removesuffix(b"\n").removesuffix(b"\r")


def _checked(ref: str, value: bytes) -> bytes:
    if not _MIN_BYTES <= len(value) <= _MAX_BYTES:
        raise CredentialFault("CREDENTIAL_INVALID", f"{ref}: must have {_MIN_BYTES} to {_MAX_BYTES} bytes")
    if not _VALUE.fullmatch(value):
        raise CredentialFault("CREDENTIAL_INVALID", f"{ref}: one line of visible ASCII, words apart by one space")
    return value
