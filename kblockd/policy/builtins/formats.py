"""``sprintf`` with ``%s``, ``%d``, ``%v`` and ``%%`` as OPA has it: exact, or an error.

The engine's own prints floats, missing arguments and wrong verbs differently from Go
(kblockd/policy/README.md#differences-from-opa).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_VERB: Final = re.compile(r"%(.?)", re.DOTALL)


def sprintf(text: str, arguments: list[Any]) -> str:
    """Raises ``ValueError`` for another verb, another number of arguments, or a value that would print otherwise."""
    if not isinstance(arguments, list):
        raise TypeError("sprintf takes an array of arguments")
    rest = iter(arguments)
    formatted = _VERB.sub(lambda found: _verb(found[1], rest), text)
    if next(rest, None) is not None or len(_verbs(text)) != len(arguments):
        raise ValueError("sprintf has more arguments than verbs")
    return formatted


def _verbs(text: str) -> list[str]:
    return [verb for verb in _VERB.findall(text) if verb != "%"]


def _verb(verb: str, rest: Iterator[Any]) -> str:
    if verb == "%":
        return "%"
    try:
        value = next(rest)
    except StopIteration:
        raise ValueError("sprintf has fewer arguments than verbs") from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if verb == "d" and number and isinstance(value, int):
        return str(value)
    if verb == "v" or (verb == "s" and not number):
        return value if isinstance(value, str) else _term(value)
    raise ValueError(f"sprintf cannot print a {type(value).__name__} with %{verb}")


def _term(value: Any) -> str:
    """A value as OPA writes terms."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and 1e-4 <= abs(value) < 1e6:
        return repr(value)
    if isinstance(value, str) and value.isprintable():
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_term, value)) + "]"
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode())
        return "{" + ", ".join(f"{_term(key)}: {_term(value[key])}" for key in keys) + "}"
    raise ValueError(f"sprintf cannot print this {type(value).__name__} as OPA does")
