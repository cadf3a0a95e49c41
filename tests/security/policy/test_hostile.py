"""Hostile bundles and hostile inputs: none is an allowance, none outlives its limit, none hurts the daemon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.embedded.engine import check
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    HANG_SECONDS,
    PATIENT,
    children,
    deciding,
    document,
    files,
    package,
    running,
)

NESTED = "package kblock.decision\n\nresult := " + "(" * 60 + "1" + ")" * 60 + "\n"
DEEP = "package kblock.decision\n\nresult := " + "[" * 100_000 + "]" * 100_000 + "\n"
HUGE = "package kblock.decision\n\nresult := [" + "1, " * 200_000 + "1]\n"


@pytest.mark.parametrize("bomb", [NESTED, DEEP, HUGE], ids=["doubling", "deep", "huge"])
async def test_parser_bomb_is_refused_within_the_limits(bomb: str) -> None:
    started, before = time.monotonic(), children()
    with pytest.raises(BundleRefused):
        await check(Bundle.of(files(decision=bomb)), EmbeddedLimits(load_seconds=3.0))
    assert time.monotonic() - started < HANG_SECONDS / 2
    assert children() <= before


async def refusal(**changed: str) -> str:
    with pytest.raises(BundleRefused) as raised:
        await check(Bundle.of(files(**changed)), PATIENT)
    return str(raised.value)


async def test_undefined_network_builtin_never_becomes_an_allowance() -> None:
    """``http.send`` is a stub that is undefined, so ``not`` over it would allow."""
    call = 'http.send({"url": "http://127.0.0.1:1/", "method": "get"})'
    rule = f"result := {ALLOW} if {{\n\tanswer := {call}\n\tnot answer.blocked\n}}"
    assert "http.send may not be called" in await refusal(decision=package("decision", rule))


async def test_document_cannot_stand_in_for_a_rule() -> None:
    texts = files(data__json='{"kblock": {"decision": {"result": ' + ALLOW + "}}}")
    with pytest.raises(BundleRefused, match="data"):
        await check(Bundle.of(texts), PATIENT)


async def test_entry_point_cannot_be_a_function_or_a_set() -> None:
    assert "kblock/decision" in await refusal(decision="package kblock.decision\n\nimport rego.v1\n\nresult(x) := x\n")
    assert "kblock/decision" in await refusal(
        decision=f"package kblock.decision\n\nimport rego.v1\n\nresult contains {ALLOW}\n"
    )


async def test_test_module_cannot_carry_the_entry_point() -> None:
    texts = files(decision_test__rego=package("decision"))
    del texts["decision.rego"]
    with pytest.raises(BundleRefused, match="no rule `result`"):
        await check(Bundle.of(texts), PATIENT)


async def test_policy_text_is_not_taken_for_a_place() -> None:
    """An error text that looks like another place does not move the fault to another file."""
    text = (
        f'package kblock.decision\n\nimport rego.v1\n\nresult := {ALLOW} if "error: x\\n--> etc/passwd:1:1" == 1 / 0\n'
    )
    assert "decision.rego:5" in await refusal(decision=text)


HOSTILE = [
    {"__proto__": {"effect": "allow"}},
    {"result": {"effect": "allow"}, "data": {"kblock": {"decision": {"result": {"effect": "allow"}}}}},
    {"op": "load", "query": "data", "value": {"effect": "allow"}},
    {"\n": "\n{}\n", "a\0b": "\0"},
    {"text": "\u2028\u202e\ufeff" * 1000},
    {"deep": [[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]},
]


@pytest.mark.parametrize("args", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_input_is_denied_like_any_other(tmp_path: Path, args: dict) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        given = document("other", **args)
        assert (await engine.evaluate(DECISION, given)).result["effect"] == "deny"
        assert (await engine.evaluate(DECISION, {**given, **args})).result["effect"] == "deny"


@pytest.mark.parametrize("entrypoint", ["kblock/decision/result; true", "kblock/decision/result == 1", "true", "input"])
async def test_entry_point_is_not_a_query(tmp_path: Path, entrypoint: str) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        with pytest.raises(PolicyFailure) as raised:
            await engine.evaluate(entrypoint, document())
        assert raised.value.reason is Reason.POLICY_UNDEFINED


async def test_deeply_nested_input_is_a_denial_and_the_next_question_is_answered(tmp_path: Path) -> None:
    nested: list = []
    for _ in range(400):
        nested = [nested]
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        with pytest.raises(PolicyFailure):
            await engine.evaluate(DECISION, document(nested=nested))
        assert (await engine.evaluate(DECISION, document())).result["effect"] == "allow"


async def test_large_answer_is_a_denial(tmp_path: Path) -> None:
    rule = (
        'result := object.union(answer, {"reasons": [reason | some n in numbers.range(1, 200000); '
        'reason := {"code": "A", "message": format_int(n, 10)}]}) if input.action.type == "large"\n\n'
        f"answer := {ALLOW}"
    )
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, rule)) as engine:
        with pytest.raises(PolicyFailure) as raised:
            await engine.evaluate(DECISION, document("large"))
        assert raised.value.reason is Reason.POLICY_DOWN
        assert (await engine.evaluate(DECISION, document())).result["effect"] == "allow"


LEAKS = [
    "to_number(input.args.token) > 1",
    'object.get(input.args.token, "a", 1) == 1',
    'net.cidr_contains(input.args.token, "10.0.0.1")',
    'regex.match(concat("", [input.args.token, "("]), "a")',
    "time.parse_rfc3339_ns(input.args.token) > 1",
    "json.unmarshal(input.args.token) == 1",
    "base64.decode(input.args.token) == 1",
    'sprintf(concat("", ["%", input.args.token]), [1]) == 1',
    "input.args.token + 1 == 2",
    "data.kblock.decision.f(input.args.token)",
]


@pytest.mark.parametrize("condition", LEAKS)
async def test_error_text_carries_no_input(tmp_path: Path, condition: str) -> None:
    """Secrets never stand in errors: the source line and the values stay in the child."""
    rule = f"result := {ALLOW} if {condition}\n\nf(x) := 1 if to_number(x) > 1"
    async with running(tmp_path / "p", deciding(rule)) as engine:
        with pytest.raises(PolicyFailure) as raised:
            await engine.evaluate(DECISION, document(token="-hunter2`'\""))
        assert "decision.rego" in raised.value.message
        assert "hunter2" not in raised.value.message


async def test_input_nested_beyond_recursion_is_a_denial(tmp_path: Path) -> None:
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        with pytest.raises(PolicyFailure) as raised:
            await engine.evaluate(DECISION, document(nested=nested))
        assert raised.value.reason is Reason.POLICY_TYPE
