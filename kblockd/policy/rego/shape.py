"""The shape of the input: whether a path can exist in it, by its JSON schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
_SCALARS = {"string": "text", "integer": "a number", "number": "a number", "boolean": "a boolean", "null": "null"}


@dataclass(frozen=True, slots=True)
class Misfit:
    """``at`` is the position of the part that cannot be; ``message`` names it, ``next_step`` what could."""

    at: int
    message: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one document; what the schema leaves open can be anything."""

    schema: Schema

    def misfit(self, path: Sequence[str | None]) -> Misfit | None:
        """Why ``input.<path>`` can never have a value, or None; a part that is not constant could be any."""
        nodes: list[Schema] = [self.schema]
        for position, part in enumerate(path):
            found = [below for node in nodes for below in _below(node, part)]
            if not found:
                shown = ".".join(["input", *(each or "_" for each in path[:position])])
                return Misfit(position, *_why(nodes, part, shown))
            nodes = found
        return None

    def is_text(self, path: Sequence[str | None]) -> bool:
        """Whether ``input.<path>`` is a string whenever it has a value."""
        nodes: list[Schema] = [self.schema]
        for part in path:
            nodes = [below for node in nodes for below in _below(node, part)]
        plain = [each for node in nodes for each in _alternatives(node)]
        return bool(plain) and all(each.get("type") == "string" for each in plain)

    def is_given(self, path: Sequence[str | None]) -> bool:
        """Whether ``input.<path>`` always has a value: each of its parts is required where it stands."""
        nodes: list[Schema] = [self.schema]
        for part in path:
            plain = [each for node in nodes for each in _alternatives(node) if each.get("type") != "null"]
            if not plain or not all(part in (each.get("required") or ()) for each in plain):
                return False
            nodes = [below for each in plain for below in _below(each, part)]
        return True


def _below(node: Schema, part: str | None) -> Iterator[Schema]:
    for each in _alternatives(node):
        kind = each.get("type")
        if kind is None and "properties" not in each:
            yield {}
        elif kind == "array" and not _is_name(part):
            yield each.get("items") or {}
        elif kind in ("object", None):
            yield from _member(each, part)


def _member(node: Schema, part: str | None) -> Iterator[Schema]:
    properties: Mapping[str, Schema] = node.get("properties") or {}
    if part is None:
        yield from properties.values()
    elif part in properties:
        yield properties[part]
    if part not in properties and node.get("additionalProperties", True) is not False:
        yield {}


def _alternatives(node: Schema) -> Iterator[Schema]:
    if "anyOf" in node:
        for each in node["anyOf"]:
            yield from _alternatives(each)
    elif isinstance(node.get("type"), list):
        yield from ({**node, "type": kind} for kind in node["type"])
    else:
        yield node


def _is_name(part: str | None) -> bool:
    return part is not None and not part.isdigit()


def _why(nodes: Sequence[Schema], part: str | None, shown: str) -> tuple[str, str]:
    plain = [each for node in nodes for each in _alternatives(node)]
    names = sorted({name for each in plain for name in each.get("properties") or {}})
    if names:
        near = difflib.get_close_matches(part or "", names, 1)
        step = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(names)}"
        return f"{shown} never has a key {part}", step
    if any(each.get("type") == "array" for each in plain):
        return f"{shown} is an array and has no key {part}", "index it with a number, or write `some x in`"
    kinds = sorted({_SCALARS.get(str(each.get("type")), "a value") for each in plain} - {"null"})
    return f"{shown} is {' or '.join(kinds) or 'null'} and has no keys", "correct the path"
