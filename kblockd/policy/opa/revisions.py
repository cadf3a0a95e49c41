"""The file in which ``kblockd policy check`` notes accepted revisions: the only ones that a remote OPA may serve.

One JSON object a line: ``{"revision", "tests", "at"}`` and, for a bundle that has them, its name for itself, who signed
it and for which scope. To retire a revision, take its line out: a remote OPA that
still serves it is denied from the next look on.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kblockd.paths import Unsafe, Writers, open_path
from kblockd.policy.bundles.bundle import Bundle, Origin

MAX_BYTES: Final = 1 << 20
MAX_NOTES: Final = 1000
_REVISION: Final = re.compile(r"[0-9a-f]{64}")


class RevisionsUnreadable(Exception):
    """The file is missing or not what ``policy check`` writes; the message names file, line and next step."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A revision that passed, how many tests ran, when (RFC 3339), and where the bundle came from."""

    revision: str
    tests: int
    at: str
    origin: Origin = field(default_factory=Origin)

    def to_json(self) -> bytes:
        """One line; kept as the payload of the activation, since the bundle itself is with OPA."""
        origin = {name: value for name, value in asdict(self.origin).items() if value}
        return json.dumps({"revision": self.revision, "tests": self.tests, "at": self.at, **origin}).encode()


def read(file: Path, writers: Writers | None = None) -> Mapping[str, Passed]:
    """By revision; ``writers``: who alone may write it. Raises ``RevisionsUnreadable``. Blocks."""
    try:
        with open_path(file) as opened:
            if writers is not None:
                writers.judge(opened.steps)
            text = opened.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror}); run `kblockd policy check`"
        raise RevisionsUnreadable(message) from None
    except Unsafe as unsafe:
        raise RevisionsUnreadable(f"{file}: {unsafe}") from None
    if len(text) > MAX_BYTES:
        raise RevisionsUnreadable(f"{file}: more than {MAX_BYTES} bytes; take the lines of old revisions out")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            note = _passed(file, number, line)
            found[note.revision] = note
    return found


def is_revision(text: str) -> bool:
    """Whether it has the form of a revision of kblockd."""
    return _REVISION.fullmatch(text) is not None


def note(file: Path, bundle: Bundle, at: str) -> None:
    """Adds a bundle that passed, the newest last, and keeps the newest 1000. Raises ``OSError``. Blocks.

    The file is replaced whole, so that a reader sees the old one or the new one.
    """
    try:
        known = dict(read(file)) if file.exists() else {}
    except RevisionsUnreadable as error:
        raise OSError(str(error)) from None
    known.pop(bundle.revision, None)
    known[bundle.revision] = Passed(bundle.revision, bundle.tests, at, bundle.origin)
    lines = [row.to_json() + b"\n" for row in list(known.values())[-MAX_NOTES:]]
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as fresh:
            fresh.writelines(lines)
            fresh.flush()
            os.fsync(fresh.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _passed(file: Path, number: int, line: bytes) -> Passed:
    try:
        row: dict[str, Any] = json.loads(line)
        revision, tests = row.pop("revision"), row.pop("tests")
        texts = all(isinstance(value, str) for value in row.values())
        if texts and _REVISION.fullmatch(revision) and type(tests) is int:
            return Passed(revision, tests, row.pop("at"), Origin(**row))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise RevisionsUnreadable(f"{file}:{number}: not a note of `kblockd policy check`; take the line out")
