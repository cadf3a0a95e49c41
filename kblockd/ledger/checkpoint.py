"""Signed tree heads: C2SP ``tlog-checkpoint``, a signed note of origin, size and root.

No extension lines are written and none are read: monitors cannot audit them. The key name is the origin
(kblockd/ledger/README.md#checkpoint).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kblockd.domain.signing import Signer
from kblockd.ledger import note
from kblockd.ledger.note import NoteError, Verifier


@dataclass(frozen=True, slots=True)
class TreeHead:
    """Of one log: its size and the root over so many records."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """The three lines of the note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def sign(head: TreeHead, signers: Sequence[Signer]) -> str:
    """The checkpoint; two signers while a key rotates. Raises ValueError for an origin that names no key, OSError."""
    return note.sign(head.text(), head.origin, signers)


def verify(checkpoint: str, origin: str, keys: Iterable[bytes]) -> TreeHead:
    """The head, signed by one of the log's raw public keys; raises ``NoteError``."""
    text, _ = note.verify(checkpoint, [Verifier(origin, key) for key in keys])
    head = parse(text)
    if head.origin != origin:
        raise NoteError(f"the checkpoint is of the log {head.origin!r}, not of {origin!r}")
    return head


def parse(text: str) -> TreeHead:
    """The head from the text of a note, nothing verified; raises ``NoteError``."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3]:
        raise NoteError("a checkpoint has the three lines origin, size and root, and no extension lines")
    origin, size, encoded = lines[:3]
    if not origin:
        raise NoteError("the origin is empty")
    try:
        root = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        root = b""
    if len(root) != 32 or base64.b64encode(root).decode() != encoded:
        raise NoteError("the root is not the base64 of 32 bytes")
    return TreeHead(origin, decimal(size), root)


def decimal(text: str) -> int:
    """ASCII decimal without leading zeroes, below 2^63; raises ``NoteError``."""
    if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0") or int(text[:20]) >= 1 << 63:
        raise NoteError(f"{text[:32]!r} is not a size or an index")
    return int(text)
