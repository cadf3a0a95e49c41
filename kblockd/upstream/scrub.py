"""Removes the injected credential from everything that an upstream sends back (R478, R601)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

Json = Any

REMOVED: Final = "[credential removed]"
# A shorter part would match ordinary words; the whole value is always longer (see credentials.py).
_MIN_CHARACTERS: Final = 6
_ALIKE: Final = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u00b5", "\u03bc"))
_NUMERIC: Final = re.compile(r"[0-9.e+-]+")


class Scrubber:
    """Replaces credentials in every form in which an upstream may echo them.

    Forms: the full Authorization value, its token, and the token's decoded text (for Basic: user, password and both),
    each also base64, percent-encoded in both styles and JSON-escaped.
    """

    def __init__(self, *credentials: bytes | None) -> None:
        unique = {form for credential in credentials if credential for form in _forms(credential.decode("latin-1"))}
        self._folded = tuple({_folded(form) for form in unique})
        self._in_numbers = any(_NUMERIC.fullmatch(form) for form in self._folded)

    def text(self, text: str) -> str:
        """``text`` without the credential, in whatever case. By searches for fixed texts: a pattern takes half a second
        for a megabyte, in which no other thread runs, and an upstream can have that by echoing what it was sent."""
        folded = _folded(text)
        kept, end = [], 0
        for start, stop in sorted(span for form in self._folded for span in _spans(folded, form)):
            if start >= end:
                kept += [text[end:start], REMOVED]
            end = max(end, stop)
        return "".join([*kept, text[end:]]) if kept else text

    def value(self, value: Json) -> Json:
        """The same for keys and values of JSON, to any depth; numbers that spell the credential become text."""
        if not self._folded:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(member) for member in value]
        if self._in_numbers and isinstance(value, int | float):
            return REMOVED if self.text(digits := _digits(value)) != digits else value
        return value


def _folded(text: str) -> str:
    """Of the same length, and equal for what differs in case alone: the two Turkish letters and the long s among it."""
    if text.isascii():
        return text.lower()
    for letter, other in _ALIKE:
        text = text.replace(letter, other)
    return text.lower().replace("\u03c2", "\u03c3")  # a sigma in the end


def _spans(folded: str, form: str) -> Iterator[tuple[int, int]]:
    at = folded.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = folded.find(form, at + len(form))


def _digits(number: int | float) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than the interpreter converts; refused later as not storable
        return ""


def _forms(value: str) -> set[str]:
    forms: set[str] = set()
    for part in _parts(value):
        if len(part) < _MIN_CHARACTERS:
            continue
        octets = part.encode("latin-1", "replace")
        encoded = (
            base64.b64encode(octets).decode().rstrip("="),
            base64.urlsafe_b64encode(octets).decode().rstrip("="),
            quote(part, safe=""),
            quote(part),
            quote_plus(part),
            json.dumps(part)[1:-1],
            json.dumps(part)[1:-1].replace("/", "\\/"),
        )
        forms.update((part, *encoded))
    return forms


def _parts(value: str) -> Iterator[str]:
    """The value, its words, each word's decoded text, and the password in that."""
    yield value
    words = value.split(" ")
    for word in words[1:] if len(words) > 1 else words:
        yield word
        for decoded in _decoded(word):
            yield decoded
            if ":" in decoded:
                yield decoded.partition(":")[2]


def _decoded(word: str) -> Iterator[str]:
    """Printable text that ``word``, or a dotted part of it (a JWT), encodes in base64."""
    for piece in {word, *word.split(".")}:
        padded = piece.rstrip("=") + "=" * (-len(piece.rstrip("=")) % 4)
        try:
            text = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True).decode()
        except (binascii.Error, ValueError):
            continue
        if text.isprintable():
            yield text
