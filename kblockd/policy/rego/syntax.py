"""The engine's syntax tree: walking it without recursion, names of references, places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kblockd.policy.faults import BundleFault

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

    def fault(self, node: Node, message: str, next_step: str) -> BundleFault:
        """A fault at a node, or at a bare span."""
        span = node.get("span", node)
        return BundleFault(self.file, span["line"], span["col"], message, next_step)


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


def constant_part(node: Node) -> tuple[str, ...]:
    """``a.b[x].c`` up to its first variable part."""
    while (path := reference(node)) is None:
        node = span(node)["refr"]
    return path


def bound_names(module: Module) -> Iterator[str]:
    """Names of local variables, which may hide what is imported."""
    for kind, node in walk(module.rules):
        match kind:
            case "SomeVars":
                yield from map(module.text, node["vars"])
            case "Every":
                yield from (module.text(node[part]) for part in ("key", "value") if node[part])
            case "SomeIn":
                yield from variables([node["key"], node["value"]])
            case "AssignExpr" if node["op"] == "ColEq":
                yield from variables([node["lhs"]])
            case "Func":
                yield from variables(node["args"])


def variables(nodes: Any) -> Iterator[str]:
    """Names of all variables below ``nodes``."""
    return (node["value"] for kind, node in walk(nodes) if kind == "Var")


@dataclass(frozen=True, slots=True)
class Reference:
    """``base.a["b"][i]``: the path with imports resolved, None for a part that is not constant.

    ``places`` are the spans of the parts of ``path``; the imported ones have the place of the name.
    """

    path: tuple[str | None, ...]
    places: tuple[Node, ...]


def references(module: Module, tree: Any) -> Iterator[Reference]:
    """Every reference below ``tree`` in full length, those in brackets too."""
    bound = set(bound_names(module))
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.keys() & {"Var", "RefDot", "RefBrack"} and len(node) == 1:
                base, parts, rest = _parts(node)
                stack += rest
                if base:
                    yield _resolved(module, base, parts, bound)
                continue
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            stack.extend(node)


def _parts(node: Node) -> tuple[Node | None, list[tuple[str | None, Node]], list[Node]]:
    """The variable at its base (None: something else), its parts, and what is left to look into."""
    parts: list[tuple[str | None, Node]] = []
    rest: list[Node] = []
    while "Var" not in node:
        if "RefDot" in node:
            place, name = node["RefDot"]["field"]
            parts.append((name, place))
        elif "RefBrack" in node:
            index = node["RefBrack"]["index"]
            parts.append((_constant(index), span(index)["span"]))
            rest.append(index)
        else:
            return None, [], [*rest, node]
        node = span(node)["refr"]
    return node["Var"], parts[::-1], rest


def _resolved(module: Module, base: Node, parts: Sequence[tuple[str | None, Node]], bound: set[str]) -> Reference:
    name = base["value"]
    head = module.aliases.get(name, (name,)) if name not in bound else (name,)
    path = (*head, *(part for part, _ in parts))
    return Reference(path, (*(base["span"] for _ in head), *(place for _, place in parts)))


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
