"""``not`` and ``!=`` over what may be missing: OPA answers undefined, and a refusal behind them never happens (APV-10).

The embedded engine's linter refuses such a ``not`` (``kblockd.policy.rego.negation``); in a bundle for OPA it is an
error of ``kblockd policy check`` only. ``input.args.region != "eu"`` is undefined in both engines without a region: a
warning, unless something else in the same body looks at the region, or the schema says that it is always there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kblockd.authoring.review.findings import ReviewFinding, at
from kblockd.policy.rego.negation import Negations
from kblockd.policy.rego.shape import Shape
from kblockd.policy.rego.syntax import Module, Node, Reference, references, walk

_UNEQUAL = "`!=` over a value that may be missing is undefined then, and the rule does not hold"
_NEXT = "say what a missing one means: `not x == ...`, or `is_string(x)` (is_number, ...) before it in the same body"


def undefined(tree: Sequence[Module], shape: Shape) -> Iterator[ReviewFinding]:
    """In every rule that decides."""
    negations = Negations(tree)
    for module in tree:
        if module.file.endswith("_test.rego"):
            continue
        for fault in negations.faults(module):
            place = {"line": fault.line, "col": fault.column}
            yield at(module, place, "error", "undefined", fault.message, fault.next_step)
        for _, query in walk(module.rules):
            if "stmts" in query:
                yield from _unequal(module, query["stmts"], shape)


def _unequal(module: Module, statements: Sequence[Node], shape: Shape) -> Iterator[ReviewFinding]:
    """Of one body."""
    compared = [(row, node) for row in statements if (node := _inequality(row)) is not None]
    for row, node in compared:
        others = {each.path for other in statements if other is not row for each in references(module, other)}
        missing = [each for each in _named(module, node) if each.path not in others and not _given(each, shape)]
        if missing:
            yield at(module, node, "warning", "undefined", _UNEQUAL, _NEXT)


def _inequality(row: Node) -> Node | None:
    expression = row["literal"].get("Expr", {}).get("expr", {}).get("BoolExpr")
    return expression if expression and expression["op"] == "Ne" else None


def _named(module: Module, node: Any) -> Iterator[Reference]:
    return (each for side in ("lhs", "rhs") for each in references(module, node[side]) if each.path[0] == "input")


def _given(each: Reference, shape: Shape) -> bool:
    return shape.is_given(each.path[1:])
