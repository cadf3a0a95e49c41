"""Canonical JSON: a strict parser in front of RFC 8785 (JCS).

What is refused, and why, is the table of traps in evidence.md: duplicate keys (also by escape), NaN and Infinity,
numbers beyond a double, integers beyond 2^53-1, floats whose literal is not the shortest form of the double, lone
surrogates, a byte-order mark, more than ``MAX_DEPTH`` levels, more than ``MAX_BYTES`` bytes. What is executed is
always the canonical form parsed again (``reparse``), never the bytes that came.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any, Final, NoReturn

import orjson
import rfc8785

Json = Any

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_INTEGER: Final = (1 << 53) - 1
MAX_LITERAL: Final = 400
"""Characters of a number: 5e-324 written out has 326; beyond, Python's integer parser has limits of its own."""

_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
# Possessive, and an unterminated string swallows the rest: without both, a megabyte of \" costs hours.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.S)
_NOT_WHOLE: Final = re.compile("[.eE]")
_POINTER_SHOWN: Final = 200
_KEYS_REMEMBERED: Final = 4096
_KEY_REMEMBERED: Final = 64
_PLAIN_KEYS: Final[set[str]] = set()


class NotCanonical(ValueError):
    """Why a text has no canonical form; ``at`` is an RFC 6901 pointer or empty."""

    def __init__(self, message: str, at: str = "") -> None:
        shown = at if len(at) <= _POINTER_SHOWN else f"{at[:_POINTER_SHOWN]}…"
        super().__init__(f"{shown}: {message}" if at else message)
        self.at = at


def parse(text: bytes, *, max_bytes: int = MAX_BYTES, top: type = dict) -> Json:
    """Strict JSON; raises ``NotCanonical``. ``top`` is the type that the top level must have (``object``: any)."""
    if len(text) > max_bytes:
        raise NotCanonical(f"{len(text)} bytes, at most {max_bytes} are taken")
    if text.startswith(b"\xef\xbb\xbf"):
        raise NotCanonical("starts with a byte-order mark")
    _check_depth(text)
    try:
        value = _STRICT.decode(text.decode())
    except NotCanonical:
        raise
    except UnicodeDecodeError as error:
        raise NotCanonical(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise NotCanonical(f"not JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, top):
        raise NotCanonical("the top level must be an object")
    check(value)
    return value


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
    """JCS bytes, at any depth that the interpreter can walk; raises ``NotCanonical`` for what has none."""
    try:
        if _simple(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return rfc8785.dumps(value)
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


def check(value: Json, at: str = "", depth: int = 1) -> None:
    """Refuses values that a parser let through but that have no canonical form; raises ``NotCanonical``."""
    if isinstance(value, str):
        _check_text(value, at)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotCanonical("an integer beyond 2^53-1; send it as a string", at)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotCanonical("not a finite number", at)
    elif isinstance(value, dict):
        _check_depth_of(depth, at)
        for key, member in value.items():
            if not isinstance(key, str):
                raise NotCanonical("a key that is not a string", at)
            _check_text(key, at)
            check(member, f"{at}/{_escaped(key)}", depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth_of(depth, at)
        for position, member in enumerate(value):
            check(member, f"{at}/{position}", depth + 1)
    else:
        raise NotCanonical(f"a {type(value).__name__} is not JSON", at)


def unnormalized(value: Json, at: str = "") -> list[str]:
    """RFC 6901 pointers of the texts and keys that are not NFC, for approvers to see; nothing is changed."""
    if isinstance(value, str):
        return [] if unicodedata.is_normalized("NFC", value) else [at]
    if isinstance(value, dict):
        found = []
        for key, member in value.items():
            below = f"{at}/{_escaped(key)}"
            found += [] if unicodedata.is_normalized("NFC", key) else [below]
            found += unnormalized(member, below)
        return found
    if isinstance(value, list | tuple):
        return [p for position, member in enumerate(value) for p in unnormalized(member, f"{at}/{position}")]
    return []


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _slowly(value: Json) -> bytes:
    """What orjson refuses by a limit of its own (254 levels) is left to the package that has none."""
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise NotCanonical("nested too deep") from None
    except ValueError as error:
        raise NotCanonical(str(error)) from None


def _simple(value: Json) -> bool:
    """Whether orjson's sorted output is already RFC 8785: no floats, no characters beyond the BMP in keys.

    RFC 8785 sorts by UTF-16 code units, orjson by UTF-8 bytes; they differ only where astral characters meet
    U+E000 to U+FFFF. Numbers in ECMAScript form differ only for floats.
    """
    waiting = [value]
    take, add, known = waiting.pop, waiting.extend, _PLAIN_KEYS.issuperset
    while waiting:
        item = take()
        kind = type(item)
        if kind is str:
            if not item.isascii() and not _encodable(item):
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
        elif item is not None and kind is not bool and not (isinstance(item, str) and _encodable(item)):
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
    return not _ASTRAL.search(key) and _encodable(key)


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_text(text: str, at: str) -> None:
    if not _encodable(text):
        raise NotCanonical("a lone surrogate", at)


def _check_depth_of(depth: int, at: str) -> None:
    if depth > MAX_DEPTH:
        raise NotCanonical(f"nested deeper than {MAX_DEPTH} levels", at)


def _check_depth(text: bytes) -> None:
    """A first look that costs no recursion: brackets outside strings, so a bomb never reaches the parser."""
    depth = 0
    for token in _TOKENS.finditer(text):
        byte = token.group()
        if byte in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise NotCanonical(f"nested deeper than {MAX_DEPTH} levels")
        elif byte in (b"]", b"}"):
            depth -= 1


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotCanonical(f"the key {key[:64]!r} stands twice in one object")
            seen.add(key)
    return found


def _integer(literal: str) -> int:
    if len(literal) > 17:
        raise NotCanonical("an integer beyond 2^53-1; send it as a string")
    return int(literal)  # -0 becomes 0


def _written_integer(literal: str) -> int | float:
    if len(literal) > MAX_LITERAL:
        raise ValueError(literal[:32])
    value = int(literal)
    return value if -MAX_INTEGER <= value <= MAX_INTEGER else float(literal)


def _float(literal: str) -> float | int:
    if len(literal) > MAX_LITERAL:
        raise NotCanonical(f"a number of {len(literal)} characters, at most {MAX_LITERAL} are taken")
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise NotCanonical(f"{literal[:32]} is beyond a double")
    if _decimal(literal) != _decimal(repr(value)):
        raise NotCanonical(f"{literal[:32]} is not exactly a double's shortest form; send it as a string")
    if value.is_integer():
        if abs(value) > MAX_INTEGER:
            # 1e20 is written as 100000000000000000000: exact as a double, kept as one.
            return value
        return int(value)
    return value


def number(literal: str) -> int | float:
    """The value of one number as JSON writes it; raises ``NotCanonical`` for what no double holds exactly."""
    value = _integer(literal) if not _NOT_WHOLE.search(literal) else _float(literal)
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise NotCanonical("an integer beyond 2^53-1; send it as a string")
    return value


def _decimal(literal: str) -> tuple[str, int]:
    """(significant digits, exponent) of a decimal literal, so that 1.50 equals 1.5e0."""
    mantissa, _, exponent = literal.lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) - len(fraction)
    stripped = digits.rstrip("0")
    if not stripped:
        return ("0", 0)
    return (sign + stripped, power + len(digits) - len(stripped))


def _constant(literal: str) -> NoReturn:
    raise NotCanonical(f"{literal} is not JSON")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
_WRITTEN: Final = json.JSONDecoder(parse_int=_written_integer)
