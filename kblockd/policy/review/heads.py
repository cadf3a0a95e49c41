"""``deny[msg] if ...`` without ``contains``: in both engines an object of ``true`` by message, no set of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kblockd.policy.review.findings import Finding, at
from kblockd.policy.review.shape import Shape
from kblockd.policy.syntax import Module

_WHAT = "without `contains` this is an object of true by key, not a set: `some x in` it finds true, not the key"
_NEXT = "write `name contains value if { ... }`, or give it a value (`name[key] := value if ...`)"


def objects(tree: Sequence[Module], shape: Shape) -> Iterator[Finding]:
    """Rules that decide and have a variable in brackets and no value."""
    for module in tree:
        for rule in () if module.file.endswith("_test.rego") else module.rules:
            head = rule.get("Spec", {}).get("head", {}).get("Compr")
            if head and head.get("assign") is None and "Var" in head["refr"].get("RefBrack", {}).get("index", {}):
                yield at(module, head, "warning", "object-rule", _WHAT, _NEXT)
