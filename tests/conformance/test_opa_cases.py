"""OPA's own cases through the embedded engine, its linter and its replacements.

Each gives OPA's answer or is refused, at load or at evaluation. A silent difference fails, save those of
``known_differences.json``, each with its reason; an entry that no longer differs fails too.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import cases
from tests.conformance.cases import Case
from tests.conformance.lane import answers

KNOWN: dict[str, str] = json.loads(Path(__file__).with_name("known_differences.json").read_text())

# So that a linter that refuses everything, or a child that never starts, does not pass for conformance.
# Cases of builtins that the linter refuses, because the engines differ somewhere, count as refused.
AT_LEAST_THE_SAME = 1050
AT_MOST_KILLED = 0


def verdict(case: Case, answer: dict[str, Any]) -> str:
    """One word for the table; ``differs`` and ``OPA refuses, answered`` are the silent ones."""
    error = "want_error" in case.want or "want_error_code" in case.want
    if "rows" not in answer:
        how = {"refused": "refused at load", "error": "refused at evaluation", "killed": "ended its child"}
        return "same refusal" if error else how[next(iter(answer))]
    if error:
        return "OPA refuses, answered"
    return "same" if same(case, answer["rows"]) else "differs"


def same(case: Case, rows: list[dict[str, Any]]) -> bool:
    """Bindings of all answers, in any order; where OPA's run sorts inside bindings, so does this."""
    if "want_result" not in case.want:
        return bool(rows) is case.want["want_defined"]
    read = unordered if case.want.get("sort_bindings") else text
    return sorted(map(read, rows)) == sorted(map(read, case.want["want_result"] or []))


def text(value: Any) -> str:
    """3 and 3.0 differ, and so do 1 and true."""
    return json.dumps(value, sort_keys=True)


def unordered(value: Any) -> str:
    """``text`` with every array sorted."""

    def deep(value: Any) -> Any:
        if isinstance(value, list):
            return sorted(map(deep, value), key=text)
        return {key: deep(item) for key, item in value.items()} if isinstance(value, dict) else value

    return text(deep(value))


@pytest.mark.timeout(300)
def test_every_case_of_opa_is_answered_alike_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = cases.read()
    run = [case for case in found if not case.term]  # an input that is no JSON cannot reach the daemon
    verdicts = [(case.note, verdict(case, answer)) for case, answer in zip(run, answers(run), strict=True)]
    table = Counter(said for _, said in verdicts)
    with capsys.disabled():
        print(
            f"\nOPA {cases.VERSION}: {len(found)} cases, {len(found) - len(run)} with an input that is no JSON, not run"
        )
        for name, number in table.most_common():
            print(f"  {number:5} {name}")
    silent = {note for note, said in verdicts if said in ("differs", "OPA refuses, answered")}
    assert silent == set(KNOWN)
    assert table["same"] >= AT_LEAST_THE_SAME
    assert table["ended its child"] <= AT_MOST_KILLED


def test_a_difference_would_be_seen() -> None:
    """The comparison itself: each of these is silent in a looser one."""

    def case(**want: Any) -> Case:
        return Case("n", "data.p = x", (), {}, None, False, False, want)

    assert verdict(case(want_result=[{"x": 3}]), {"rows": [{"x": 3}]}) == "same"
    assert verdict(case(want_result=[{"x": 3}]), {"rows": [{"x": 3.0}]}) == "differs"
    assert verdict(case(want_result=[{"x": 1}]), {"rows": [{"x": True}]}) == "differs"
    assert verdict(case(want_result=[{"x": [1, 2]}]), {"rows": [{"x": [2, 1]}]}) == "differs"
    assert verdict(case(want_result=[{"x": [1, 2]}], sort_bindings=True), {"rows": [{"x": [2, 1]}]}) == "same"
    assert verdict(case(want_result=[]), {"rows": [{}]}) == "differs"
    assert verdict(case(want_defined=True), {"rows": []}) == "differs"
    assert verdict(case(want_error_code="eval_conflict_error"), {"rows": []}) == "OPA refuses, answered"
    assert verdict(case(want_error="x"), {"error": "y"}) == "same refusal"
