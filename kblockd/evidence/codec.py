"""Strict conversion between frozen dataclasses and the members of a statement.

Integers become decimal strings, times RFC 3339 with ``Z``, None an absent member, and names camelCase. Reading refuses
missing members, unknown members and wrong types, and names them by path.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import re
import types
import typing
from typing import Any, TypeVar

from kblockd.domain.clock import parse_rfc3339, rfc3339
from kblockd.evidence.errors import BadStatement

T = TypeVar("T")

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")


def write(value: Any) -> Any:
    """The JSON values of a dataclass; raises TypeError for a type that a statement cannot hold."""
    kind = type(value)
    if kind is str or kind is bool:
        return value
    if kind is tuple:
        return [write(member) for member in value]
    if members := _members(typing.cast(Any, kind)):
        written = {}
        for attribute, name in members:
            member = getattr(value, attribute)
            if member is not None:
                written[name] = write(member)
        return written
    if isinstance(value, int):
        if value < 0:
            raise TypeError("a statement cannot hold a negative integer")
        return str(value)
    if isinstance(value, dt.datetime):
        return rfc3339(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a statement cannot hold a {kind.__name__}")


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
def _members(kind: Any) -> tuple[tuple[str, str], ...]:
    """(attribute, member) of a dataclass; empty for any other type."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple((field.name, camel(field.name)) for field in dataclasses.fields(kind))


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
