"""``policy test`` and the real ``opa test``: the same tests pass and fail, and coverage says the same of each rule."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kblockd.authoring.trials import Trials
from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import ALLOW, deciding, opa_binary, write
from tests.integration.policy.observers import runner
from tests.unit.policy.test_shipped import FOLDER

BOTH = pytest.mark.parametrize("engine", ["embedded", "opa"])
RULES = [
    "refused if input.args.bad",
    "refused if { input.args.worse == 1 } else if input.args.worst",
    f"result := {ALLOW} if not refused",
    "table := {1, 2}",
    "unasked(x) := x + 1",
]
TESTS = """package kblock.decision_test

import data.kblock.decision
import rego.v1

test_good if decision.result.effect == "allow" with input as {"args": {"bad": false}}

test_bad if not decision.result.effect == "allow" with input as {"args": {"bad": true}}

test_that_fails if decision.table == {1}

todo_test_later if false

test_that_raises if to_number("x") == 1
"""


def verdicts(found: Trials) -> dict[str, bool]:
    """By name."""
    return {test.name: test.passed for test in found.tests}


def by_opa(folder: Path) -> dict[str, bool]:
    """What `opa test` itself says of the files as they are."""
    command = [opa_binary(), "test", "--format=json", str(folder)]
    rows = json.loads(subprocess.run(command, capture_output=True).stdout)
    return {
        f"{row['package'].removeprefix('data.')}.{row['name']}": not (row.get("fail") or row.get("error"))
        for row in rows
        if not row.get("skip")
    }


async def test_the_shipped_tests_pass_alike_and_coverage_says_the_same(tmp_path: Path) -> None:
    bundle = read(FOLDER)
    embedded = await runner("embedded", tmp_path).test(bundle, "")
    opa = await runner("opa", tmp_path).test(bundle, "")
    assert verdicts(embedded) == verdicts(opa) == by_opa(FOLDER)
    assert not embedded.failed
    assert len(embedded.tests) > 50
    assert (embedded.rules, embedded.never_fired) == (opa.rules, opa.never_fired)
    assert embedded.rule_percent == opa.rule_percent > 90
    # Each engine has its own idea of a line: OPA counts every line that an expression or a head takes.
    assert abs(embedded.line_percent - opa.line_percent) < 10
    assert {lines.file for lines in embedded.lines} == {lines.file for lines in opa.lines} == set(bundle.deciding())


@BOTH
async def test_failures_and_rules_that_never_fire_have_their_places(engine: str, tmp_path: Path) -> None:
    texts = {**deciding(*RULES), "decision_test.rego": TESTS}
    found = await runner(engine, tmp_path).test(Bundle.of(texts), "")
    assert verdicts(found) == by_opa(write(tmp_path / "files", texts))
    assert [(test.name.rpartition(".")[2], test.line, test.column) for test in found.failed] == [
        ("test_that_fails", 10, 1),
        ("test_that_raises", 14, 1),
    ]
    assert [str(rule) for rule in found.never_fired if rule.file == "decision.rego"] == [
        "decision.rego:9:1: kblock.decision.refused",
        "decision.rego:9:38: kblock.decision.refused (else)",
    ]
    fired = [str(rule) for rule in found.fired]
    assert "decision.rego:5:1: kblock.decision.result (default)" in fired
    assert "decision.rego:7:1: kblock.decision.refused" in fired
    assert not any("table" in rule.name for rule in found.rules)


@BOTH
async def test_a_line_that_was_looked_at_is_not_a_rule_that_fired(engine: str, tmp_path: Path) -> None:
    """The honest measure: a refusal that no test ever provoked is a covered line."""
    texts = deciding("refused if input.args.bad\n", f"result := {ALLOW} if {{\n\tnot refused\n\tinput.method\n}}")
    texts["a_test.rego"] = TESTS.split("\ntest_bad")[0].replace('{"bad": false}', '{"bad": false}, "method": "m"')
    found = await runner(engine, tmp_path).test(Bundle.of(texts), "")
    assert not found.failed
    (lines,) = [each for each in found.lines if each.file == "decision.rego"]
    assert 7 in lines.covered
    assert [rule.line for rule in found.never_fired if rule.file == "decision.rego"] == [5, 7]


@BOTH
async def test_only_the_tests_that_are_asked_for_run(engine: str, tmp_path: Path) -> None:
    texts = {**deciding(*RULES), "decision_test.rego": TESTS}
    found = await runner(engine, tmp_path).test(Bundle.of(texts), "test_(good|nothing)")
    assert verdicts(found) == {"kblock.decision_test.test_good": True}
    assert found.rule_percent < 50


async def test_a_pattern_that_is_none_and_a_runaway_test_are_refused(tmp_path: Path) -> None:
    bundle = Bundle.of({**deciding(), "a_test.rego": "package a_test\nimport rego.v1\ntest_a if true\n"})
    with pytest.raises(BundleRefused, match="not a regular expression"):
        await runner("embedded", tmp_path).test(bundle, "(")
