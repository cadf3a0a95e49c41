"""The engine's syntax tree: walking it without recursion, names of references, places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kblockd.policy.faults import Fault

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Module:
    """One file. ``aliases`` maps an imported name to the path it stands for."""

    file: str
    contents: bytes
    package: tuple[str, ...]
    imports: tuple[Node, ...]
    rules: tuple[Node, ...]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_ast(cls, row: Mapping[str, Any]) -> Module:
        """From one element of ``get_ast_as_json()``."""
        tree = row["ast"]
        imports = tuple(tree["imports"])
        package = reference(tree["package"]["refr"]) or ()
        contents = row["source"]["contents"].encode()
        aliases = {alias(each, contents): reference(each["refr"]) or () for each in imports}
        return cls(row["source"]["file"], contents, ("data", *package), imports, tuple(tree["rules"]), aliases)

    def text(self, span: Mapping[str, int]) -> str:
        """The source under a span."""
        return self.contents[span["start"] : span["end"]].decode(errors="replace")

    def fault(self, node: Node, message: str, next_step: str) -> Fault:
        """A fault at a node, or at a bare span."""
        span = node.get("span", node)
        return Fault(self.file, span["line"], span["col"], message, next_step)


def reference(node: Node) -> tuple[str, ...] | None:
    """``a.b["c"]`` as its parts; None when a part is not constant."""
    parts: list[str] = []
    while True:
        if "Var" in node:
            return (node["Var"]["value"], *reversed(parts))
        if "RefDot" in node:
            parts.append(node["RefDot"]["field"][1])
            node = node["RefDot"]["refr"]
        elif "RefBrack" in node and (index := _constant(node["RefBrack"]["index"])) is not None:
            parts.append(index)
            node = node["RefBrack"]["refr"]
        else:
            return None


def _constant(node: Node) -> str | None:
    text = node.get("String") or node.get("RawString")
    return None if text is None else str(text["value"])


def alias(node: Node, contents: bytes) -> str:
    """The name that an import brings into its module."""
    renamed = node.get("as")
    if renamed:
        return contents[renamed["start"] : renamed["end"]].decode(errors="replace")
    return (reference(node["refr"]) or ("",))[-1]


def walk(tree: Any) -> Iterator[tuple[str, Node]]:
    """Every (kind, node) below ``tree``, in no order; a stack of our own, so that no nesting ends it."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            for kind, member in node.items():
                if isinstance(member, dict):
                    yield kind, member
                elif isinstance(member, list | tuple):
                    yield from ((kind, each) for each in member if isinstance(each, dict))
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            stack.extend(node)


def span(node: Node) -> Node:
    """The inner node of ``{"Kind": {...}}``."""
    inner: Node = next(iter(node.values()))
    return inner
