"""Child side: the operations of an author's worker, over the body of one bundle."""

from __future__ import annotations

import json
from typing import Any

from kblockd.authoring.embedded import runs
from kblockd.authoring.review import review
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, bare_error


def answer(header: dict[str, Any], body: bytes) -> dict[str, Any]:
    """``explain``, ``review`` or ``test``; an error of the policy or the input becomes an ``error`` for the parent."""
    try:
        return _answer(header, Modules.from_json(json.loads(body)), DecisionTime())
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        return {"error": bare_error(error)}


def _answer(header: dict[str, Any], modules: Modules, time: DecisionTime) -> dict[str, Any]:
    match header.get("op"):
        case "explain":
            return runs.explain(modules, time, header)
        case "review":
            findings = review(modules, time, header["schema"], server=header.get("server") is True)
            return {"findings": [finding.to_json() for finding in findings]}
        case "test":
            return runs.test(modules, time, header["only"])
        case other:
            return {"error": f"unknown operation {other!r}"}
