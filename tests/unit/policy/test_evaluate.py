"""A rule is asked directly where its answer is certain, and as a query where it is not: what comes out is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, evaluate, load

RULES = """package kblock.asked
import rego.v1
result := input.value
text := "<undefined>"
default always := {"effect": "deny"}
always := {"effect": "allow"} if input.value == 1
number := to_number(input.value)
twice := 1 if input.value
twice := 2 if input.value
few contains x if some x in input.value
"""


def asked(rule: str, document: Any) -> dict[str, Any]:
    """The answer of one rule."""
    time = DecisionTime()
    engine = load(Modules({"asked.rego": RULES}, {}), time)
    return evaluate(engine, time, f"data.kblock.asked.{rule}", json.dumps(document).encode())


@pytest.mark.parametrize(
    "value", [None, False, True, 0, 1, "", "<undefined>", "text", [], [1], {}, {"effect": "allow"}]
)
def test_pol_01_undefined_is_no_value_and_no_value_is_undefined(value: Any) -> None:
    """POL-01: whatever a rule answers comes back as it is, and undefined alone is undefined."""
    assert asked("result", {"value": value}) == {"value": value}
    assert asked("result", {}) == {"undefined": True}


def test_pol_01_a_text_that_says_undefined_is_a_text() -> None:
    assert asked("text", {}) == {"value": "<undefined>"}


def test_pol_01_a_rule_that_is_not_there_is_undefined() -> None:
    assert asked("nothing", {}) == {"undefined": True}
    assert asked("nothing.deeper", {}) == {"undefined": True}


def test_defaults_and_sets() -> None:
    assert asked("always", {}) == {"value": {"effect": "deny"}}
    assert asked("always", {"value": 1}) == {"value": {"effect": "allow"}}
    assert asked("few", {"value": [2, 1]}) == {"value": [1, 2]}


@pytest.mark.parametrize(("rule", "value"), [("number", "secret-7"), ("twice", True)])
def test_an_error_has_its_place_and_no_value(rule: str, value: Any) -> None:
    answer = asked(rule, {"value": value})
    assert answer["error"].startswith("asked.rego:")
    assert "secret" not in answer["error"]
