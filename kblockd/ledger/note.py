"""Signed notes: text with signature lines, C2SP ``signed-note``, Ed25519 (signature type 01) only.

::

    text, each line ended by a newline
    (an empty line)
    — <key name> base64(key id ‖ signature)

Key id: the first four bytes of SHA-256(key name ‖ 0A ‖ 01 ‖ public key). A signature by an unknown key is ignored;
one by a known key that does not verify condemns the note.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from kblockd.domain.signing import Signer

MAX_NOTE_BYTES: Final = 1 << 16
MAX_SIGNATURES: Final = 64
_ED25519: Final = b"\x01"
_DASH: Final = "\u2014 "
_NOT_IN_NAMES: Final = re.compile(r"[\s+\x00-\x1f]")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")


class NoteError(ValueError):
    """Not a note, or not signed by a key that is trusted."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A key that is trusted under a name."""

    name: str
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """Four bytes."""
        return key_id(self.name, self.public_key)


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line."""

    name: str
    key_id: bytes
    signature: bytes


def check_name(name: str) -> str:
    """The name itself; raises ValueError when no key may bear it: empty, with a space, a plus or a control sign."""
    if not name or _NOT_IN_NAMES.search(name):
        raise ValueError(f"the note key name {name!r} must be non-empty, without spaces, control signs or '+'")
    return name


def key_id(name: str, public_key: bytes) -> bytes:
    """The first four bytes of SHA-256(name ‖ 0A ‖ 01 ‖ public key)."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


def sign(text: str, name: str, signers: Sequence[Signer]) -> str:
    """The note with one line for each signer (two while a key rotates).

    Raises ValueError for text that a note cannot hold, OSError when a key cannot be used.
    """
    _check_text(text)
    check_name(name)
    lines = []
    for signer in signers:
        blob = key_id(name, signer.public_key) + signer.sign(text.encode())
        lines.append(f"{_DASH}{name} {base64.b64encode(blob).decode()}\n")
    return text + "\n" + "".join(lines)


def split(note: str) -> tuple[str, list[NoteSignature]]:
    """(text, signatures), nothing verified; raises ``NoteError``."""
    if len(note) > MAX_NOTE_BYTES:
        raise NoteError(f"a note of {len(note)} characters, at most {MAX_NOTE_BYTES} are read")
    at = note.rfind("\n\n")
    if at < 0:
        raise NoteError("no empty line between text and signatures")
    text, block = note[: at + 1], note[at + 2 :]
    try:
        _check_text(text)
    except ValueError as error:
        raise NoteError(str(error)) from None
    if not block.endswith("\n"):
        raise NoteError("no signature line that ends in a newline")
    lines = block[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"{len(lines)} signatures, at most {MAX_SIGNATURES} are read")
    return text, [_signature(line) for line in lines]


def verify(note: str, trusted: Iterable[Verifier]) -> tuple[str, list[Verifier]]:
    """(text, who signed it); raises ``NoteError`` unless a trusted key did and none of them failed."""
    text, signatures = split(note)
    known = {(verifier.name, verifier.key_id): verifier for verifier in trusted}
    found: list[Verifier] = []
    for signature in signatures:
        verifier = known.get((signature.name, signature.key_id))
        if verifier is None:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(verifier.public_key).verify(signature.signature, text.encode())
        except InvalidSignature:
            raise NoteError(f"the signature of {verifier.name} does not verify") from None
        if verifier not in found:
            found.append(verifier)
    if not found:
        raise NoteError("no signature by a trusted key")
    return text, found


def _check_text(text: str) -> None:
    if not text.endswith("\n") or text == "\n":
        raise ValueError("a note's text must not be empty and must end in a newline")
    if _CONTROL.search(text):
        raise ValueError("a note's text must not hold control signs but newlines")


def _signature(line: str) -> NoteSignature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    try:
        blob = base64.b64decode(encoded, validate=True)
        check_name(name)
    except (binascii.Error, ValueError):
        blob = b""
    if not line.startswith(_DASH) or len(blob) < 5:
        raise NoteError("a line after the text is not a signature")
    return NoteSignature(name, blob[:4], blob[4:])
