"""Can what the rules name exist in the input?

Only what a rule names in full is followed (``input.principal.id``, through imports too); a part that a variable took
out is not. ``opa check --schema`` with kblockd's schema follows those as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kblockd.policy import syntax
from kblockd.policy.review.findings import Finding, at
from kblockd.policy.review.shape import Shape


def referenced(tree: Sequence[syntax.Module], shape: Shape) -> Iterator[Finding]:
    """Of every rule that decides."""
    for module in tree:
        if module.file.endswith("_test.rego"):
            continue
        for each in syntax.references(module, module.rules):
            if each.path[0] == "input" and (misfit := shape.misfit(each.path[1:])):
                place = each.places[misfit.at + 1]
                yield at(module, place, "error", "input-path", misfit.message, misfit.next_step)
