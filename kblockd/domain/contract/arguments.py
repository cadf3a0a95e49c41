"""``tool.arguments_schema``: JSON Schema draft 2020-12, cut down to what is checked and bounded.

JSON Schema ignores keywords that it does not know and formats that it does not check; here both are refused, because a
misspelt ``requird`` would let everything through. Patterns run on RE2: linear time whatever the arguments are, and
``$`` means the end of the text (Python's ``re`` lets ``"1.00\\n"`` pass ``\\d$``). References stay inside ``$defs`` and
may not recurse, and one check takes at most ``STEPS``; nothing is ever fetched. ``default`` and
``unevaluatedProperties`` are refused: nothing fills in arguments, and the latter would bring ``re`` back.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any, Final

import re2
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry

from kblockd.domain import pointer
from kblockd.domain.contract.acceptor import acceptor
from kblockd.domain.contract.fault import Fault, Path
from kblockd.domain.contract.steps import STEPS, TooCostly, counted, size, spend, within
from kblockd.domain.errors import Violation

FIELD: Final = "envelope.arguments_json"
MAX_VIOLATIONS: Final = 16
MAX_UNIQUE_ITEMS: Final = 1000
FORMATS: Final = ("date", "email", "ipv4", "ipv6", "uuid")

_SEARCHES_A_STEP: Final = 4
_HASHES_A_STEP: Final = 8
_PLAIN: Final = re.compile(r"#(/(\$defs|definitions)/[^/]*)?")
_SUBSCHEMA: Final = frozenset(
    {"additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else"}
)
_SUBSCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SUBSCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_NUMBERS: Final = frozenset({"multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"})
_SIZES: Final = frozenset(
    {"maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains", "maxProperties", "minProperties"}
)
_OTHERS: Final = frozenset(
    {"type", "enum", "const", "pattern", "format", "uniqueItems", "required", "dependentRequired", "$ref", "$schema"}
)
_NOTES: Final = frozenset({"title", "description", "$comment", "examples", "deprecated"})
_KEYWORDS: Final = _SUBSCHEMA | _SUBSCHEMAS | _NAMED_SUBSCHEMAS | _NUMBERS | _SIZES | _OTHERS | _NOTES
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LOCAL: Final = "#/$defs/"


class ArgumentsValidator:
    """A schema in which ``faults`` found none, ready to check arguments."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = Validator(schema, format_checker=FormatChecker(FORMATS), registry=Registry())
        self._accepts = acceptor(schema, lambda pattern: _compiled(pattern).search)

    def violations(self, arguments: Any) -> tuple[Violation, ...]:
        """At most ``MAX_VIOLATIONS``; ``field`` is ``FIELD`` and the RFC 6901 pointer of the value (R048).

        Arguments that take more than ``STEPS`` are refused as a whole, whatever else is wrong with them.
        """
        if self._accepts is not None and self._accepts(arguments):
            return ()
        try:
            with within(STEPS):
                errors = list(itertools.islice(self._validator.iter_errors(arguments), MAX_VIOLATIONS))
        except TooCostly:
            return (Violation(FIELD, f"take more than {STEPS} steps to check; send fewer or shorter lists"),)
        return tuple(Violation(FIELD + pointer.build(tuple(e.absolute_path)), _said(e)) for e in errors)


def faults(schema: Mapping[str, Any], at: Path) -> list[Fault]:
    """Why this schema cannot be used, each with its path below ``at``."""
    errors = _META.iter_errors(schema)
    found = [Fault(at + tuple(e.absolute_path), e.message[:256], "write JSON Schema draft 2020-12") for e in errors]
    if found:
        return found
    if schema.get("type") != "object":
        found.append(Fault(at, "arguments are an object", "set type: object"))
    for path, node in _nodes(schema, at):
        found.extend(_node_faults(path, node, schema))
    return found or _recursion(schema, at) or _doubling(schema, at)


