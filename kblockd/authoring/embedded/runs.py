"""Child side: evaluations of a bundle beside its instrumented copy.

The bundle itself gives the answer, a test's verdict and the lines that were evaluated; the copy gives the rules that
fired. If the two disagree, nothing is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kblockd.authoring.embedded.instrumented import InstrumentedCopy
from kblockd.policy.builtins.patterns import compiled
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.deciding.explanation import Rule
from kblockd.policy.embedded.acceptance import query_of, unloadable, why_failed
from kblockd.policy.embedded.modules import Modules, evaluate, load
from kblockd.policy.faults import BundleFault


def explain(modules: Modules, time: DecisionTime, header: Mapping[str, Any]) -> dict[str, Any]:
    """``{"faults": [...]}`` for a bundle that does not load, else ``{"answer": ..., "rules": [...]}``.

    ``header`` names the ``entrypoint``, the canonical ``document``, and whether errors may be ``quoting`` values.
    """
    if faults := unloadable(modules, time):
        return {"faults": [fault.to_json() for fault in faults]}
    deciding = modules.without_tests()
    query, document = query_of(header["entrypoint"]), header["document"].encode()
    quoting = header.get("quoting") is True
    answer = evaluate(load(deciding, time), time, query, document, quoting=quoting)
    copy = InstrumentedCopy(deciding, time)
    copied = evaluate(copy.engine, time, query, document)
    if copied != answer and not ("error" in copied and "error" in answer):
        return {"error": "the rules that fired cannot be told: the copy of the policy answers otherwise"}
    return {"answer": answer, "rules": [rule.to_json() for rule in copy.fired()]}


def test(modules: Modules, time: DecisionTime, only: str) -> dict[str, Any]:
    """``{"faults": [...]}`` for a bundle that does not load, else tests, rules, those that fired, and lines."""
    if faults := _unfit(modules, time, only):
        return {"faults": [fault.to_json() for fault in faults]}
    engine, copy = load(modules, time), InstrumentedCopy(modules, time)
    named = {rule.name: rule for rule in reversed(copy.rules) if _is_test(rule) and compiled(only).search(rule.name)}
    why = {name: why_failed(engine, time, f"data.{name}") for name in named}
    engine.set_enable_coverage(True)
    for name in (name for name, fault in why.items() if not fault):
        why[name] = _watched(engine, copy, time, name)
    return {
        "tests": [{**_place(rule), "why": why[name]} for name, rule in named.items()],
        "rules": [rule.to_json() for rule in copy.rules],
        "fired": [rule.to_json() for rule in copy.fired()],
        "lines": list(_lines(engine)),
    }


def _unfit(modules: Modules, time: DecisionTime, only: str) -> list[BundleFault]:
    try:
        compiled(only)
    except ValueError as error:
        return [BundleFault("--run", 0, 0, str(error), "write a regular expression of RE2")]
    return unloadable(modules, time)


def _is_test(rule: Rule) -> bool:
    return rule.name.rpartition(".")[2].startswith("test_")


def _watched(engine: Any, copy: InstrumentedCopy, time: DecisionTime, name: str) -> str:
    """Runs a test that passes once more, to see what it covers."""
    why_failed(engine, time, f"data.{name}")
    copied = why_failed(copy.engine, time, f"data.{name}")
    return "the rules that fire in it cannot be told: the copy of the policy answers otherwise" if copied else ""


def _place(rule: Rule) -> dict[str, Any]:
    return {"file": rule.file, "line": rule.line, "column": rule.column, "name": rule.name}


def _lines(engine: Any) -> Iterator[dict[str, Any]]:
    for row in json.loads(engine.get_coverage_report_as_json())["files"]:
        if not row["path"].endswith("_test.rego"):
            yield {"file": row["path"], "covered": row["covered"], "missed": row["not_covered"]}
