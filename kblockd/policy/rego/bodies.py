"""The bodies of rules from the embedded engine's syntax tree, for ``affixes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kblockd.policy.rego.affixes import Name, Operand, Part, RuleBody, Statement
from kblockd.policy.rego.syntax import Module, Node, bound_names, reference, span, variables

_ROOTS = ("input", "data")


def bodies(module: Module) -> Iterator[RuleBody]:
    """Of every rule of a module, ``else`` by itself."""
    locals_ = frozenset(bound_names(module))
    for rule in module.rules:
        if "Spec" not in rule:
            continue
        (kind,) = rule["Spec"]["head"]
        arguments = variables(rule["Spec"]["head"][kind]["args"]) if kind == "Func" else ()
        for body in rule["Spec"]["bodies"]:
            statements = (_statement(module, locals_, row) for row in body["query"]["stmts"])
            yield RuleBody(module.file, tuple(filter(None, statements)), frozenset(arguments))


def _statement(module: Module, locals_: frozenset[str], row: Node) -> Statement | None:
    if row.get("with_mods") or "Expr" not in row["literal"]:
        return None
    ((kind, node),) = row["literal"]["Expr"]["expr"].items()
    place = node.get("span") or row["span"]
    if kind == "Call":
        path = reference(node["fcn"]) or ("",)
        call = ".".join((*module.aliases.get(path[0], path[:1]), *path[1:]))
        operands = node["params"]
    elif kind in ("AssignExpr", "BoolExpr") and (kind == "AssignExpr" or node["op"] == "Eq"):
        call, operands = "bind" if kind == "AssignExpr" else "equal", [node["lhs"], node["rhs"]]
    else:
        return None
    found = tuple(_operand(module, locals_, each) for each in operands)
    return Statement(call, found, place["line"], place["col"])


def _operand(module: Module, locals_: frozenset[str], node: Any) -> Operand:
    text = node.get("String") or node.get("RawString")
    if text is not None:
        return Operand(literal=str(text["value"]))
    parts: list[Part | None] = []
    while "Var" not in node:
        if "RefDot" in node:
            parts.append(node["RefDot"]["field"][1])
        elif "RefBrack" in node:
            parts.append(_index(node["RefBrack"]["index"]))
        else:
            return Operand()
        node = span(node)["refr"]
    name = node["Var"]["value"]
    if None in parts:
        return Operand()
    below = tuple(part for part in reversed(parts) if part is not None)
    if name in locals_ or (name not in module.aliases and name not in _ROOTS):
        return Operand((Name(name), *below))
    return Operand((*module.aliases.get(name, (name,)), *below))


def _index(node: Any) -> Part | None:
    if "Var" in node:
        return Name(node["Var"]["value"])
    text = node.get("String") or node.get("RawString") or node.get("Number")
    return None if text is None else str(text["value"])
