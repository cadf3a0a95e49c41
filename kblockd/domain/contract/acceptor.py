"""A short way to yes: most arguments are right, and most schemas say it plainly.

``acceptor`` compiles a schema once into nested tests. Where they say yes, the careful check of ``arguments`` would find
nothing, and within its steps; where they say no, or a schema uses more than is known here, that check has the word, and
alone says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from kblockd.domain.canonical import NotCanonical, count
from kblockd.domain.contract.steps import STEPS, size

Accepts = Callable[[Any], bool]
Search = Callable[[str], Any]

LONGEST: Final = 4096
"""Characters of a text; the careful check counts steps for longer ones."""

_NOTES: Final = frozenset({"title", "description", "$comment", "examples", "deprecated", "type"})
_TEXT: Final = frozenset({"minLength", "maxLength", "enum", "const", "pattern"})
_NUMBER: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_ARRAY: Final = frozenset({"minItems", "maxItems", "items"})
_OBJECT: Final = frozenset({"properties", "required", "additionalProperties"})


class _NotPlain(Exception):
    """The schema says more than is known here."""


def acceptor(schema: Mapping[str, Any], search: Callable[[str], Search]) -> Accepts | None:
    """None for a schema that is not plain; ``search`` compiles a pattern."""
    try:
        accepts = _node(schema, search)
    except _NotPlain:
        return None
    return partial(_few, accepts, STEPS // (2 * _steps(schema)))


def _few(accepts: Accepts, values: int, arguments: Any) -> bool:
    """No value takes more steps than the whole schema has."""
    try:
        count(arguments, max_values=values)
    except NotCanonical:
        return False
    return accepts(arguments)


def _steps(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 1
    return 1 + size(schema) + sum(1 + size(wanted) + _below(keyword, wanted) for keyword, wanted in schema.items())


def _below(keyword: str, wanted: Any) -> int:
    if keyword == "properties":
        return sum(map(_steps, wanted.values()))
    return _steps(wanted) if keyword == "items" else 0


def _node(schema: Any, search: Callable[[str], Search]) -> Accepts:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str):
        raise _NotPlain
    known, tests = _KINDS[kind]
    if not schema.keys() <= known | _NOTES:
        raise _NotPlain
    found = list(tests(schema, search))
    if len(found) == 1:
        return found[0]
    return lambda value: all(accepts(value) for accepts in found)


def _boolean(_: Mapping[str, Any], __: object) -> Iterator[Accepts]:
    yield lambda value: type(value) is bool


def _null(_: Mapping[str, Any], __: object) -> Iterator[Accepts]:
    yield lambda value: value is None


def _text(schema: Mapping[str, Any], search: Callable[[str], Search]) -> Iterator[Accepts]:
    least, most = schema.get("minLength", 0), min(schema.get("maxLength", LONGEST), LONGEST)
    yield lambda value: type(value) is str and least <= len(value) <= most
    if "enum" in schema:
        allowed = frozenset(each for each in schema["enum"] if type(each) is str)
        yield allowed.__contains__
    if "const" in schema:
        yield partial(_same_text, schema["const"])
    if "pattern" in schema:
        yield search(schema["pattern"])


def _same_text(wanted: Any, value: str) -> bool:
    return type(wanted) is str and wanted == value


def _integer(schema: Mapping[str, Any], _: object) -> Iterator[Accepts]:
    yield lambda value: type(value) is int
    yield from _bounds(schema)


def _number(schema: Mapping[str, Any], _: object) -> Iterator[Accepts]:
    yield lambda value: type(value) is int or type(value) is float
    yield from _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> Iterator[Accepts]:
    if "minimum" in schema:
        yield lambda value: bool(value >= schema["minimum"])
    if "maximum" in schema:
        yield lambda value: bool(value <= schema["maximum"])
    if "exclusiveMinimum" in schema:
        yield lambda value: bool(value > schema["exclusiveMinimum"])
    if "exclusiveMaximum" in schema:
        yield lambda value: bool(value < schema["exclusiveMaximum"])


def _array(schema: Mapping[str, Any], search: Callable[[str], Search]) -> Iterator[Accepts]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", STEPS)
    yield lambda value: type(value) is list and least <= len(value) <= most
    if "items" in schema:
        item = _node(schema["items"], search)
        yield lambda value: all(map(item, value))


def _object(schema: Mapping[str, Any], search: Callable[[str], Search]) -> Iterator[Accepts]:
    members = {name: _node(member, search) for name, member in schema.get("properties", {}).items()}
    required, others = frozenset(schema.get("required", ())), schema.get("additionalProperties", True)
    if type(others) is not bool:
        raise _NotPlain

    def accepts(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys() or not (others or value.keys() <= members.keys()):
            return False
        return all(members[name](member) for name, member in value.items() if name in members)

    yield accepts


_KINDS: Final[dict[str, tuple[frozenset[str], Callable[..., Iterator[Accepts]]]]] = {
    "object": (_OBJECT, _object),
    "array": (_ARRAY, _array),
    "string": (_TEXT, _text),
    "integer": (_NUMBER, _integer),
    "number": (_NUMBER, _number),
    "boolean": (frozenset(), _boolean),
    "null": (frozenset(), _null),
}
