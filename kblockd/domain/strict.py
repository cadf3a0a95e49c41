"""The strict JSON parser in front of the canonical form.

What is refused, and why, is the table in kblockd/domain/digests.md: duplicate keys (also by escape), NaN and Infinity,
numbers beyond a double, integers beyond 2^53-1, floats whose literal is not the shortest form of the double, lone
surrogates, a byte-order mark, more than ``MAX_DEPTH`` levels, ``MAX_VALUES`` values or ``MAX_BYTES`` bytes. Whatever is
refused or taken, time and memory are linear in the bytes.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from kblockd.domain import pointer

Json = Any

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 1 << 16
"""Values of one document, containers among them. A megabyte of ordinary JSON holds some twenty to fifty thousand; a
megabyte of ``1,1,1`` half a million, and each step of an action goes through all of them."""
MAX_INTEGER: Final = (1 << 53) - 1
MAX_LITERAL: Final = 400
"""Characters of a number: 5e-324 written out has 326; beyond, Python's integer parser has limits of its own."""

_NOT_WHOLE: Final = re.compile("[.eE]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_POINTER_SHOWN: Final = 200


class NotCanonical(ValueError):
    """Why a text has no canonical form; ``at`` is an RFC 6901 pointer or empty."""

    def __init__(self, message: str, at: str = "") -> None:
        shown = at if len(at) <= _POINTER_SHOWN else f"{at[:_POINTER_SHOWN]}…"
        super().__init__(f"{shown}: {message}" if at else message)
        self.at = at


def parse(text: bytes, *, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES, top: type = dict) -> Json:
    """Strict JSON; raises ``NotCanonical``. ``top`` is the type that the top level must have (``object``: any).

    Time and memory are linear in ``text``, and bytes, values and levels are counted before anything is parsed.
    """
    if len(text) > max_bytes:
        raise NotCanonical(f"{len(text)} bytes, at most {max_bytes} are taken")
    if isinstance(value := ordinary(text, max_bytes, max_values), top) and value is not None:
        return value
    if text.startswith(b"\xef\xbb\xbf"):
        raise NotCanonical("starts with a byte-order mark")
    _check_structure(text, max_values)
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
    check(value, max_values=max_values)
    return value


def ordinary(text: bytes, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES) -> Json:
    """The value of a text that cannot have a fault beyond those that raise ``NotCanonical``, found without a walk; None
    for any other text, right or wrong.

    With so few brackets and commas it is neither too deep nor too many; without an escape of a character it holds no
    surrogate; a number of 15 digits is within 2^53.
    """
    brackets = text.count(b"[") + text.count(b"{")
    if len(text) > max_bytes or brackets > MAX_DEPTH or brackets + text.count(b",") >= max_values or b"\\u" in text:
        return None
    try:
        return _ORDINARY.decode(text.decode())
    except NotCanonical:
        raise
    except ValueError:  # not JSON or not UTF-8, or one of the numbers that are looked at more closely
        return None


def check(value: Json, *, max_values: int = MAX_VALUES) -> None:
    """Refuses values that a parser let through but that have no canonical form; raises ``NotCanonical``.

    A place is put together only once there is a fault to name: a long key above many members would otherwise be
    written once for each of them (AGT-01, UPS-17).
    """
    if _is_sound(value, max_values):
        return
    if fault := _Search(max_values).fault(value, 1):
        raise NotCanonical(fault.message, pointer.build([_cut(token) for token in reversed(fault.path)]))


def count(value: Json, *, max_values: int = MAX_VALUES) -> int:
    """How many values there are, containers among them, at any depth; raises ``NotCanonical`` for too many."""
    waiting, seen = [value], 1
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list | tuple):
            seen += len(item)
            if seen > max_values:
                raise NotCanonical(_too_many(max_values))
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return seen


