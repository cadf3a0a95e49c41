"""Text and JSON builtins as OPA, a Go program, has them: ``lower``, ``upper``, ``indexof``, ``json.marshal`` and more.

The engine's own follow Rust: ``lower`` knows the final sigma, ``upper`` makes SS of ß, and ``json.marshal`` leaves
``<``, ``>`` and ``&`` as they are, so that a comparison behind a refusal could hold in one engine only (APV-09).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from kblockd.policy.builtins.letter_case import LOWER, UPPER, Rows

_GLOB_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "*?[]{}\\"})
_GO_ESCAPES: Final = str.maketrans(
    {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"},
)


def _table(rows: Rows) -> dict[int, int]:
    return {code: code + distance for first, last, step, distance in rows for code in range(first, last + 1, step)}


_TO_LOWER: Final = _table(LOWER)
_TO_UPPER: Final = _table(UPPER)


def lower(value: str) -> str:
    """``lower``: each code point by itself."""
    return text(value).translate(_TO_LOWER)


def upper(value: str) -> str:
    """``upper``: each code point by itself."""
    return text(value).translate(_TO_UPPER)


def indexof(value: str, search: str) -> int:
    """``indexof``: in code points; -1 when it is not there, an error for an empty search."""
    return text(value).find(_search(search))


def indexof_n(value: str, search: str) -> list[int]:
    """``indexof_n``: every place, overlapping ones too."""
    found, at = [], text(value).find(_search(search))
    while at >= 0:
        found.append(at)
        at = value.find(search, at + 1)
    return found


def replace(value: str, old: str, new: str) -> str:
    """``replace``: everywhere. An empty ``old`` is an error here; OPA puts ``new`` between bytes, not characters."""
    return text(value).replace(_search(old), text(new))


def substring(value: str, offset: int, length: int) -> str:
    """``substring``: in code points; a negative length is the rest."""
    start, size = integer(offset), integer(length)
    if start < 0:
        raise ValueError("a negative offset")
    return text(value)[start:] if size < 0 else text(value)[start : start + size]


def quote_meta(pattern: str) -> str:
    """``glob.quote_meta``: a backslash before everything that has a meaning in a glob."""
    return text(pattern).translate(_GLOB_SPECIAL)


def base64url_decode(value: str) -> str:
    """``base64url.decode``, with padding or without; bytes that are no UTF-8 are an error here, broken text in OPA."""
    encoded = text(value)
    if any(character in encoded for character in "+/\r\n"):
        raise ValueError("not base64url")
    padded = encoded.rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4)
    if "=" in encoded and encoded != padded:
        raise ValueError("not base64url")
    try:
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("not base64url of a text in UTF-8") from None


def json_is_valid(value: Any) -> bool:
    """``json.is_valid``: numbers of any size count, ``NaN`` does not."""
    if not isinstance(value, str):
        return False
    try:
        json.loads(value, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except ValueError:
        return False
    return True


def json_marshal(value: Any) -> str:
    """``json.marshal`` as Go writes it. Raises where the text of a number, or the order of a set, may be another one
    in OPA: it writes numbers as their source did, and that is not known any more here."""
    return json.dumps(_marshalled(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(
        _GO_ESCAPES
    )


def _marshalled(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("json.marshal takes no keys but texts")
        return {key: _marshalled(value[key]) for key in sorted(value, key=_utf8)}
    if isinstance(value, list):
        return [_marshalled(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((text(item) for item in value), key=_utf8)
    if isinstance(value, float) and not (1e-4 <= abs(value) < 1e6 and not value.is_integer()):
        raise ValueError("json.marshal of this decimal number may differ from OPA; write it as a text")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("json.marshal of a number beyond 64 bits; write it as a text")
    return value


def text(value: Any) -> str:
    """The value itself; raises ``TypeError`` for everything but a string."""
    if not isinstance(value, str):
        raise TypeError(f"must be a string, is a {type(value).__name__}")
    return value


def integer(value: Any) -> int:
    """The value itself; raises ``TypeError`` for everything but an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"must be an integer, is a {type(value).__name__}")
    return value


def _search(value: Any) -> str:
    if not text(value):
        raise ValueError("an empty search")
    return str(value)


def _utf8(value: str) -> bytes:
    """Go compares texts byte by byte."""
    return value.encode()


def _no_constant(literal: str) -> Any:
    raise ValueError(literal)