def known_property(schema: Mapping[str, Any], tokens: tuple[str, ...]) -> bool:
    """Whether ``tokens`` can exist in arguments that the schema accepts; False only where that is certain."""
    node: Any = schema
    for token in tokens:
        node = _target(node, schema)
        if not isinstance(node, dict) or "properties" not in node:
            return True
        if token in node["properties"]:
            node = node["properties"][token]
            continue
        return node.get("additionalProperties", True) is not False or "patternProperties" in node
    return True


def _target(node: Any, schema: Mapping[str, Any]) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        node = schema.get("$defs", {}).get(node["$ref"].removeprefix(_LOCAL))
    return node


def _nodes(schema: Any, at: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every subschema that is an object, with its path."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for key, value in schema.items():
        if key in _SUBSCHEMA:
            yield from _nodes(value, (*at, key))
        elif key in _SUBSCHEMAS:
            for position, member in enumerate(value):
                yield from _nodes(member, (*at, key, position))
        elif key in _NAMED_SUBSCHEMAS:
            for name, member in value.items():
                yield from _nodes(member, (*at, key, name))


def _node_faults(at: Path, node: dict[str, Any], root: Mapping[str, Any]) -> Iterator[Fault]:
    for key in node:
        if key not in _KEYWORDS:
            yield Fault((*at, key), "a keyword that kblockd does not check", "remove it or correct its name")
    if node.get("$schema", _DIALECT) != _DIALECT:
        yield Fault((*at, "$schema"), "another dialect than draft 2020-12", f"write {_DIALECT} or remove it")
    if node.get("format", FORMATS[0]) not in FORMATS:
        yield Fault((*at, "format"), "a format that kblockd does not check", f"use {', '.join(FORMATS)}, or pattern")
    if node.get("uniqueItems") and node.get("maxItems", MAX_UNIQUE_ITEMS + 1) > MAX_UNIQUE_ITEMS:
        yield Fault((*at, "uniqueItems"), "not bounded", f"set maxItems, at most {MAX_UNIQUE_ITEMS}")
    yield from _pattern_faults(at, node)
    yield from _reference_faults(at, node, root)


def _pattern_faults(at: Path, node: dict[str, Any]) -> Iterator[Fault]:
    patterns = [((*at, "pattern"), node["pattern"])] if "pattern" in node else []
    patterns += [((*at, "patternProperties", name), name) for name in node.get("patternProperties", {})]
    for path, pattern in patterns:
        try:
            _compiled(pattern)
        except re2.error as error:
            yield Fault(path, f"no RE2 pattern: {_re2_message(error)}", "write it without backtracking features")


def _reference_faults(at: Path, node: dict[str, Any], root: Mapping[str, Any]) -> Iterator[Fault]:
    reference = node.get("$ref")
    if reference is None:
        return
    name = reference.removeprefix(_LOCAL)
    if not reference.startswith(_LOCAL) or "/" in name or "~" in name or "%" in name:
        yield Fault((*at, "$ref"), "only definitions of this schema may be referred to", "write #/$defs/NAME")
    elif name not in root.get("$defs", {}):
        yield Fault((*at, "$ref"), f"$defs has no {name!r}", "define it under $defs or correct the name")


def _used(part: Any) -> Counter[str]:
    """The definitions that a schema refers to itself, each as often as it does."""
    return Counter(node["$ref"].removeprefix(_LOCAL) for _, node in _nodes(part, ()) if "$ref" in node)


def _recursion(schema: Mapping[str, Any], at: Path) -> list[Fault]:
    uses = {name: set(_used(definition)) for name, definition in schema.get("$defs", {}).items()}
    found = []
    for name in uses:
        reached: set[str] = set()
        frontier = set(uses[name])
        while frontier:
            reached |= frontier
            frontier = {n for m in frontier for n in uses[m]} - reached
        if name in reached:
            found.append(Fault((*at, "$defs", name), "refers to itself", "write the levels out; depth is bounded"))
    return found


def _doubling(schema: Mapping[str, Any], at: Path) -> list[Fault]:
    """What no check could come to the end of: each use of a definition is a check of its own, of all that it uses."""
    definitions = schema.get("$defs", {})
    uses = {name: _used(definition) for name, definition in definitions.items()}
    subschemas: dict[str, int] = {}

    def unfolded(part: Any, used: Counter[str]) -> int:
        return sum(1 for _ in _nodes(part, ())) + sum(subschemas[name] * times for name, times in used.items())

    for name in TopologicalSorter(uses).static_order():
        subschemas[name] = unfolded(definitions[name], uses[name])
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    sizes = {(*at, "$defs", name): size for name, size in subschemas.items()} | {at: unfolded(rest, _used(rest))}
    first = next(((path, size) for path, size in sizes.items() if size > STEPS), None)
    if first is None:
        return []
    message = f"unfolds to {first[1]} subschemas, at most {STEPS} are checked"
    return [Fault(first[0], message, "refer to a definition less often")]


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _re2_message(error: re2.error) -> str:
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield ValidationError(f"does not match {pattern}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    spend(len(patterns) * len(instance) // _SEARCHES_A_STEP)
    for pattern, subschema in patterns.items():
        compiled = _compiled(pattern)
        for name in filter(compiled.search, instance):
            yield from validator.descend(instance[name], subschema, path=name, schema_path=pattern)


def _additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The standard keyword, with RE2 in place of ``re`` for the names that ``patternProperties`` covers."""
    if not isinstance(instance, dict):
        return
    compiled = [_compiled(pattern) for pattern in schema.get("patternProperties", {})]
    spend(len(compiled) * len(instance) // _SEARCHES_A_STEP)
    for name in instance:
        if name in schema.get("properties", {}) or any(c.search(name) for c in compiled):
            continue
        if allowed is False:
            error = ValidationError("not an argument of this action")
            error.path.appendleft(name)
            yield error
        elif isinstance(allowed, dict):
            yield from validator.descend(instance[name], allowed, path=name)


def _unique_items(_validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """By what can be hashed; the library compares each item with each other one."""
    if unique and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("holds equal items")


def _hashable(value: Any) -> Hashable:
    """Equal for what JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list | dict):
        spend(1 + len(value) // _HASHES_A_STEP)
    if isinstance(value, list):
        return ("list", *map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((name, _hashable(member)) for name, member in value.items())
    return ("boolean", value) if isinstance(value, bool) else value


def _reference(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The standard keyword. For any other reference the library goes through the schema, each time."""
    if not _PLAIN.fullmatch(reference):
        raise TooCostly
    yield from Draft202012Validator.VALIDATORS["$ref"](validator, reference, instance, schema)


_KEYWORD_CHECKS: Final[dict[str, Callable[..., Iterator[ValidationError]]]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "uniqueItems": _unique_items,
    "$ref": _reference,
}
Validator: Final[Any] = extend(  # type: ignore[no-untyped-call]  # by jsonschema
    Draft202012Validator, counted({**Draft202012Validator.VALIDATORS, **_KEYWORD_CHECKS})
)
"""For use ``within`` a number of steps."""
_evolved: Final = Validator.evolve


def _evolve(validator: Any, **changes: Any) -> Any:
    """For a subschema, always one of ours: the library would take the validator that the subschema's ``$schema`` names,
    which counts nothing and matches with ``re``. Counted is what no keyword counts: members that are none."""
    schema = changes.get("schema")
    if isinstance(schema, dict):
        spend(size(schema) + (not any(name in Validator.VALIDATORS for name in schema)))
        if "$id" in schema:  # what it refers to is looked for in the whole schema, each time
            raise TooCostly
        if "$schema" in schema:
            changes["schema"] = {name: value for name, value in schema.items() if name != "$schema"}
    return _evolved(validator, **changes)


Validator.evolve = _evolve
_META: Final = Draft202012Validator(Draft202012Validator.META_SCHEMA)


def _said(error: ValidationError) -> str:
    """What was wrong, without the value: arguments are the caller's and may be long or secret."""
    keyword = str(error.validator)
    if keyword in ("required", "dependentRequired", "pattern", "additionalProperties"):
        return error.message[:256]
    if isinstance(error.validator_value, str | int | float | list):
        return f"must satisfy {keyword}: {error.validator_value}"[:256]
    return f"must satisfy {keyword}"
