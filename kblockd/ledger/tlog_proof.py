"""Proof that a record is in the log, as text: C2SP ``tlog-proof@v1``.

::

    c2sp.org/tlog-proof@v1
    extra <base64>                  optional, opaque and not authenticated
    index <decimal>
    <base64 of 32 bytes>            the inclusion path, one line a hash, from the leaf's sibling up
    (an empty line)
    <the checkpoint, verbatim>
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final

from kblockd.domain.values import value_type
from kblockd.ledger import checkpoint as checkpoints
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.merkle import ProofError, leaf_hash, verify_inclusion
from kblockd.ledger.note import NoteError

MAGIC: Final = "c2sp.org/tlog-proof@v1"
_MAX_PATH: Final = 64


@value_type(frozen=True, slots=True)
class TlogProof:
    """Index, path and checkpoint; ``extra`` is None when the line is absent."""

    index: int
    path: tuple[bytes, ...]
    checkpoint: str
    extra: bytes | None = None

    def text(self) -> str:
        """The file, to be stored as ``.tlog-proof``."""
        lines = [MAGIC]
        if self.extra is not None:
            lines.append(f"extra {base64.b64encode(self.extra).decode()}")
        lines.append(f"index {self.index}")
        lines += [base64.b64encode(value).decode() for value in self.path]
        return "\n".join(lines) + "\n\n" + self.checkpoint

    def verify(self, leaf: bytes, origin: str, keys: Iterable[bytes]) -> TreeHead:
        """The signed head that holds ``leaf`` at ``index``; raises ``NoteError`` or ``ProofError``."""
        head = checkpoints.verify(self.checkpoint, origin, keys)
        verify_inclusion(leaf_hash(leaf), self.index, head.size, self.path, head.root)
        return head


def parse(text: str) -> TlogProof:
    """The proof, nothing verified; raises ``ProofError``."""
    start, found, checkpoint = text.partition("\n\n")
    lines = start.split("\n")
    if not found or lines[0] != MAGIC:
        raise ProofError(f"a proof starts with the line {MAGIC} and has an empty line before its checkpoint")
    extra = None
    if len(lines) > 1 and lines[1].startswith("extra "):
        extra = _base64(lines.pop(1).removeprefix("extra "))
    if len(lines) < 2 or not lines[1].startswith("index "):
        raise ProofError("a proof needs a line 'index <decimal>'")
    try:
        index = checkpoints.decimal(lines[1].removeprefix("index "))
    except NoteError as error:
        raise ProofError(str(error)) from None
    return TlogProof(index, _path(lines[2:]), checkpoint, extra)


def _path(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > _MAX_PATH:
        raise ProofError(f"a path of {len(lines)} hashes, at most {_MAX_PATH} are possible")
    path = tuple(map(_base64, lines))
    if any(len(value) != 32 for value in path):
        raise ProofError("a hash of the path has not 32 bytes")
    return path


def _base64(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProofError(f"{text[:64]!r} is not base64") from None
    if base64.b64encode(value).decode() != text:
        raise ProofError(f"{text[:64]!r} is not the canonical base64 of its bytes")
    return value
