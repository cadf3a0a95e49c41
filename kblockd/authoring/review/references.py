"""Can what the rules name exist in the input, or in the bundle?

Only what a rule names in full is followed (``input.principal.id``, through imports too); a part that a variable took
out is not. ``opa check --schema`` with kblockd's schema follows those as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from kblockd.authoring.review.findings import ReviewFinding, at
from kblockd.authoring.review.packages import other_inputs
from kblockd.authoring.review.uses import Path
from kblockd.policy.rego import syntax
from kblockd.policy.rego.shape import Shape


def referenced(tree: Sequence[syntax.Module], shape: Shape) -> Iterator[ReviewFinding]:
    """Of every rule that decides by kblockd's input: what is only asked ``with input as {...}`` has another."""
    foreign = other_inputs(tree)
    for module in tree:
        if module.file.endswith("_test.rego") or module.package in foreign:
            continue
        for each in syntax.references(module, module.rules):
            if each.path[0] == "input" and (misfit := shape.misfit(each.path[1:])):
                place = each.places[misfit.at + 1]
                step = f"{misfit.next_step}; a policy for another input is asked `with input as {{...}}`"
                yield at(module, place, "error", "input-path", misfit.message, step)


def missing(tree: Sequence[syntax.Module], data: Mapping[str, Any]) -> Iterator[ReviewFinding]:
    """What a rule that decides names below ``data``, and neither a rule nor a document of the bundle gives: a file that
    was left out takes its refusals with it."""
    deciding = [module for module in tree if not module.file.endswith("_test.rego")]
    rules = {name for module in deciding for name in _names(module)}
    for module in deciding:
        for each in syntax.references(module, module.rules):
            path = tuple(takewhile(lambda part: part is not None, each.path))
            if path[0] == "data" and not (_given(path, rules) or _held(path[1:], data)):
                named = ".".join(map(str, path))
                step = "correct its name, or add the file or the document that gives it"
                yield at(module, each.places[len(path) - 1], "error", "data-path", f"nothing gives {named}", step)


def _names(module: syntax.Module) -> Iterator[Path]:
    for rule in module.rules:
        node = rule.get("Default") or syntax.span(rule["Spec"]["head"])
        yield (*module.package, *syntax.constant_part(node["refr"]))


def _given(path: Sequence[str | None], rules: set[Path]) -> bool:
    """By a rule at, above or below it."""
    return any(all(one == other for one, other in zip(path, name, strict=False)) for name in rules)


def _held(path: Sequence[str | None], data: Any) -> bool:
    """By a document; what stands below a value that is no object is not followed."""
    for part in path:
        if not isinstance(data, Mapping):
            return True
        if part not in data:
            return False
        data = data[part]
    return True
