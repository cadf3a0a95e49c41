"""What a rule looks at: paths of the input and other rules, directly and through whatever it uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from kblockd.policy.rego.syntax import Module, constant_part, references, span

Path = tuple[str, ...]


class Uses:
    """Of a whole bundle; rules are named by their full path, ``("data", "kblock", "authz", "result")``."""

    def __init__(self, tree: Sequence[Module]) -> None:
        self._direct: dict[Path, set[Path]] = defaultdict(set)
        for module in tree:
            for rule in module.rules:
                node = rule.get("Default") or span(rule["Spec"]["head"])
                self._direct[(*module.package, *constant_part(node["refr"]))].update(paths(module, rule))

    def inputs(self, module: Module, tree: Any) -> set[Path]:
        """Paths below ``input`` on which what stands in ``tree`` depends."""
        found: set[Path] = set()
        seen: set[Path] = set()
        stack = [*paths(module, tree)]
        while stack:
            path = stack.pop()
            if path[0] == "input":
                found.add(path[1:])
                continue
            for name in self._named(path):
                if name not in seen:
                    seen.add(name)
                    stack.extend(self._direct[name])
        return found

    def _named(self, path: Path) -> Iterator[Path]:
        """Rules at, above or below a path."""
        for name in tuple(self._direct):
            shorter = min(len(name), len(path))
            if name[:shorter] == path[:shorter]:
                yield name


def paths(module: Module, tree: Any) -> Iterator[Path]:
    """Every reference up to its first variable part: below ``input``, below ``data``, or to a rule of the package."""
    for each in references(module, tree):
        path: list[str] = []
        for part in each.path:
            if part is None:
                break
            path.append(part)
        yield tuple(path) if path[0] in ("input", "data") else (*module.package, *path)
