"""Which rules fire, by a copy of the bundle that says so: the answer stays, the places are the original's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kblockd.authoring.embedded.instrumented import InstrumentedCopy
from kblockd.authoring.embedded.runs import explain
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, evaluate, load

RULES = """package a

import rego.v1
import data.lib
import data.lib.word as v
import data.lib.word as w

default p := "none"

p := "one" if input.n == 1

p := `two` if {
	input.n == 2
} else := "three" if {
	input.n == 3
} else := lib.word if input.n == 4

default f(_) := 0

f(x) := x + 1 if x > 5

s contains "é" if input.n == 1

s contains {"k": w} if input.n == 2

o[key] := {"v": value} if some key, value in input.o

b if input.n == 1

b if {
	input.n == 2
} else if { input.n == 3 } else := false

table := {"x"} | {"y"}

r.q.z := f(input.n)

hidden := word if {
	v := {"word": "local"}
	word := v.word
}

refused if not b
"""
LIB = """package lib

import rego.v1

word := "w" if true

unasked if input.n > 0
"""


def fired(given: Any, query: str) -> list[str]:
    """What fires, once the copy was seen to answer as the original does."""
    time = DecisionTime()
    modules = Modules({"a.rego": RULES, "lib.rego": LIB}, {})
    plain, firing = load(modules, time), InstrumentedCopy(modules, time)
    document = json.dumps(given).encode()
    answer = evaluate(plain, time, f"data.a.{query}", document, quoting=True)
    assert "error" not in answer
    assert evaluate(firing.engine, time, f"data.a.{query}", document, quoting=True) == answer
    return [f"{rule.file}:{rule.line}:{rule.column} {rule.kind}" for rule in firing.fired()]


@pytest.mark.parametrize(
    ("given", "query", "rules"),
    [
        ({"n": 0}, "p", ["a.rego:8:1 default"]),
        ({"n": 1}, "p", ["a.rego:10:1 rule"]),
        ({"n": 2}, "p", ["a.rego:12:1 rule"]),
        ({"n": 3}, "p", ["a.rego:14:3 else"]),
        ({"n": 4}, "p", ["a.rego:16:3 else", "lib.rego:5:1 rule"]),
        ({"n": 1}, "s", ["a.rego:22:1 rule"]),
        ({"n": 2}, "s", ["a.rego:24:1 rule", "lib.rego:5:1 rule"]),
        ({"o": {"x": 1}}, "o", ["a.rego:26:1 rule"]),
        ({"o": {}}, "o", []),
        ({"n": 3}, "b", ["a.rego:32:3 else"]),
        ({"n": 9}, "b", ["a.rego:32:28 else"]),
        ({}, "table", ["a.rego:34:1 value"]),
        ({"n": 7}, "r.q.z", ["a.rego:20:1 rule", "a.rego:36:1 value"]),
        ({"n": 1}, "r.q.z", ["a.rego:18:1 default", "a.rego:36:1 value"]),
        ({}, "hidden", ["a.rego:38:1 rule"]),
        ({"n": 2}, "refused", ["a.rego:30:1 rule"]),
        ({"n": 9}, "refused", ["a.rego:32:28 else", "a.rego:43:1 rule"]),
    ],
)
def test_every_kind_of_rule_fires_where_it_stands(given: Any, query: str, rules: list[str]) -> None:
    """One line may hold several heads; an imported package is not computed as a whole; a local name hides an import."""
    assert fired(given, query) == rules


def test_a_copy_that_answers_otherwise_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides is never the copy; a difference is said, not papered over."""
    monkeypatch.setattr(InstrumentedCopy, "_note", lambda self, number: False)
    header = {"entrypoint": "a/b", "document": '{"n": 1}'}
    reply = explain(Modules({"a.rego": RULES, "lib.rego": LIB}, {}), DecisionTime(), header)
    assert "the copy of the policy answers otherwise" in reply["error"]
