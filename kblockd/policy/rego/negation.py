"""``not`` over something that is undefined below the top: OPA answers undefined, the embedded engine true.

OPA takes the operands of a negated call out of the negation: ``not input.x in known`` is undefined, not true, when
``input.x`` is missing. A deny rule written so fails open in one engine and not in the other. So operands below ``not``
must be sure to be defined; a bare reference, or two of them around ``==``, are the same in both.

The same of ``in`` as a value: ``(input.x in known) == false`` is undefined in OPA when ``input.x`` is missing, and true
in the embedded engine. As a condition by itself it holds in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kblockd.policy.faults import BundleFault
from kblockd.policy.rego.syntax import Module, Node, reference, span, walk

_SCALARS = frozenset({"String", "RawString", "Number", "Bool", "Null"})
_COMPREHENSIONS = frozenset({"ArrayCompr", "SetCompr", "ObjectCompr"})
_BINARY = frozenset({"BoolExpr", "AssignExpr", "BinExpr", "ArithExpr"})
_NEXT_STEP = "put it into a rule of its own and negate that rule, or bind the operand to a variable first"
_MEMBER_STEP = "make it the condition of a rule with a default, or bind the operand to a variable first"


class Negations:
    """Knows which rules of a bundle always have a value."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._named = {name for module in modules for name, _ in _rules(module)}
        self._defined = {name for module in modules for name, sure in _rules(module) if sure}

    def faults(self, module: Module) -> Iterator[BundleFault]:
        """Of one module: every ``not`` that differs."""
        for kind, node in walk(module.rules):
            if kind == "NotExpr" and not self._same(module, node["expr"]):
                yield module.fault(node, "`not` over an operand that may be undefined differs from OPA", _NEXT_STEP)

    def members(self, module: Module) -> Iterator[BundleFault]:
        """Of one module: every value of ``in`` that differs."""
        nodes = [*walk(module.rules)]
        conditions = {id(node["expr"].get("Membership")) for kind, node in nodes if kind in ("Expr", "NotExpr")}
        for kind, node in nodes:
            if kind == "Membership" and id(node) not in conditions and not self._same(module, {kind: node}):
                what = "the value of `in` over an operand that may be undefined differs from OPA"
                yield module.fault(node, what, _MEMBER_STEP)

    def _same(self, module: Module, node: Node) -> bool:
        (kind,) = node
        inner = node[kind]
        if kind in ("BoolExpr", "AssignExpr") and inner["op"] == "Eq":
            return self._plain(module, inner["lhs"]) and self._plain(module, inner["rhs"])
        if kind in _BINARY or kind in ("Call", "Membership"):
            return all(self._sure(module, operand) for operand in _operands(kind, inner))
        return self._plain(module, node)

    def _plain(self, module: Module, node: Node) -> bool:
        """A reference whose parts are sure, or something that is sure itself."""
        while "RefDot" in node or "RefBrack" in node:
            if "RefBrack" in node and not self._sure(module, node["RefBrack"]["index"]):
                return False
            node = span(node)["refr"]
        return "Var" in node or self._sure(module, node)

    def _sure(self, module: Module, node: Node) -> bool:
        (kind,) = node
        if kind in _SCALARS or kind in _COMPREHENSIONS:
            return True
        if kind in ("Array", "Set"):
            return all(self._sure(module, item) for item in node[kind]["items"])
        if kind == "Object":
            return all(self._sure(module, part) for field in node[kind]["fields"] for part in field[1:])
        path = reference(node)
        if path is None:
            return False
        full = ".".join((*module.aliases.get(path[0], path[:1]), *path[1:]))
        local = ".".join((*module.package, *path))
        if full in self._defined or local in self._defined:
            return True
        return len(path) == 1 and path[0] not in module.aliases and local not in self._named


def _operands(kind: str, node: Node) -> Iterator[Node]:
    if kind == "Call":
        yield from node["params"]
    elif kind == "Membership":
        yield from (node[part] for part in ("key", "value", "collection") if node[part] is not None)
    else:
        yield from (node["lhs"], node["rhs"])


def _rules(module: Module) -> Iterator[tuple[str, bool]]:
    """(full path, always has a value) of every rule."""
    for rule in module.rules:
        if "Default" in rule:
            path, sure = reference(rule["Default"]["refr"]), True
        else:
            (kind,) = rule["Spec"]["head"]
            head = rule["Spec"]["head"][kind]
            constant = kind == "Compr" and not rule["Spec"]["bodies"] and _constant(head)
            path, sure = reference(head["refr"]), kind == "Set" or constant
        if path:
            yield ".".join((*module.package, *path)), sure


def _constant(head: Node) -> bool:
    return all(kind not in ("Var", "RefDot", "RefBrack", "Call") for kind, _ in walk(head["assign"]))
