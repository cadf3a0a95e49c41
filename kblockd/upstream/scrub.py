"""Takes an injected credential out of whatever an upstream sends back (R478, R601, interfaces.md section 6)."""

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
# A shorter part would hit ordinary words; the whole value is always longer (see credentials.py).
_MIN_CHARACTERS: Final = 6
_NUMERIC: Final = re.compile(r"[0-9.e+-]+")


class Scrubber:
    """Replaces credentials in every form in which an upstream may echo it.

    Forms: the full Authorization value, its token, what the token decodes to (Basic's user, password and both),
    each also base64, percent-encoded in both styles and JSON-escaped.
    """

    def __init__(self, *credentials: bytes | None) -> None:
        found = {form for credential in credentials if credential for form in _forms(credential.decode("latin-1"))}
        forms = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE) if forms else None
        self._folded = tuple({_folded(form) for form in forms})
        self._in_numbers = any(_NUMERIC.fullmatch(form) for form in self._folded)

    def text(self, text: str) -> str:
        """``text`` without the credential. Most hold none, which a search for fixed texts tells in a hundredth of the
        time that the pattern takes, half a second for a megabyte in which no other thread runs."""
        if self._pattern is None:
            return text
        folded = _folded(text)
        if not any(form in folded for form in self._folded):
            return text
        return self._pattern.sub(REMOVED, text)

    def value(self, value: Json) -> Json:
        """The same for keys and values of JSON, to any depth; numbers that spell the credential become text."""
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
    """Equal for what the pattern, which ignores case, takes for equal: the two Turkish letters among them."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").replace("\u0131", "i").casefold()


def _digits(number: int | float) -> str:
    try:
        return str(number)
    except ValueError:  # beyond the interpreter's limit of digits; refused later as not storable
        return ""


def _forms(value: str) -> set[str]:
    found: set[str] = set()
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
        found.update((part, *encoded))
    return found


def _parts(value: str) -> Iterator[str]:
    """The value, its words, and what each word decodes to, with a password apart."""
    yield value
    words = value.split(" ")
    for word in words[1:] if len(words) > 1 else words:
        yield word
        for decoded in _decoded(word):
            yield decoded
            if ":" in decoded:
                yield decoded.partition(":")[2]


def _decoded(word: str) -> Iterator[str]:
    """Readable text that ``word``, or a dotted part of it (a JWT), is the base64 of."""
    for piece in {word, *word.split(".")}:
        padded = piece.rstrip("=") + "=" * (-len(piece.rstrip("=")) % 4)
        try:
            text = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True).decode()
        except (binascii.Error, ValueError):
            continue
        if text.isprintable():
            yield text
