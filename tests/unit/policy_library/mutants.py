"""Mutants of Rego: one comparison, constant, negation or condition of a module changed at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import regorus

from kblockd.policy.rego.syntax import Module, Node, span, walk

_BINARY: Final = ("BoolExpr", "AssignExpr")
_OTHER: Final = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">"),
    "<=": ("<", ">"),
    ">": (">=", "<"),
    ">=": (">", "<"),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``line`` counts from one; ``was`` became ``now``; ``text`` is the whole module."""

    line: int
    was: str
    now: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.was!r} became {self.now!r}"


def mutants(path: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a module that differs from it.

    Left alone are messages (texts with a blank), for nothing decides by them, and keys of objects, for the entry points
    refuse any other.
    """
    engine = regorus.Engine()
    engine.add_policy(path, text)
    (module,) = map(Module.from_ast, json.loads(engine.get_ast_as_json()))
    source, seen = module.contents, {module.contents}
    for start, end, now in _changes(module):
        changed = source[:start] + now.encode() + source[end:]
        if changed not in seen:
            seen.add(changed)
            yield Mutant(source.count(b"\n", 0, start) + 1, source[start:end].decode(), now, changed.decode())


def _changes(module: Module) -> Iterator[tuple[int, int, str]]:
    """(start, end, replacement)."""
    keys = {id(key[1]["String"]) for key in _fields(module) if "String" in key[1]}
    for kind, node in walk(module.rules):
        if kind in _BINARY and "lhs" in node:
            yield from _comparison(module, node)
        elif kind == "RawString" or (kind == "String" and id(node) not in keys and " " not in node["value"]):
            yield *_place(node["span"]), "mutant"
        elif kind == "Number":
            start, end = _place(node["span"])
            yield from ((start, end, str(int(module.contents[start:end]) + step)) for step in (1, -1))
        elif kind == "NotExpr":
            start, _ = _place(node["span"])
            yield start, start + len("not "), ""
        elif kind == "query" and len(node["stmts"]) > 1:
            yield from ((*_place(statement["span"]), "true") for statement in node["stmts"])


def _fields(module: Module) -> Iterator[Sequence[Node]]:
    """(place, key, value) of every object that is written out."""
    return (field for kind, node in walk(module.rules) if kind == "Object" for field in node["fields"])


def _comparison(module: Module, node: Node) -> Iterator[tuple[int, int, str]]:
    _, left = _place(span(node["lhs"])["span"])
    right, _ = _place(span(node["rhs"])["span"])
    between = module.contents[left:right]
    for sign in sorted(_OTHER, key=len, reverse=True):
        if sign.encode() in between:
            start = left + between.index(sign.encode())
            yield from ((start, start + len(sign), other) for other in _OTHER[sign])
            return


def _place(where: Node) -> tuple[int, int]:
    return int(where["start"]), int(where["end"])


def dies(engine: Any, tests: list[str], path: str, mutant: Mutant) -> bool:
    """Whether one of the tests is not true with it; ``engine`` holds everything but the module and is left alone."""
    fresh = engine.clone()
    try:
        fresh.add_policy(path, mutant.text)
        fresh.set_input_json("{}")
        return any(fresh.eval_rule_as_json(name) != "true" for name in tests)
    except RuntimeError:
        return True
