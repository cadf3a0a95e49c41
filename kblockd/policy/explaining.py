"""Child side: one answer of the bundle, and the rules that fired on the way to it in its copy (``firing``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.policy import checks
from kblockd.policy.firing import Firing
from kblockd.policy.modules import Modules, evaluate, load
from kblockd.policy.replacements import DecisionTime


def explain(modules: Modules, time: DecisionTime, header: Mapping[str, Any]) -> dict[str, Any]:
    """``{"faults": [...]}`` for a bundle that does not load, else ``{"answer": ..., "rules": [...]}``.

    ``header`` names the ``entrypoint``, the canonical ``document``, and whether errors may be ``quoting`` values.
    """
    if faults := checks.unloadable(modules, time):
        return {"faults": [fault.to_json() for fault in faults]}
    deciding = modules.without_tests()
    query, document = checks.query_of(header["entrypoint"]), header["document"].encode()
    quoting = header.get("quoting") is True
    answer = evaluate(load(deciding, time), time, query, document, quoting=quoting)
    firing = Firing(deciding, time)
    copied = evaluate(firing.engine, time, query, document)
    if copied != answer and not ("error" in copied and "error" in answer):
        return {"error": "the rules that fired cannot be told: the copy of the policy answers otherwise"}
    return {"answer": answer, "rules": [rule.to_json() for rule in firing.fired()]}
