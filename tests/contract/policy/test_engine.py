"""What every engine answers, and what it refuses to answer. No test here knows which engine it is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kblockd.domain import canonical
from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyEngine, PolicyFailure
from kblockd.policy.deciding.entrypoints import AUTHZ, DECISION, ENTRYPOINTS
from tests.contract.policy.conftest import EngineWith
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    DENY,
    HANG_SECONDS,
    RUNAWAY,
    deciding,
    document,
    files,
    package,
)


async def failure_of(engine: PolicyEngine, given: dict[str, Any], entrypoint: str = DECISION) -> PolicyFailure:
    """The failure that a question ends in; an answer fails the test."""
    with pytest.raises(PolicyFailure) as raised:
        await engine.evaluate(entrypoint, given)
    return raised.value


async def test_allow_and_deny(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND))
    assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
    assert (await engine.evaluate(DECISION, document("other"))).result["effect"] == "deny"


async def test_every_entry_point_answers(engine_with: EngineWith) -> None:
    engine = await engine_with(files())
    for entrypoint in ENTRYPOINTS:
        assert (await engine.evaluate(entrypoint, document())).result["reasons"] == []


async def test_decision_says_what_decided_it(engine_with: EngineWith) -> None:
    """Engine, revision, id and input digest are what the ledger keeps (R019, R487)."""
    engine = await engine_with(deciding(ALLOW_REFUND))
    one, two = [await engine.evaluate(DECISION, document(memo="ä \U0001f4b6")) for _ in range(2)]
    assert one.entrypoint == DECISION
    assert one.engine == engine.status().engine
    assert one.revision == engine.status().revision
    assert len(one.revision) == 64
    assert one.decision_id != two.decision_id
    assert one.input_sha256 == two.input_sha256 == canonical.digest(document(memo="ä \U0001f4b6"))
    assert one.input_sha256 != (await engine.evaluate(DECISION, document(memo="a"))).input_sha256
    assert one.microseconds > 0


async def test_one_input_leaves_nothing_for_the_next(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND))
    for kind, effect in [("refund", "allow"), ("other", "deny")] * 5:
        assert (await engine.evaluate(DECISION, document(kind))).result["effect"] == effect
    assert (await engine.evaluate(DECISION, {})).result["effect"] == "deny"


async def test_pol_01_undefined_for_this_input_is_a_denial(engine_with: EngineWith) -> None:
    """R110: no decision is no permission."""
    partial = f'package kblock.decision\n\nimport rego.v1\n\nresult := {ALLOW} if input.action.type != "ghost"\n'
    engine = await engine_with(files(decision=partial))
    assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
    failure = await failure_of(engine, document("ghost"))
    assert failure.reason is Reason.POLICY_UNDEFINED
    assert (failure.entrypoint, failure.revision) == (DECISION, engine.status().revision)


@pytest.mark.parametrize("entrypoint", ["kblock/decision/nothing", "kblock/nothing/result", "kblock", "", "data"])
async def test_pol_01_missing_rule_or_package_is_a_denial(engine_with: EngineWith, entrypoint: str) -> None:
    engine = await engine_with(files())
    assert (await failure_of(engine, document(), entrypoint)).reason is Reason.POLICY_UNDEFINED


WRONG = {
    "missing key": '{"effect": "allow", "approvals": {"count": 0, "roles": []}, "reasons": []}',
    "extra key": ALLOW[:-1] + ', "more": 1}',
    "extra key below": ALLOW.replace('"roles": []', '"roles": [], "more": 1'),
    "unknown word": ALLOW.replace('"allow"', '"ALLOW"'),
    "boolean for word": ALLOW.replace('"allow"', "true"),
    "word for number": ALLOW.replace('"count": 0', '"count": "0"'),
    "boolean for number": ALLOW.replace('"count": 0', '"count": true'),
    "negative number": ALLOW.replace('"count": 0', '"count": -1'),
    "fraction": ALLOW.replace('"count": 0', '"count": 0.5'),
    "object for array": ALLOW.replace('"roles": []', '"roles": {}'),
    "number in array": ALLOW.replace('"roles": []', '"roles": [1]'),
    "null": "null",
    "true": "true",
    "array": f"[{ALLOW}]",
    "text": '"allow"',
    "reason without message": ALLOW.replace('"reasons": []', '"reasons": [{"code": "A"}]'),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_wrong_type_is_a_denial(engine_with: EngineWith, wrong: str) -> None:
    """The answer is well formed for the probe and not for this input, as a careless rule would be."""
    rule = f'result := answers[input.action.type]\n\nanswers := {{"probe": {DENY}, "wrong": {wrong}}}\n'
    engine = await engine_with(files(decision=f"package kblock.decision\n\nimport rego.v1\n\n{rule}"))
    assert (await failure_of(engine, document("wrong"))).reason is Reason.POLICY_TYPE


async def test_authz_wants_booleans(engine_with: EngineWith) -> None:
    wrong = '{"allow": "true", "tenants": ["*"], "agents": ["*"], "reasons": []}'
    engine = await engine_with(files(authz=package("authz", f'result := {wrong} if input.method == "x"')))
    failure = await failure_of(engine, {**document(), "method": "x"}, AUTHZ)
    assert failure.reason is Reason.POLICY_TYPE
    assert "allow must be a boolean" in failure.message


async def test_error_of_a_rule_is_a_denial_that_names_the_place(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(f"result := {ALLOW} if 1 / input.args.divisor == 1"))
    failure = await failure_of(engine, document(divisor=0))
    assert (failure.reason, failure.passing) == (Reason.POLICY_ERROR, False)
    assert "decision.rego:7" in failure.message
    assert (await engine.evaluate(DECISION, document(divisor=1))).result["effect"] == "allow"


async def test_two_different_answers_are_a_denial(engine_with: EngineWith) -> None:
    rules = [f'result := {ALLOW} if input.action.type == "both"', f'result := {DENY} if input.action.type == "both"']
    engine = await engine_with(deciding(*rules))
    assert (await failure_of(engine, document("both"))).reason is Reason.POLICY_ERROR


OF_ANOTHER_TYPE = {
    "contains": 'contains(input.args.memo, "x")',
    "lower": 'lower(input.args.memo) == "x"',
    "split": 'split(input.args.memo, ",")[0] == "x"',
    "to_number": "to_number(input.args.list) > 1",
    "time": "time.parse_rfc3339_ns(input.args.memo) > 1",
    "regex": 'regex.match("^a", input.args.memo)',
    "sum": "sum(input.args.memo) > 1",
}


@pytest.mark.parametrize("condition", OF_ANOTHER_TYPE.values(), ids=OF_ANOTHER_TYPE.keys())
async def test_agt_08_an_argument_of_another_type_is_an_error_of_the_rule(
    engine_with: EngineWith, condition: str
) -> None:
    """AGT-08: in both engines, and no engine is down: the next question is answered."""
    engine = await engine_with(
        deciding(
            ALLOW_REFUND,
            f'blocked if {{\n\tinput.action.type == "memo"\n\t{condition}\n}}',
            f'result := {ALLOW} if {{\n\tinput.action.type == "memo"\n\tnot blocked\n}}',
        )
    )
    failure = await failure_of(engine, document("memo", memo=7, list=[]))
    assert (failure.reason, failure.passing, failure.revision != "") == (Reason.POLICY_ERROR, False, True)
    assert "decision.rego:" in failure.message
    assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


LIMIT = [
    f"result := {ALLOW} if input.args.amount <= 9007199254740992",
    f"result := {ALLOW} if to_number(input.args.text) <= 9007199254740992",
]


async def test_pol_08_large_integers_are_exact_or_refused(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(*LIMIT))
    assert (await failure_of(engine, document(amount=9007199254740993))).reason is Reason.POLICY_TYPE
    exact = await engine.evaluate(DECISION, document(text="9007199254740993"))
    assert exact.result["effect"] == "deny"
    assert (await engine.evaluate(DECISION, document(text="9007199254740992"))).result["effect"] == "allow"
    assert (await engine.evaluate(DECISION, document(amount=9007199254740991))).result["effect"] == "allow"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 70, "\ud800", b"x", object()])
async def test_input_without_a_canonical_form_is_a_denial(engine_with: EngineWith, value: Any) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND))
    assert (await failure_of(engine, document(value=value))).reason is Reason.POLICY_TYPE


async def test_slow_policy_is_a_denial_in_time_and_the_next_question_is_answered(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND, RUNAWAY), evaluate_seconds=1.0)
    started = time.monotonic()
    failure = await failure_of(engine, document("slow"))
    assert failure.reason is Reason.POLICY_TIMEOUT
    assert time.monotonic() - started < HANG_SECONDS / 2
    assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


async def test_pol_11_slow_policy_does_not_block_the_loop(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND, RUNAWAY), evaluate_seconds=1.0)
    slow = [asyncio.create_task(failure_of(engine, document("slow"))) for _ in range(20)]
    turns = 0
    while not all(task.done() for task in slow):
        await asyncio.sleep(0)
        turns += 1
    assert {task.result().reason for task in slow} <= {Reason.POLICY_TIMEOUT, Reason.POLICY_DOWN}
    assert turns > 100


async def test_strings_cannot_forge_a_decision(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(f'result := {ALLOW} if input.args.code == "open"'))
    for text in ('open"', "open\0", 'x", "code": "open', '"}}, "args": {"code": "open"}}', "open\n", "\\u006fpen"):
        given = document(code=text, **{f'{text}", "code": "open': 1})
        assert (await engine.evaluate(DECISION, given)).result["effect"] == "deny"
    assert (await engine.evaluate(DECISION, document(code="open"))).result["effect"] == "allow"


async def test_decision_time_comes_from_the_input(engine_with: EngineWith) -> None:
    """A decision can be replayed: the same input, the same answer, whatever the clock says."""
    rule = f"result := {ALLOW} if time.parse_rfc3339_ns(input.now) < time.parse_rfc3339_ns(input.args.until)"
    engine = await engine_with(deciding(rule))
    later = document(until="2026-11-29T10:00:00.000001Z")
    assert (await engine.evaluate(DECISION, later)).result["effect"] == "allow"
    assert (await engine.evaluate(DECISION, document(until=later["now"]))).result["effect"] == "deny"


async def test_after_close_nothing_is_answered(engine_with: EngineWith) -> None:
    engine = await engine_with(deciding(ALLOW_REFUND))
    await engine.close()
    await engine.close()
    assert (await failure_of(engine, document())).reason is Reason.POLICY_DOWN
    assert not engine.status().ready
