"""The work that one check against a JSON Schema may take, counted in steps of about five microseconds.

A few definitions that refer to each other twice, a list of a thousand names for each of ten thousand items, or an array
of a megabyte would hold the loop for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from jsonschema.exceptions import ValidationError

STEPS: Final = 20_000
_MEMBERS_A_STEP: Final = 16
_CHARACTERS_A_STEP: Final = 4096
_WORDS_A_STEP: Final = 256
_COMPARING: Final = frozenset({"enum", "const"})
_NEVER: Final = frozenset({"unevaluatedProperties", "unevaluatedItems", "$dynamicRef"})
_LEFT: Final[ContextVar[tuple[list[int], Callable[[], bool]]]] = ContextVar("kblockd.contract.steps")

Check = Callable[..., Iterator[ValidationError] | None]
"""A keyword of ``jsonschema``."""


class TooCostly(Exception):
    """More steps than there may be."""


@contextmanager
def within(steps: int, late: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """What ``counted`` keywords do in here raises ``TooCostly`` once it takes more, or once it is ``late``."""
    token = _LEFT.set(([steps], late))
    try:
        yield
    finally:
        _LEFT.reset(token)


def counted(checks: Mapping[str, Check]) -> dict[str, Check]:
    """The same keywords, for use ``within`` a number of steps."""
    return {keyword: _counted(keyword, check) for keyword, check in checks.items()}


def spend(steps: int) -> None:
    """For what one keyword goes through itself; raises ``TooCostly``."""
    left, late = _LEFT.get()
    left[0] -= steps
    if left[0] < 0 or late():
        raise TooCostly


def _counted(keyword: str, check: Check) -> Check:
    never, comparing = keyword in _NEVER, keyword in _COMPARING

    def count(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        if never:
            raise TooCostly
        spend(1 + size(wanted) + (_deep_size(instance) if comparing else size(instance)))
        errors = check(validator, wanted, instance, schema)
        return None if errors is None else _worded(errors)

    return count


def _worded(errors: Iterator[ValidationError]) -> Iterator[ValidationError]:
    """The library writes the whole value into the words of each fault; counted where they are written, not on the way
    up."""
    for error in errors:
        if not isinstance(error.validator, str):
            spend(len(error.message) // _WORDS_A_STEP)
        yield error


def size(value: Any) -> int:
    """Steps for what is gone through as a whole: a list of names, a text under a pattern, the members of a schema."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_A_STEP
    return len(value) // _MEMBERS_A_STEP if isinstance(value, list | dict) else 0


def _deep_size(value: Any) -> int:
    """Steps for what is compared as a whole, to its innermost value."""
    members, characters, waiting = 0, 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, list | dict):
            members += len(item)
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return members // _MEMBERS_A_STEP + characters // _CHARACTERS_A_STEP
