"""The canonical form: RFC 8785 (JCS), of what the strict parser takes.

What is executed is always the canonical form parsed again (``reparse``), never the bytes that came. Time and memory are
linear in what is written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from typing import Any, Final

import orjson
import rfc8785

from kblockd.domain import normal, pointer
from kblockd.domain.strict import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_LITERAL,
    MAX_VALUES,
    NotCanonical,
    check,
    count,
    encodable,
    number,
    parse,
)

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MAX_VALUES",
    "NotCanonical",
    "canonical",
    "check",
    "count",
    "digest",
    "number",
    "parse",
    "reparse",
    "sha256_hex",
    "unnormalized",
    "without_floats",
    "written",
]

Json = Any

MAX_PLACES: Final = 16

_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_AS_IT_STANDS: Final = frozenset({str, bool, type(None), orjson.Fragment})
_KEYS_REMEMBERED: Final = 4096
_KEY_REMEMBERED: Final = 64
_PLAIN_KEYS: Final[set[str]] = set()


def reparse(text: bytes) -> Json:
    """Values of a canonical form that this module wrote: what is executed. Raises ``NotCanonical`` for anything else.

    Only here does an integer literal beyond 2^53-1 stand for a double: JCS writes 1e20 without an exponent. The
    value is written again and compared, so a stored form that was changed, or never was canonical, is noticed.
    """
    try:
        value = _WRITTEN.decode(text.decode())
    except (ValueError, RecursionError):
        raise NotCanonical("not JSON") from None
    if canonical(value) != text:
        raise NotCanonical("JSON, but not in canonical form")
    return value


def written(text: bytes) -> Json:
    """As ``reparse``, for what this process has just written and still holds: it is not written again to compare."""
    return _WRITTEN.decode(text.decode())


def canonical(value: Json) -> bytes:
    """JCS bytes, at any depth that the interpreter can walk; raises ``NotCanonical`` for what has none.

    A member may be an ``orjson.Fragment`` of this function's own output.
    """
    try:
        if _simple(value, floats=True):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_ordered(value))
    except RecursionError:
        raise NotCanonical("nested too deep") from None
    except orjson.JSONEncodeError:
        return _slowly(value)
    except ValueError as error:  # also what the package raises while it prints an integer of 5,000 digits
        raise NotCanonical(str(error)) from None


def without_floats(value: Json) -> bytes:
    """As ``canonical``; raises ``NotCanonical`` for a float, too."""
    try:
        if _simple(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        pass  # the long way says why
    if _has_float(value):
        raise NotCanonical("a float has no place here")
    return canonical(value)


def sha256_hex(data: bytes) -> str:
    """Lowercase hex, the form of every digest."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Json) -> str:
    """SHA-256 over the canonical form."""
    return sha256_hex(canonical(value))


def unnormalized(value: Json) -> list[str]:
    """RFC 6901 pointers of the texts and keys that are not NFC, for approvers to see; nothing is changed.

    The first ``MAX_PLACES`` of them: all places of a hostile document would be far longer than the document.
    """
    found = (pointer.build(path) for path, text, _ in pointer.texts(value) if not normal.is_normal("NFC", text))
    return list(itertools.islice(found, MAX_PLACES))


def _ordered(value: Json) -> Json:
    """For orjson to write as it stands: keys in the order of RFC 8785, floats in its form, at a tenth of the package's
    time. Raises ``JSONEncodeError`` for what only the package can judge."""
    kind = type(value)
    if kind is dict:
        plain = all(map(_plain_key, value))
        return {key: _ordered(value[key]) for key in (sorted(value) if plain else sorted(value, key=_utf16))}
    if kind is list or kind is tuple:
        return [_ordered(member) for member in value]
    if kind is float:
        return orjson.Fragment(_number(value))
    if kind in _AS_IT_STANDS or (kind is int and -MAX_INTEGER <= value <= MAX_INTEGER):
        return value
    raise orjson.JSONEncodeError


def _utf16(key: Json) -> bytes:
    if type(key) is not str:
        raise orjson.JSONEncodeError
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> bytes:
    """Python and ECMAScript print the same shortest digits, the latter without an exponent from 1e-6 to 1e21. The
    package takes ten microseconds for a number, and there may be ``MAX_VALUES``."""
    if value == 0 or not math.isfinite(value):
        return rfc8785.dumps(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0").encode()
    power = int(exponent)
    if power < -6 or power > 20:
        return f"{mantissa}e{power:+d}".encode()
    digits = mantissa.removeprefix("-").replace(".", "")
    text = digits.ljust(power + 1, "0") if power > 0 else f"0.{digits.rjust(len(digits) - power - 1, '0')}"
    return (text if value > 0 else f"-{text}").encode()


def _prints_alike(value: float) -> bool:
    """Whether orjson writes it as RFC 8785 does: with a fraction and no exponent, or with a negative exponent."""
    size = abs(value)
    return (1e-4 <= size < 1e16 and not value.is_integer()) or 0 < size < 1e-6


def _slowly(value: Json) -> bytes:
    """What orjson refuses, by a limit of its own (254 levels) too, is left to the package that says why."""
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise NotCanonical("nested too deep") from None
    except ValueError as error:
        raise NotCanonical(str(error)) from None


def _simple(value: Json, *, floats: bool = False) -> bool:
    """Whether orjson's sorted output is already RFC 8785: no characters beyond the BMP in keys, and no floats,
    or with ``floats`` only such as both print alike.

    RFC 8785 sorts by UTF-16 code units, orjson by UTF-8 bytes; they differ only where astral characters meet
    U+E000 to U+FFFF. Numbers in ECMAScript form differ only for floats.
    """
    waiting = [value]
    take, add, known = waiting.pop, waiting.extend, _PLAIN_KEYS.issuperset
    while waiting:
        item = take()
        kind = type(item)
        if kind is str:
            if not item.isascii() and not encodable(item):
                return False
        elif kind is dict:
            if not known(item) and not all(map(_plain_key, item)):
                return False
            add(item.values())
        elif kind is list or kind is tuple:
            add(item)
        elif kind is int:
            if not -MAX_INTEGER <= item <= MAX_INTEGER:
                return False
        elif kind is float and floats:
            if not _prints_alike(item):
                return False
        elif item is None or kind is bool or kind is orjson.Fragment:
            continue
        elif isinstance(item, dict):
            if not all(map(_plain_key, item)):
                return False
            add(item.values())
        elif not isinstance(item, str) or not encodable(item):
            return False  # a StrEnum is its text; a float, or what is no JSON, is not simple
    return True


def _has_float(value: Json) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, float):
            return True
    return False


def _plain_key(key: Json) -> bool:
    """Sorts alike in both orders. Names come again and again: what was looked at once is remembered, within bounds."""
    if type(key) is not str:
        return False
    if not key.isascii():
        return _sorts_alike(key)
    if len(_PLAIN_KEYS) < _KEYS_REMEMBERED and len(key) <= _KEY_REMEMBERED:
        _PLAIN_KEYS.add(key)
    return True


def _sorts_alike(key: str) -> bool:
    return not _ASTRAL.search(key) and encodable(key)


def _written_integer(literal: str) -> int | float:
    if len(literal) > MAX_LITERAL:
        raise ValueError(literal[:32])
    value = int(literal)
    return value if -MAX_INTEGER <= value <= MAX_INTEGER else float(literal)


_WRITTEN: Final = json.JSONDecoder(parse_int=_written_integer)
