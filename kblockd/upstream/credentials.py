"""Authorization values, asked for just before use; never in a repr, a log, an error or the ledger.

A file is trusted only if nobody but its owner can read it, the owner is root or the daemon's user, and nobody else may
write a folder above it. It is read and judged when it has changed: before each use its path is asked for the file that
it leads to now. Source: R624, R631, R632, R640; case LOC-02.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kblockd.paths import Unsafe, Writers, open_path
from kblockd.upstream.faults import UpstreamFault

_MAX_BYTES: Final = 8192
# A shorter value could be an ordinary word, which cannot be scrubbed from answers.
_MIN_BYTES: Final = 8
# Of the clock of a file system: within it a file may be written again and show the same times.
_SETTLED_NS: Final = 2_000_000_000
_Seen = tuple[int, int, int, int, int]
_VALUE: Final = re.compile(rb"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


class CredentialFault(UpstreamFault):
    """The credential cannot be used. ``code`` is CREDENTIAL_UNREADABLE or CREDENTIAL_INVALID; never holds the value."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference, ``none``, ``file:PATH`` or ``env:NAME``.

    ``writers``: the only users who may own the file and write the folders above it; None: root and this process's user.
    """

    ref: str
    writers: Writers | None = None
    _known: dict[_Seen, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, environment: Mapping[str, str] = os.environ) -> bytes | None:
        """The current Authorization value, or None; raises ``CredentialFault``."""
        kind, _, where = self.ref.partition(":")
        if kind == "none":
            return None
        if kind == "file":
            return self._from_file(where)
        if where not in environment:
            raise CredentialFault("CREDENTIAL_UNREADABLE", f"the environment variable {where} is not set")
        return _checked(self.ref, os.fsencode(environment[where]))

    def _from_file(self, where: str) -> bytes:
        """What is known while the path leads to the same file, unchanged; it was trusted as a whole then, and whoever
        could change it or put another in its place would show here."""
        seen = _seen(where)
        if seen is not None and (known := self._known.get(seen)) is not None:
            return known
        self._known.clear()
        value = _checked(self.ref, _from_file(Path(where), self.writers or Writers(frozenset({0, os.geteuid()}))))
        if seen is not None and seen == _seen(where) and time.time_ns() - max(seen[-2:]) > _SETTLED_NS:
            self._known[seen] = value
        return value


def _seen(where: str) -> _Seen | None:
    """Which file the path leads to, and its state: owner and mode change ``st_ctime``, as the content does."""
    try:
        found = os.stat(where)
    except OSError:
        return None  # whoever opens it says why
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
