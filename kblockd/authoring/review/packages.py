"""Packages that decide nothing: neither asked by kblockd nor used by one that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kblockd.authoring.review.findings import ReviewFinding, at
from kblockd.authoring.review.uses import Path, paths
from kblockd.policy.deciding import entrypoints
from kblockd.policy.rego.shape import Shape
from kblockd.policy.rego.syntax import Module, reference

_ASKED = {("data", *entrypoint.split("/")[:-1]) for entrypoint in entrypoints.ENTRYPOINTS}


def unused(tree: Sequence[Module], shape: Shape) -> Iterator[ReviewFinding]:
    """One warning for each file of such a package; files of tests are used by whoever runs them."""
    deciding = [module for module in tree if not module.file.endswith("_test.rego")]
    files: dict[Path, list[Module]] = defaultdict(list)
    for module in deciding:
        files[module.package].append(module)
    used = _used(files)
    for package, modules in files.items():
        if package not in used:
            what = f"package {'.'.join(package[1:])} is neither asked by kblockd nor used by a package that is"
            for module in modules:
                yield at(module, _place(module), "warning", "unused-package", what, "import it, or remove the file")


def other_inputs(tree: Sequence[Module]) -> set[Path]:
    """Packages that are used, and only below a ``with input as {...}``: third-party policies behind a rule of ours."""
    files: dict[Path, list[Module]] = defaultdict(list)
    for module in tree:
        if not module.file.endswith("_test.rego"):
            files[module.package].append(module)
    return _used(files) - _used(files, _without_other_input)


def _without_other_input(node: Any) -> Any:
    """The same without the statements whose whole input is replaced."""
    if isinstance(node, Mapping):
        return {key: _without_other_input(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_without_other_input(each) for each in node if not _replaces_input(each)]
    return node


def _replaces_input(node: Any) -> bool:
    mods = node.get("with_mods") or () if isinstance(node, Mapping) else ()
    return any(reference(each["refr"]) == ("input",) for each in mods)


def _used(files: Mapping[Path, Sequence[Module]], seen: Callable[[Any], Any] = lambda rules: rules) -> set[Path]:
    """From the entry points on, by what ``seen`` leaves of the rules."""
    used: set[Path] = set()
    waiting = [package for package in files if package in _ASKED]
    while waiting:
        package = waiting.pop()
        if package in used:
            continue
        used.add(package)
        named = {path for module in files[package] for path in paths(module, seen(module.rules))}
        waiting += [other for other in files if any(_touches(path, other) for path in named)]
    return used


def _touches(path: Path, package: Path) -> bool:
    """A path into the package, or to what it stands below."""
    shorter = min(len(path), len(package))
    return path[0] == "data" and path[:shorter] == package[:shorter]


def _place(module: Module) -> Mapping[str, int]:
    """Of the word ``package``; 1:1 where it does not begin a line."""
    for number, line in enumerate(module.contents.splitlines(), 1):
        if line.startswith(b"package"):
            return {"line": number, "col": 1}
    return {"line": 1, "col": 1}
