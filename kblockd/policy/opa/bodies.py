"""The bodies of rules from OPA's own syntax tree (``opa parse``), which holds what only OPA takes, for ``affixes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kblockd.policy.rego.affixes import Name, Operand, Part, RuleBody, Statement

_CALLS: Final = {"assign": "bind", "eq": "bind", "equal": "equal"}
_ROOTS: Final = ("input", "data")
Tree = Mapping[str, Any]
Aliases = Mapping[str, tuple[str, ...]]


def bodies(file: str, tree: Tree) -> Iterator[RuleBody]:
    """Of every rule of a file, ``else`` by itself."""
    aliases = {name: path for each in tree.get("imports") or () for name, path in _imported(each)}
    for rule in tree.get("rules") or ():
        arguments = frozenset(_variables(rule["head"].get("args") or ()))
        while rule:
            found = (_statement(each, aliases, arguments) for each in rule.get("body") or ())
            yield RuleBody(file, tuple(filter(None, found)), arguments)
            rule = rule.get("else")


def _imported(row: Tree) -> Iterator[tuple[str, tuple[str, ...]]]:
    path = tuple(str(part["value"]) for part in row["path"]["value"])
    yield row.get("alias") or path[-1], path


def _variables(node: Any) -> Iterator[str]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "var":
                yield node["value"]
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            stack.extend(node)


def _statement(row: Tree, aliases: Aliases, arguments: frozenset[str]) -> Statement | None:
    terms = row["terms"]
    if row.get("negated") or row.get("with") or not isinstance(terms, list):
        return None
    operator = [str(part["value"]) for part in terms[0]["value"]]
    call = ".".join((*aliases.get(operator[0], operator[:1]), *operator[1:]))
    operands = tuple(_operand(term, aliases, arguments) for term in terms[1:])
    where = row.get("location") or terms[0]["location"]
    return Statement(_CALLS.get(call, call), operands, int(where["row"]), int(where["col"]))


def _operand(term: Tree, aliases: Aliases, arguments: frozenset[str]) -> Operand:
    if term["type"] == "string":
        return Operand(literal=str(term["value"]))
    if term["type"] not in ("var", "ref"):
        return Operand()
    head, *rest = [term] if term["type"] == "var" else term["value"]
    parts = [_part(each) for each in rest]
    if head["type"] != "var" or None in parts:
        return Operand()
    below = tuple(part for part in parts if part is not None)
    name = head["value"]
    if name in arguments or (name not in aliases and name not in _ROOTS):
        return Operand((Name(name), *below))
    return Operand((*aliases.get(name, (name,)), *below))


def _part(term: Tree) -> Part | None:
    if term["type"] == "var":
        return Name(term["value"])
    return str(term["value"]) if term["type"] in ("string", "number") else None
