"""The replaced builtins against what OPA 1.22.3 answered (``make_vectors.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kblockd.policy.builtins.replacements import REPLACED, DecisionTime
from kblockd.policy.embedded.modules import Modules, evaluate, load

VECTORS = json.loads(Path(__file__).with_name("opa_vectors.json").read_text())


def differences(name: str) -> list[str]:
    """Calls of one builtin that the engine answers differently; an error of OPA must not have an answer here."""
    engine = load(Modules({}, {}), DecisionTime())
    expected = [*VECTORS["answers"], *([call, None] for call in VECTORS["undefined"])]
    found = []
    for call, value in expected:
        if call.startswith(name + "("):
            answer = evaluate(engine, DecisionTime(), call, b"{}")
            if ("error" not in answer) if value is None else (answer.get("value") != value):
                found.append(f"{call}: OPA {value!r}, here {answer}")
    return found


@pytest.mark.parametrize("name", sorted(REPLACED))
def test_replacement_answers_as_opa_does(name: str) -> None:
    assert any(call.startswith(name + "(") for call, _ in VECTORS["answers"]), f"no vector for {name}"
    assert differences(name) == []


def test_engine_alone_would_differ() -> None:
    """Why they are replaced: without the replacements the same vectors show differences."""
    import regorus

    engine = regorus.Engine()
    wrong = [
        call
        for call, value in VECTORS["answers"]
        if call.startswith(("glob.match", "regex."))
        and evaluate(engine, DecisionTime(), call, b"{}").get("value") != value
    ]
    assert len(wrong) > 10


@pytest.mark.parametrize(
    "call",
    [
        'sprintf("%d", [1.5])',
        'sprintf("%s", [1])',
        'sprintf("%d", ["a"])',
        'sprintf("%d", [])',
        'sprintf("%s", ["a", "b"])',
        'sprintf("%x", [1])',
        'sprintf("%v", [{1, 2}])',
        'sprintf("%v", [1234567.5])',
        'sprintf("%", ["a"])',
        'to_number("18446744073709551617")',
        'to_number("0x10")',
        'strings.replace_n({"": "x"}, "a")',
        'glob.match("[ab-c]", [], "a")',
        'glob.match("a", ["ab"], "a")',
        'regex.match("a", 1)',
        "time.now_ns()",
        "time.add_date(0, 0, 0, 0.5)",
        "floor(-0.5)",
        "ceil(-0.5)",
    ],
)
def test_what_would_differ_is_an_error(call: str) -> None:
    engine = load(Modules({}, {}), DecisionTime())
    assert "error" in evaluate(engine, DecisionTime(), call, b"{}")


def test_time_now_is_the_decision_time() -> None:
    time = DecisionTime()
    engine = load(Modules({}, {}), time)
    document = b'{"now": "2026-11-29T10:00:00.000001Z"}'
    assert evaluate(engine, time, "time.now_ns()", document) == {"value": 1795946400000001000}
    assert "error" in evaluate(engine, time, "time.now_ns()", b'{"now": 1}')
    assert "error" in evaluate(engine, time, "time.now_ns()", b"{}")
