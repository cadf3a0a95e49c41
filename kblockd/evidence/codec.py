"""Strict conversion between frozen dataclasses and the members of a statement.

Integers become decimal strings, times RFC 3339 with ``Z``, None an absent member, and names camelCase. Reading refuses
missing members, unknown members and wrong types, and names them by path.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from kblockd.domain.clock import parse_rfc3339, rfc3339
from kblockd.evidence.errors import BadStatement

T = TypeVar("T")
Write = Callable[[Any], Any]

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")


def write(value: Any) -> dict[str, Any]:
    """The JSON values of a dataclass; raises TypeError for a type that a statement cannot hold.

    How a class is written is worked out once, from the types of its fields.
    """
    written: dict[str, Any] = _object_writer(typing.cast(Any, type(value)))(value)
    return written


def read(kind: type[T], document: Any, at: str = "") -> T:
    """The inverse of ``write``; raises ``BadStatement``."""
    if not isinstance(document, dict):
        raise BadStatement(f"{at or '/'}: must be an object")
    fields = _fields(typing.cast(Any, kind))
    unknown = sorted(set(document) - {name for name, _, _ in fields.values()})
    if unknown:
        raise BadStatement(f"{at}/{unknown[0]}: unknown")
    values: dict[str, Any] = {}
    for attribute, (name, of, optional) in fields.items():
        if name in document:
            values[attribute] = _member(of, document[name], f"{at}/{name}")
        elif optional:
            values[attribute] = None
        else:
            raise BadStatement(f"{at}/{name}: missing")
    try:
        return kind(**values)
    except ValueError as error:
        raise BadStatement(f"{at or '/'}: {error}") from None


def camel(name: str) -> str:
    """``not_before`` to ``notBefore``."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


@functools.cache
def _object_writer(kind: Any) -> Write:
    fields = _fields(kind)
    names = [name for name, _, _ in fields.values()]
    absent = [name for name, _, optional in fields.values() if optional]
    others = [(name, writer) for name, of, _ in fields.values() if (writer := _writer(of)) is not None]
    values = operator.attrgetter(*fields, "__class__")  # the last is no member: of a single name it gives no tuple

    def write_object(value: Any) -> dict[str, Any]:
        written = dict(zip(names, values(value), strict=False))
        for name in absent:
            if written[name] is None:
                del written[name]
        for name, write_member in others:
            if name in written:
                written[name] = write_member(written[name])
        return written

    return write_object


def _writer(of: Any) -> Write | None:
    """None for what is written as it is: text (an enumeration's among it) and truth values."""
    if typing.get_origin(of) is tuple:
        write_item = _writer(typing.get_args(of)[0])
        return list if write_item is None else lambda items: [write_item(item) for item in items]
    if dataclasses.is_dataclass(of):
        return _object_writer(typing.cast(Any, of))
    if of is bool or issubclass(of, str):
        return None
    writers: dict[Any, Write] = {int: _decimal, dt.datetime: rfc3339}
    if of not in writers:
        raise TypeError(f"a statement cannot hold a {of.__name__}")
    return writers[of]


def _decimal(number: int) -> str:
    if number < 0:
        raise TypeError("a statement cannot hold a negative integer")
    return str(number)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """attribute → (member, type, optional)."""
    hints = typing.get_type_hints(kind)
    fields: dict[str, tuple[str, Any, bool]] = {}
    for field in dataclasses.fields(kind):
        of, optional = hints[field.name], False
        if isinstance(of, types.UnionType):
            (of,) = (arm for arm in typing.get_args(of) if arm is not type(None))
            optional = True
        fields[field.name] = (camel(field.name), of, optional)
    return fields


def _member(of: Any, value: Any, at: str) -> Any:
    if typing.get_origin(of) is tuple:
        if not isinstance(value, list):
            raise BadStatement(f"{at}: must be a list")
        (item, _) = typing.get_args(of)
        return tuple(_member(item, member, f"{at}/{position}") for position, member in enumerate(value))
    if dataclasses.is_dataclass(of):
        return read(typing.cast(type[Any], of), value, at)
    if of is bool:
        if not isinstance(value, bool):
            raise BadStatement(f"{at}: must be true or false")
        return value
    if not isinstance(value, str):
        raise BadStatement(f"{at}: must be text")
    return _text(of, value, at)


def _text(of: Any, value: str, at: str) -> Any:
    if of is int:
        if not _DECIMAL.fullmatch(value):
            raise BadStatement(f"{at}: must be a decimal integer as text")
        return int(value)
    try:
        if of is dt.datetime:
            return parse_rfc3339(value)
        return of(value) if issubclass(of, enum.Enum) else value
    except ValueError:
        raise BadStatement(f"{at}: {value[:64]!r} is not a valid value") from None
