"""An upstream's answer as JSON: is it whole, and is there anything in it that cannot be kept?

Two questions that are easily confused. A text that is not whole JSON says nothing (half a body, a page). A whole text
may still hold something without a canonical form (``AnswerFault``); then it cannot be recorded or shown to a policy as
it came, and showing null in its place would be a lie: whoever reads it must treat the read as failed (UPS-10 to UPS-13,
UPS-18). ``Unreadable`` names the first such place.

Every step takes time and memory linear in the text, and a place is built only once there is a fault to name.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from kblockd.domain import canonical, pointer

Json = Any
Token = str | int
Numbers = Literal["refuse", "text"]
"""What becomes of a number that no double holds exactly: the answer is unreadable, or its literal is kept as text."""

MAX_NESTING: Final = 256
"""Levels that are looked at. Beyond ``canonical.MAX_DEPTH`` nothing can be kept, beyond this it is not read at all."""

_BOM: Final = "\ufeff"
_MAX_PLACE: Final = 200
_SHOWN: Final = re.compile(r"[\x21-\x7e]{1,64}")
# Possessive, and an unterminated string swallows the rest: both keep the search linear.
_BRACKETS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.S)
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.S)
_STRAY_BOM: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\ufeff', re.S)


class AnswerFault(enum.StrEnum):
    """Why something in a whole answer cannot be kept."""

    INTEGER = "an integer beyond 2^53-1"
    DECIMAL = "a number that no double holds exactly"
    CONSTANT = "NaN or an infinity, which is not JSON"
    TWICE = "the same key twice in one object"
    SURROGATE = "a lone surrogate"
    DEPTH = f"nested deeper than {canonical.MAX_DEPTH} levels"
    BOM = "a byte-order mark inside the text"
    HALF = "the beginning of a JSON object, but not a whole one"
    SIZE = "more bytes than are kept of one answer"
    VALUES = f"more than {canonical.MAX_VALUES} values"
    NOT_JSON = "a value that is not JSON"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The first thing in an answer that cannot be kept.

    ``place`` is an RFC 6901 pointer into the answer, empty for the whole of it. Keys are the upstream's text: one that
    is long, or not printable ASCII without blanks, is shown as ``…``.
    """

    fault: AnswerFault
    place: str = ""

    def __str__(self) -> str:
        return f"unreadable at {self.place}: {self.fault}" if self.place else f"unreadable: {self.fault}"


class NotJson(ValueError):
    """Not one whole JSON text, so it says nothing. ``unreadable`` where the reason is a fault with a place."""

    def __init__(self, message: str, unreadable: Unreadable | None = None) -> None:
        super().__init__(message)
        self.unreadable = unreadable


@dataclass(frozen=True, slots=True)
class _Odd:
    """Stands in a decoded text for a number that cannot be kept. Nothing else takes it for a value."""

    fault: AnswerFault


class Twice(dict[str, Json]):
    """A decoded object in which ``key`` came twice; it holds the last value, which is a guess."""

    key: str = ""


def decode(text: bytes, numbers: Numbers = "refuse") -> Json:
    """The value of one whole JSON text, faults and all: ask ``first_fault`` before any part of it is used.

    A leading byte-order mark is skipped. Raises ``NotJson``.
    """
    try:
        characters = text.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    _refuse_bottomless(characters)
    try:
        return _DECODERS[numbers].decode(characters)
    except json.JSONDecodeError as error:
        found = _stray_bom(characters)
        raise NotJson(f"not JSON: {error.msg} at character {error.pos}", found) from None


def first_fault(value: Json) -> Unreadable | None:
    """In document order; None for a value that has a canonical form. Also for values that did not come from here.

    Of more values than a document may hold nothing is looked at: each later step would go through all of them (UPS-17).
    """
    try:
        canonical.count(value)
    except canonical.NotCanonical:
        return Unreadable(AnswerFault.VALUES)
    if _plain(value):
        return None
    if fault := _fault_of(value, 1):
        return Unreadable(fault, place(_key_of(value)))
    path: list[Token] = []
    levels = [_members(value)]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            del path[-1:]
            continue
        token, member = entry
        fault = _fault_of(token, 1) or _fault_of(member, len(levels) + 1)
        if fault:
            return Unreadable(fault, place([*path, token, *_key_of(member)]))
        if isinstance(member, dict | list | tuple):
            path.append(token)
            levels.append(_members(member))
    return None


