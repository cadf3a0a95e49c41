"""Removes the injected credential from everything that an upstream sends back (R478, R601, interfaces.md section 6)."""

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
_NUMERIC: Final = re.compile(r"[0-9.e+-]+")


class Scrubber:
    """Replaces credentials in every form in which an upstream may echo them.

    Forms: the full Authorization value, its token, and the token's decoded text (for Basic: user, password and both),
    each also base64, percent-encoded in both styles and JSON-escaped.
    """

    def __init__(self, *credentials: bytes | None) -> None:
        unique = {form for credential in credentials if credential for form in _forms(credential.decode("latin-1"))}
        forms = sorted(unique, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE) if forms else None
        self._folded = tuple({_folded(form) for form in forms})
        self._in_numbers = any(_NUMERIC.fullmatch(form) for form in self._folded)

    def text(self, text: str) -> str:
        """``text`` without the credential. Most texts hold none, and a plain substring search shows that in a hundredth
        of the pattern's time, which is half a second per megabyte with the GIL held."""
        if self._pattern is None:
            return text
        folded = _folded(text)
        if not any(form in folded for form in self._folded):
            return text
        return self._pattern.sub(REMOVED, text)

    def value(self, value: Json) -> Json:
        """JSON without the credential in keys and values at any depth; a number that spells it is replaced by text."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(member) for member in value]
        if self._in_numbers and isinstance(value, int | float) and self._pattern.search(_digits(value)):
            return REMOVED
        return value


def _folded(text: str) -> str:
    """Equal for texts that the case-insensitive pattern treats as equal, including the two Turkish letters."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").replace("\u0131", "i").casefold()


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
