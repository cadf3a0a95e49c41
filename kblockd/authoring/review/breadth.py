"""What allows more than it seems: each is a question to the author, not a refusal.

A default that allows; an allowance whose condition never looks at the input; every tenant, or every agent without a
look at who asks; a pattern that everything matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kblockd.authoring.review.findings import ReviewFinding, at
from kblockd.authoring.review.uses import Uses
from kblockd.policy.rego.shape import Shape
from kblockd.policy.rego.syntax import Module, Node, constant_part, reference, span, walk

CODE: Final = "broad-allow"
_UNKNOWN: Final = object()
_NAMES: Final = ("allow", "grant", "permit")
_ALLOWING: Final[Mapping[str, tuple[Any, ...]]] = {
    "allow": (True,),
    "effect": ("allow", "observe"),
    "stands": (True,),
    "verdict": ("expected",),
    "recovery": ("retry",),
}
_EVERYTHING: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    "regex.match": (0, frozenset({"", "^", "$", "^$|.*", ".*", "^.*", ".*$", "^.*$", ".+", "^.+", ".+$", "^.+$"})),
    "glob.match": (0, frozenset({"**"})),
    "startswith": (1, frozenset({""})),
    "endswith": (1, frozenset({""})),
    "contains": (1, frozenset({""})),
}
"""Builtin to (position of the pattern, patterns that match whatever there is)."""


@dataclass(frozen=True, slots=True)
class _Head:
    """One value that a rule may take: ``condition`` is the syntax below which it does, None for a default."""

    name: str
    place: Node
    value: Any
    condition: Any


class _Written:
    """Values that functions and tables hold for others: a rule that takes one of them allows what it allows."""

    def __init__(self, tree: Sequence[Module]) -> None:
        self._values: dict[tuple[str, ...], Any] = {}
        for module in tree:
            for rule in module.rules:
                if "Spec" in rule and (_is_function(rule) or not rule["Spec"]["bodies"]):
                    head = span(rule["Spec"]["head"])
                    if head.get("assign"):
                        name = (*module.package, *constant_part(head["refr"]))
                        self._values[name] = literal(head["assign"]["value"])
        taken = (self._name(module, node) for module in tree for rule in module.rules for node in _nodes(rule))
        self._taken = {name for name in taken if name}

    def value(self, module: Module, node: Any) -> Any:
        """What a head is worth: as it is written, or as what it takes is; true where nothing is written."""
        if not node:
            return True
        name = self._name(module, node)
        return literal(node) if name is None else self._values[name]

    def is_for_others(self, module: Module, rule: Node) -> bool:
        """Whether the condition is up to whoever takes the value."""
        if "Default" in rule:
            return False
        name = (*module.package, *constant_part(span(rule["Spec"]["head"])["refr"]))
        return _is_function(rule) or (name in self._taken and not rule["Spec"]["bodies"])

    def _name(self, module: Module, node: Any) -> tuple[str, ...] | None:
        path = reference(node["Call"]["fcn"] if "Call" in node else node) if node else None
        if path is None:
            return None
        for name in ((*module.aliases.get(path[0], path[:1]), *path[1:]), (*module.package, *path)):
            if name in self._values:
                return name
        return None


def allows(tree: Sequence[Module], shape: Shape) -> Iterator[ReviewFinding]:
    """Of every file that decides."""
    uses, written = Uses(tree), _Written(tree)
    for module in tree:
        if not module.file.endswith("_test.rego"):
            for rule in module.rules:
                if not written.is_for_others(module, rule):
                    for head in _heads(module, rule, written):
                        yield from _head(module, head, uses)
            yield from _patterns(module)


def _head(module: Module, head: _Head, uses: Uses) -> Iterator[ReviewFinding]:
    if not _is_allowing(head):
        return
    if head.condition is None:
        message = f"the default of {head.name} allows: whatever no rule decides is let through"
        yield at(module, head.place, "warning", CODE, message, "let the default deny, and allow by rules")
        return
    looks = uses.inputs(module, head.condition)
    if not looks:
        message = f"{head.name} allows whatever is asked: its condition never looks at the input"
        yield at(module, head.place, "warning", CODE, message, "add the condition under which it may")
    yield from _stars(module, head, uses)


def _stars(module: Module, head: _Head, uses: Uses) -> Iterator[ReviewFinding]:
    found = head.value if isinstance(head.value, dict) else {}
    if _has_star(found.get("tenants")):
        message = f'{head.name} gives the rows of every tenant ("*")'
        yield at(module, head.place, "warning", CODE, message, "name input.principal.tenant, or say why above the rule")
    elif _has_star(found.get("agents")) and not _looks_at_roles(uses.inputs(module, head.condition)):
        message = f'{head.name} gives the rows of every agent ("*") and does not look at who asks'
        yield at(module, head.place, "warning", CODE, message, "look at input.principal.roles or kind, or name the id")


def _looks_at_roles(inputs: set[tuple[str, ...]]) -> bool:
    return any(not path or (path[0] == "principal" and path[1:2] != ("tenant",)) for path in inputs)


def _has_star(value: Any) -> bool:
    return isinstance(value, list) and "*" in value


def _is_allowing(head: _Head) -> bool:
    if isinstance(head.value, dict):
        if {"tenants", "agents"} <= set(head.value) and "allow" not in head.value:
            return True
        return any(head.value.get(key, _UNKNOWN) in values for key, values in _ALLOWING.items())
    return head.value is True and head.name.rpartition(".")[2].startswith(_NAMES)


def _heads(module: Module, rule: Node, written: _Written) -> Iterator[_Head]:
    if default := rule.get("Default"):
        yield _Head(".".join(constant_part(default["refr"])), default, literal(default["value"]), None)
        return
    spec = rule["Spec"]
    name = ".".join(constant_part(span(spec["head"])["refr"]))
    bodies = [body for body in spec["bodies"] if body["is_else"]]
    conditions = [
        [body["query"] for body in spec["bodies"] if not body["is_else"]],
        *(each["query"] for each in bodies),
    ]
    for place, node, condition in zip([spec, *bodies], _nodes(rule), conditions, strict=True):
        yield _Head(name, place, written.value(module, node), condition)


def _nodes(rule: Node) -> Iterator[Any]:
    """The value of every head of a rule, None for one that is not written."""
    if "Spec" in rule:
        head = span(rule["Spec"]["head"])
        yield head["key"] if "key" in head else _assigned(head)
        yield from (_assigned(body) for body in rule["Spec"]["bodies"] if body["is_else"])


def _is_function(rule: Node) -> bool:
    return "Spec" in rule and "args" in span(rule["Spec"]["head"])


def _assigned(node: Node) -> Any:
    return node["assign"]["value"] if node["assign"] else None


def literal(node: Node) -> Any:
    """The value that is written, as far as it is; what is computed is an object of its own, equal to nothing."""
    (kind,) = node
    inner = node[kind]
    match kind:
        case "String" | "RawString" | "Bool" | "Number":
            return inner["value"]
        case "Array" | "Set":
            return [literal(item) for item in inner["items"]]
        case "Object":
            fields = [(literal(key), literal(value)) for _, key, value in inner["fields"]]
            return {key: value for key, value in fields if isinstance(key, str)}
    return _UNKNOWN


def _patterns(module: Module) -> Iterator[ReviewFinding]:
    for kind, node in walk(module.rules):
        if kind != "Call":
            continue
        name = ".".join(reference(node["fcn"]) or ())
        position, patterns = _EVERYTHING.get(name, (0, frozenset()))
        if patterns and len(node["params"]) > position and literal(node["params"][position]) in patterns:
            message = f"{name} matches everything with this pattern"
            yield at(module, span(node["params"][position]), "warning", CODE, message, "name what may match")
