"""A JSON Schema that nobody has reviewed, such as a server's of its own answers, checked within a number of steps.

A few definitions that refer to each other twice, or an array of a megabyte, would hold the loop for minutes. What costs
more than ``STEPS`` is not checked at all, which is said: it is no proof of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry

from kblockd.domain.contract.arguments import FORMATS, MAX_UNIQUE_ITEMS, Validator

STEPS: Final = 20_000
_MEMBERS_A_STEP: Final = 16
_CHARACTERS_A_STEP: Final = 4096
_NEVER: Final = frozenset({"unevaluatedProperties", "unevaluatedItems", "$dynamicRef"})
_LEFT: Final[ContextVar[list[int]]] = ContextVar("kblockd.contract.promise")


class TooCostly(Exception):
    """The schema asks for more work than anybody would do for it."""


def keeps(schema: Mapping[str, Any], value: Any, steps: int = STEPS) -> bool:
    """Whether the value is what the schema promises; nothing is fetched for a ``$ref``.

    Raises ``TooCostly``, and whatever the library raises for a schema that is none.
    """
    token = _LEFT.set([steps])
    try:
        validator = _Validator(schema, format_checker=FormatChecker(FORMATS), registry=Registry())
        return next(validator.iter_errors(value), None) is None
    finally:
        _LEFT.reset(token)


def _spending(keyword: str, check: Callable[..., Iterator[ValidationError] | None]) -> Callable[..., Any]:
    def spend(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        left = _LEFT.get()
        left[0] -= 1 + _size(wanted) + _size(instance)
        unique = keyword == "uniqueItems" and isinstance(instance, list) and len(instance) > MAX_UNIQUE_ITEMS
        if left[0] < 0 or keyword in _NEVER or unique:
            raise TooCostly(keyword)
        yield from check(validator, wanted, instance, schema) or ()

    return spend


def _size(value: Any) -> int:
    """Steps for what a keyword goes through itself, a list of names or a text under a pattern."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_A_STEP
    return len(value) // _MEMBERS_A_STEP if isinstance(value, list | dict) else 0


_Validator: Final[Any] = extend(  # type: ignore[no-untyped-call]  # by jsonschema
    Validator, {keyword: _spending(keyword, check) for keyword, check in Validator.VALIDATORS.items()}
)