def encodable(text: str) -> bool:
    """Whether it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_sound(value: Json, max_values: int) -> bool:
    """Level by level, without a word about where; False for what ``_Search`` must look at one by one."""
    level, seen = [value], 0
    for depth in range(MAX_DEPTH + 1):
        seen += len(level)
        below: list[Json] = []
        for item in level:
            kind = type(item)
            if kind is dict or kind is list or kind is tuple:
                if depth == MAX_DEPTH or (kind is dict and not all(map(_is_text, item))):
                    return False
                below.extend(item.values() if kind is dict else item)
                if seen + len(below) > max_values:  # looked at here: one list may stand in many places
                    raise NotCanonical(_too_many(max_values))
            elif not _is_scalar(item, kind):
                return False
        if not below:
            return True
        level = below
    return False


def _is_scalar(item: Json, kind: type) -> bool:
    if kind is str:
        return encodable(item)
    if kind is int:
        return bool(-MAX_INTEGER <= item <= MAX_INTEGER)
    return item is None or kind is bool or (isinstance(item, float) and math.isfinite(item))


def _is_text(key: Json) -> bool:
    return type(key) is str and encodable(key)


@dataclass(slots=True)
class _Fault:
    """``path`` holds the reference tokens from the inside out: each level adds its own on the way back."""

    message: str
    path: list[str | int] = field(default_factory=list)


@dataclass(slots=True)
class _Search:
    """For the first fault of a document, in its order, among at most ``left`` values."""

    left: int

    def fault(self, value: Json, depth: int) -> _Fault | None:
        """None for what has a canonical form, subclasses of the types of JSON among them."""
        self.left -= 1
        if self.left < 0:
            raise NotCanonical("holds too many values")
        if isinstance(value, dict | list | tuple):
            if depth > MAX_DEPTH:
                return _Fault(f"nested deeper than {MAX_DEPTH} levels")
            return self._inside(value, depth)
        return _scalar_fault(value)

    def _inside(self, value: Json, depth: int) -> _Fault | None:
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for token, member in members:
            if isinstance(value, dict) and not (isinstance(token, str) and encodable(token)):
                return _Fault("a lone surrogate" if isinstance(token, str) else "a key that is not a string")
            if fault := self.fault(member, depth + 1):
                fault.path.append(token)
                return fault
        return None


def _scalar_fault(value: Json) -> _Fault | None:
    if isinstance(value, str):
        return None if encodable(value) else _Fault("a lone surrogate")
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        within = -MAX_INTEGER <= value <= MAX_INTEGER
        return None if within else _Fault("an integer beyond 2^53-1; send it as a string")
    if isinstance(value, float):
        return None if math.isfinite(value) else _Fault("not a finite number")
    return _Fault(f"a {type(value).__name__} is not JSON")


def _cut(token: str | int) -> str | int:
    return token if isinstance(token, int) or len(token) <= _POINTER_SHOWN else f"{token[:_POINTER_SHOWN]}…"


def _too_many(max_values: int) -> str:
    return f"more than {max_values} values"


def _check_structure(text: bytes, max_values: int) -> None:
    """A first look that costs no recursion: neither a nesting bomb nor a flood of tiny values reaches the parser."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH and text.count(b",") < max_values // 2:
        return  # whatever of it stands in strings
    bare = _outside_strings(text)
    brackets = bare.translate(None, _NO_BRACKETS)
    depth = 0
    for byte in brackets[: 2 * max_values]:
        depth += 1 if byte in b"[{" else -1
        if depth > MAX_DEPTH:
            raise NotCanonical(f"nested deeper than {MAX_DEPTH} levels")
    if bare.count(b",") + brackets.count(b"[") + brackets.count(b"{") + 1 > max_values:
        raise NotCanonical(_too_many(max_values))


def _outside_strings(text: bytes) -> bytes:
    """By splitting at the quotes that no backslash escapes; a string without an end swallows the rest."""
    return b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


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


def _short_integer(literal: str) -> int:
    if len(literal) > 15:
        raise ValueError(literal[:32])
    return int(literal)


def _extraordinary(literal: str) -> NoReturn:
    raise ValueError(literal[:32])


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
_ORDINARY: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_short_integer, parse_float=_extraordinary, parse_constant=_extraordinary
)
