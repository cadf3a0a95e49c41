"""Values that are made for every call: frozen for the type checker, plain while they run.

A frozen dataclass sets each field through ``object.__setattr__``, ten times as long as an assignment, and a call makes
a hundred values of six hundred fields. Type checking is strict here, so nobody changes one; what stands across a border
that is not type-checked (plugins, configuration, callers) stays a frozen dataclass.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as value_type
else:

    def value_type(*, frozen: bool, slots: bool, eq: bool = True) -> Callable[[type], type]:
        """As ``dataclass``, with the equality and the hash of a frozen one."""
        if not frozen:
            raise TypeError("a value is frozen")
        return dataclasses.dataclass(slots=slots, eq=eq, unsafe_hash=eq)


V = TypeVar("V")


def replaced(value: V, **changes: Any) -> V:
    """As ``dataclasses.replace``, which asks each field of a class what it is, each time. Raises TypeError for a name
    that is no field."""
    kind: Any = type(value)
    names, values = _fields(kind)
    found: V = kind(**{**dict(zip(names, values(value), strict=True)), **changes})
    return found


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Names, and what reads all of them; of a class with more than one field."""
    names = tuple(field.name for field in dataclasses.fields(kind))
    return names, operator.attrgetter(*names)


__all__ = ["replaced", "value_type"]
