"""The review of ``kblockd policy check``, beyond the checks of an activation.

    findings     a finding: an error, a warning or a note, with its place and the next step
    metadata     ``# METADATA`` blocks as OPA reads them, with the place of every key
    annotations  the schemas that annotations name
    references   what the rules name of the input and of the bundle
    uses         what a rule looks at, directly and through others
    packages     packages that no entry point comes to
    breadth      what allows more than it seems
    object_rules an object rule where a set is meant
    undefined    `not` and `!=` over what may be missing, for bundles that OPA decides by

``review`` runs in a child, over the engine's syntax tree; annotations are comments and are read by the parent
(``kblockd.authoring.reviewer``), which has the YAML parser.

An error is something that cannot mean what it says: a reference to a key that the input never has is undefined for
ever, and a refusal that rests on it never happens. A warning is a question to the author. May not live here: what a
bundle must pass to be activated (``kblockd.policy.embedded.acceptance``), and anything that reads files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kblockd.authoring.review import breadth, object_rules, packages, references, undefined
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, load
from kblockd.policy.rego.shape import Shape
from kblockd.policy.rego.syntax import Module

Part = Callable[[Sequence[Module], Shape], Iterator[ReviewFinding]]
_PARTS: tuple[Part, ...] = (references.referenced, packages.unused, breadth.allows, object_rules.objects)


def review(
    modules: Modules, time: DecisionTime, schema: Mapping[str, Any], *, server: bool = False
) -> list[ReviewFinding]:
    """Findings in the rules, by place; ``schema`` is that of the input. Raises ``RuntimeError``.

    ``server``: OPA decides by it, so that the embedded engine's linter has not seen it.
    """
    parts = (*_PARTS, undefined.undefined) if server else _PARTS
    tree = [Module.from_ast(row) for row in json.loads(load(modules, time).get_ast_as_json())]
    found = {finding for part in parts for finding in part(tree, Shape(schema))}
    return sorted(found.union(references.missing(tree, modules.data)))