def place(tokens: list[Token]) -> str:
    """The pointer as it may be shown to anybody, at most 200 characters."""
    shown = pointer.build([t if type(t) is int or _SHOWN.fullmatch(str(t)) else "…" for t in tokens])
    return shown if len(shown) <= _MAX_PLACE else f"{shown[:_MAX_PLACE]}…"


def _members(value: Json) -> Iterator[tuple[Token, Json]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list | tuple) else iter(())


def _plain(value: Json) -> bool:
    """Whether there is certainly no fault: level by level, without a place, in a quarter of the time."""
    level = [value]
    for _ in range(canonical.MAX_DEPTH):
        below: list[Json] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii() and not _encodable(item):
                    return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str or not (key.isascii() or _encodable(key)):
                        return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif kind is int:
                if not -canonical.MAX_INTEGER <= item <= canonical.MAX_INTEGER:
                    return False
            elif kind is float:
                if item - item != 0:  # NaN and the infinities
                    return False
            elif item is not None and kind is not bool:
                return False
        if not below:
            return True
        level = below
    return False


def _fault_of(value: Json, depth: int) -> AnswerFault | None:
    if isinstance(value, str):
        return None if value.isascii() or _encodable(value) else AnswerFault.SURROGATE
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -canonical.MAX_INTEGER <= value <= canonical.MAX_INTEGER else AnswerFault.INTEGER
    if isinstance(value, dict | list | tuple):
        if depth > canonical.MAX_DEPTH:
            return AnswerFault.DEPTH
        if isinstance(value, Twice):
            return AnswerFault.TWICE
        return (
            None if not isinstance(value, dict) or all(isinstance(key, str) for key in value) else AnswerFault.NOT_JSON
        )
    if isinstance(value, float):
        return AnswerFault.CONSTANT if value != value or value in (float("inf"), float("-inf")) else None
    return value.fault if isinstance(value, _Odd) else AnswerFault.NOT_JSON


def _key_of(value: Json) -> list[Token]:
    return [value.key] if isinstance(value, Twice) else []


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_bottomless(text: str) -> None:
    """Before the decoder, which takes a stack frame for each level."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return
    depth = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
            if depth > MAX_NESTING:
                found = Unreadable(AnswerFault.DEPTH, _place_at(text, token.start()))
                raise NotJson(f"nested deeper than {MAX_NESTING} levels, so it was not read to its end", found)
        elif token[0] in ("]", "}"):
            depth -= 1


def _stray_bom(text: str) -> Unreadable | None:
    for token in _STRAY_BOM.finditer(text):
        if token[0] == _BOM:
            return Unreadable(AnswerFault.BOM, _place_at(text, token.start()))
    return None


def _place_at(text: str, end: int) -> str:
    """Where in the document the character at ``end`` stands, as far as brackets, commas and keys before it tell."""
    path: list[Token | None] = []  # of each open container the member that was come to: an index, a key, or None yet
    for token in _STRUCTURE.finditer(text, 0, end):
        match token[0]:
            case "[":
                path.append(0)
            case "{":
                path.append(None)
            case "]" | "}":
                del path[-1:]
            case ",":
                path[-1:] = [last + 1 if isinstance(last, int) else None for last in path[-1:]]
            case key:
                path[-1:] = [_string(key) if last is None else last for last in path[-1:]]
    return place([token for token in path if token is not None])


def _string(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError:
        return ""


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = Twice(found)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            twice.key = key
            break
        seen.add(key)
    return twice


def _number(literal: str) -> Json:
    try:
        return canonical.number(literal)
    except canonical.NotCanonical:
        return _Odd(AnswerFault.DECIMAL if set(literal) & set(".eE") else AnswerFault.INTEGER)


def _number_or_text(literal: str) -> Json:
    try:
        return canonical.number(literal)
    except canonical.NotCanonical:
        return literal


def _constant(_: str) -> _Odd:
    return _Odd(AnswerFault.CONSTANT)


def _decoder(number: Any) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_pairs, parse_int=number, parse_float=number, parse_constant=_constant)


_DECODERS: Final[dict[Numbers, json.JSONDecoder]] = {"refuse": _decoder(_number), "text": _decoder(_number_or_text)}
