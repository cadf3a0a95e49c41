"""A decision with the rules that fired: the same report from both engines, and never a guess."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.authoring.explain import explain_by as explain
from kblockd.domain.canonical import canonical
from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.deciding.entrypoints import AUTHZ, DECISION, PRECONDITIONS, RECOVERY, VERIFICATION
from kblockd.policy.deciding.evaluator import Evaluator
from kblockd.policy.deciding.explanation import Explanation
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import ALLOW, ALLOW_REFUND, CountingIds, RealClock, children, deciding, document
from tests.integration.policy.observers import observer
from tests.unit.policy.test_shipped import FOLDER, refund

BOTH = pytest.mark.parametrize("engine", ["embedded", "opa"])


async def explained(
    engine: str, run_dir: Path, bundle: Bundle, given: Any, entrypoint: str = DECISION, *, quoting: bool = False
) -> Explanation:
    """By one engine; afterwards neither process nor file is left."""
    evaluator = Evaluator(engine, RealClock(), CountingIds())
    before = children(), children(mark=b"opa")
    try:
        return await explain(bundle, entrypoint, given, observer(engine, run_dir, quoting=quoting), evaluator)
    finally:
        assert (children(), children(mark=b"opa")) == before
        assert list(run_dir.iterdir()) == []


def places(found: Explanation) -> list[str]:
    """Of the rules that fired."""
    return [str(rule) for rule in found.rules]


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Inputs that take different ways through the shipped policies."""
    yield DECISION, refund(approval=None, snapshot=None)
    yield DECISION, {}
    yield PRECONDITIONS, refund(snapshot={**refund()["snapshot"], "refunded": "5.00"})
    yield VERIFICATION, refund(read={"refunds": [{"refund_id": "rf_1", "amount": "25.00", "currency": "EUR"}]})
    yield RECOVERY, refund(outcome={"class": "unknown_outcome"}, finding={"finding": "absent", "verdict": ""})
    yield AUTHZ, {**document(), "principal": {"id": "a", "kind": "agent", "tenant": "t", "owner": "o", "roles": []}}


async def test_both_engines_tell_the_same_rules_of_the_shipped_policies(tmp_path: Path) -> None:
    bundle = read(FOLDER)
    seen = set()
    for entrypoint, given in questions():
        one = await explained("embedded", tmp_path, bundle, given, entrypoint)
        two = await explained("opa", tmp_path, bundle, given, entrypoint)
        assert places(one) == places(two), (entrypoint, given)
        assert (one.value, one.reason) == (two.value, two.reason)
        seen |= set(places(one))
    assert len(seen) > 20  # many different ways, or equality would say little


@BOTH
async def test_the_rules_name_file_line_and_column(engine: str, tmp_path: Path) -> None:
    """One line may hold a rule and its ``else``; what did not hold is not there."""
    rules = [ALLOW_REFUND, 'r if input.args.a == 1 else := "x" if input.args.a == 2 else := 3', "q if r"]
    texts = deciding(*rules, f"result := {ALLOW} if {{\n\tinput.args.z\n\tr == 3\n}}")
    found = await explained(engine, tmp_path, Bundle.of(texts), document("other", z=True))
    assert places(found) == [
        "decision.rego:9:57: kblock.decision.r (else)",
        "decision.rego:13:1: kblock.decision.result",
    ]
    assert found.decision is not None
    assert (found.decision.engine, found.decision.result["effect"]) == (engine, "allow")
    other = await explained(engine, tmp_path, Bundle.of(texts), document("other"))
    assert places(other) == ["decision.rego:5:1: kblock.decision.result (default)"]


GUARDED = 'is_string(input.args.b)\n\tstartswith(input.args.b, "x")'


@BOTH
async def test_pol_01_undefined_is_an_answer_of_its_own_and_the_rules_are_still_told(
    engine: str, tmp_path: Path
) -> None:
    """R109: nobody takes an undefined rule for an allowance, and one sees how far it came."""
    text = f"package kblock.decision\n\nimport rego.v1\n\nresult := {ALLOW} if known\n\nknown if input.args.a\n"
    bundle = Bundle.of({**deciding(), "decision.rego": text})
    found = await explained(engine, tmp_path, bundle, document())
    assert (found.decision, found.reason, found.value, places(found)) == (None, Reason.POLICY_UNDEFINED, None, [])
    half = Bundle.of(
        {
            **deciding(),
            "decision.rego": text.replace("if known", f"if {{\n\tknown\n\t{GUARDED}\n}}", 1),
        }
    )
    found = await explained(engine, tmp_path, half, document(a=1, b="y"))
    assert (found.reason, len(places(found))) == (Reason.POLICY_UNDEFINED, 1)


@BOTH
async def test_an_answer_of_another_type_is_shown_and_is_no_decision(engine: str, tmp_path: Path) -> None:
    bundle = Bundle.of(deciding('result := {"effect": "allow"} if input.args.a'))
    found = await explained(engine, tmp_path, bundle, document(a=1))
    assert (found.decision, found.reason) == (None, Reason.POLICY_TYPE)
    assert found.value == {"effect": "allow"}
    assert found.failure is not None
    assert "approvals is missing" in found.failure.message


@BOTH
async def test_an_error_quotes_the_input_only_for_whoever_gave_it(engine: str, tmp_path: Path) -> None:
    bundle = Bundle.of(deciding(f"result := {ALLOW} if to_number(input.args.a) > 1"))
    given = document(a="s3cret")
    for quoting in (False, True):
        found = await explained(engine, tmp_path, bundle, given, quoting=quoting)
        assert (found.reason, found.failure is not None) == (Reason.POLICY_ERROR, True)
        message = found.failure.message if found.failure else ""
        assert "decision.rego:7" in message or quoting
        assert "s3cret" not in message or quoting


@BOTH
async def test_a_bundle_that_does_not_load_is_refused_with_its_place(engine: str, tmp_path: Path) -> None:
    bundle = Bundle.of(deciding("result := nobody(1) if input.args.a"))
    with pytest.raises(BundleRefused) as refused:
        await explained(engine, tmp_path, bundle, document())
    assert {(fault.file, fault.line) for fault in refused.value.faults} == {("decision.rego", 7)}


@BOTH
async def test_neither_network_nor_clock_is_there_while_explaining(engine: str, tmp_path: Path) -> None:
    bundle = Bundle.of(deciding('x := http.send({"method": "GET", "url": "http://127.0.0.1:1"})'))
    with pytest.raises(BundleRefused, match=r"http\.send may not be called"):
        await explained(engine, tmp_path, bundle, document())


async def test_what_is_explained_is_the_input_as_it_would_be_digested(tmp_path: Path) -> None:
    found = await explained("embedded", tmp_path, Bundle.of(deciding()), json.loads(canonical(document())))
    assert found.decision is not None
    assert found.revision == found.decision.revision
    with_float = await explained("embedded", tmp_path, Bundle.of(deciding()), {"a": float("nan")})
    assert (with_float.reason, with_float.rules) == (Reason.POLICY_TYPE, ())
