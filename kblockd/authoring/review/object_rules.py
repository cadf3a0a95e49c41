"""``deny[msg] if ...`` without ``contains``: an object of ``true`` by message in both engines, not a set of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kblockd.authoring.review.findings import ReviewFinding, at
from kblockd.policy.rego.shape import Shape
from kblockd.policy.rego.syntax import Module

_WHAT = "without `contains` this is an object of true by key, not a set: `some x in` it finds true, not the key"
_NEXT = "write `name contains value if { ... }`, or give it a value (`name[key] := value if ...`)"


def objects(tree: Sequence[Module], shape: Shape) -> Iterator[ReviewFinding]:
    """Rules that decide and have a variable in brackets and no value."""
    for module in tree:
        for rule in () if module.file.endswith("_test.rego") else module.rules:
            head = rule.get("Spec", {}).get("head", {}).get("Compr")
            if head and head.get("assign") is None and "Var" in head["refr"].get("RefBrack", {}).get("index", {}):
                yield at(module, head, "warning", "object-rule", _WHAT, _NEXT)
