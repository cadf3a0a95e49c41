"""The policies that are shipped: they pass the checks of the engine and their own tests, and play the demo."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.deciding import PolicyEngine, entrypoints
from kblockd.policy.deciding.entrypoints import AUTHZ, DECISION, PRECONDITIONS, RECOVERY, VERIFICATION
from kblockd.policy.deciding.samples import SAMPLES
from kblockd.policy.embedded import acceptance
from kblockd.policy.embedded.engine import check
from kblockd.policy.embedded.modules import Modules, load
from tests.contract.policy.support import PATIENT, document, kind_of, opa_binary

FOLDER = Path(__file__).parents[3] / "config" / "policy"


@pytest.fixture
def bundle() -> Bundle:
    return read(FOLDER)


@pytest.fixture(params=["embedded", "opa"])
async def engine(request: pytest.FixtureRequest, bundle: Bundle) -> AsyncIterator[PolicyEngine]:
    """The shipped policies mean the same in both."""
    with kind_of(request.param) as kind:
        engine = kind.engine()
        await engine.activate(bundle)
        yield engine
        await engine.close()


def refund(**changed: Any) -> dict[str, Any]:
    """The demo's call at stage 8, before the effect."""
    return {
        **document("payment.refund.create", order_id="7", amount="25.00", currency="EUR"),
        "contract": {
            "reads": {"snapshot": {"tool": "get_order", "version": "/version"}},
            "preflight": {"require_current_resource_version": True},
            "verification": {"expected": {"refunds": 1}, "tolerated": {}, "prohibited": {"duplicate_operation": True}},
            "recovery": {
                "transient_failure": "retry_same_idempotency_key",
                "partial_completion": "contain_then_evaluate",
                "verification_failure": "manual",
            },
        },
        "approval": {
            "id": "apr_1",
            "state": "approved",
            "count": 1,
            "roles": ["finance"],
            "approvers": [{"id": "local:lead", "owner": "person:lead", "roles": ["finance"]}],
            "not_before": "2026-11-29T09:55:00.000000Z",
            "not_after": "2026-11-29T10:05:00.000000Z",
        },
        "snapshot": {
            "order_id": "7",
            "exists": True,
            "version": 1,
            "status": "paid",
            "amount": "100.00",
            "currency": "EUR",
            "refunded": "0.00",
        },
        **changed,
    }


async def test_shipped_policies_pass_lint_probes_and_their_own_tests(bundle: Bundle) -> None:
    assert (await check(bundle, PATIENT)).tests == sum(
        text.count("\ntest_") for name, text in bundle.modules.items() if name.endswith("_test.rego")
    )


def test_every_rule_of_the_shipped_policies_is_reached_by_a_test(bundle: Bundle) -> None:
    time = DecisionTime()
    engine = load(Modules(bundle.modules, {}), time)
    engine.set_enable_coverage(True)
    for name in acceptance._heads(json.loads(engine.get_ast_as_json())):
        if ".test_" in name:
            engine.set_input_json("{}")
            engine.eval_query_as_json(name)
    report = json.loads(engine.get_coverage_report_as_json())
    missed = {
        row["path"]: row["not_covered"]
        for row in report["files"]
        if row["not_covered"] and not row["path"].endswith("_test.rego")
    }
    assert missed == {}


@pytest.mark.parametrize("command", [["check", "--strict"], ["test"], ["fmt", "--fail"]], ids=["check", "test", "fmt"])
def test_opa_itself_agrees(command: list[str]) -> None:
    """The same tests in the real OPA: the policies mean the same in both engines."""
    done = subprocess.run([opa_binary(), *command, str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_probe_inputs_get_nothing(engine: PolicyEngine) -> None:
    for sample in map(json.loads, SAMPLES):
        assert (await engine.evaluate(DECISION, sample)).result["effect"] == "deny"
        assert (await engine.evaluate(PRECONDITIONS, sample)).result["stands"] is False


async def test_demo_refund_from_decision_to_verification(engine: PolicyEngine) -> None:
    """R105, R110: a refund by an agent waits for finance, and happens while the order is as it was."""
    effect = entrypoints.decision((await engine.evaluate(DECISION, refund(approval=None, snapshot=None))).result)
    assert (effect.effect, effect.count, effect.roles) == ("require_approval", 1, ("finance",))
    held = entrypoints.preconditions((await engine.evaluate(PRECONDITIONS, refund())).result)
    assert (held.ok, held.stands, held.reasons) == (True, True, ())
    for refunds, verdict in [
        ([], "inconclusive"),
        ([{"refund_id": "rf_1", "amount": "25.00", "currency": "EUR", "effect_key": "k"}], "expected"),
        ([{"refund_id": "rf_1", "amount": "52.00", "currency": "EUR", "effect_key": "k"}], "prohibited"),
        (
            [{"refund_id": f"rf_{n}", "amount": "25.00", "currency": "EUR", "effect_key": ""} for n in (1, 2)],
            "prohibited",
        ),
    ]:
        given = refund(read={"refunds": refunds})
        assert (await engine.evaluate(VERIFICATION, given)).result["verdict"] == verdict


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"snapshot": None}, "NO_SNAPSHOT"),
        ({"envelope": {"target": {"version": "9"}}}, "VERSION_CHANGED"),
        ({"snapshot": {**refund()["snapshot"], "refunded": "5.00"}}, "ALREADY_REFUNDED"),
        ({"args": {"amount": "100.01", "currency": "EUR"}}, "AMOUNT"),
    ],
)
async def test_preconditions_name_what_does_not_hold(engine: PolicyEngine, changed: dict, code: str) -> None:
    """R103, R105, R107."""
    result = (await engine.evaluate(PRECONDITIONS, refund(**changed))).result
    assert result["ok"] is False
    assert code in [reason["code"] for reason in result["reasons"]]
    assert result["stands"] is True


@pytest.mark.parametrize(
    "approval",
    [
        None,
        {**refund()["approval"], "state": "revoked"},
        {**refund()["approval"], "not_after": "2026-11-29T10:00:00.000000Z"},
        {**refund()["approval"], "approvers": []},
        {**refund()["approval"], "approvers": [{"id": "x", "owner": "team:bot", "roles": ["finance"]}]},
    ],
)
async def test_decision_does_not_stand_without_its_approval(engine: PolicyEngine, approval: Any) -> None:
    """R094, R114 and C27: asked again at stage 8, with the approval as it is then."""
    assert (await engine.evaluate(PRECONDITIONS, refund(approval=approval))).result["stands"] is False


@pytest.mark.parametrize(
    ("outcome", "finding", "recovery"),
    [
        ({"class": "failed_before_side_effect", "attempts": 1}, None, "retry"),
        ({"class": "failed_before_side_effect", "attempts": 2}, None, "manual"),
        ({"class": "unknown_outcome", "attempts": 1}, None, "manual"),
        ({"class": "unknown_outcome", "attempts": 1}, {"finding": "absent", "verdict": ""}, "retry"),
        ({"class": "unknown_outcome", "attempts": 1}, {"finding": "unprovable", "verdict": ""}, "manual"),
        ({"class": "partially_completed", "attempts": 1}, None, "containment"),
        ({"class": "failed_after_side_effect", "attempts": 1}, None, "manual"),
    ],
)
async def test_recovery_repeats_only_what_provably_was_not_done(
    engine: PolicyEngine, outcome: dict, finding: Any, recovery: str
) -> None:
    """R205, R216, R282, R291."""
    full = {"code": "", "maximum_attempts": 2, "marker": True, "irreversible": False, **outcome}
    given = refund(outcome=full, finding=finding)
    assert (await engine.evaluate(RECOVERY, given)).result["recovery"] == recovery


@pytest.mark.parametrize(
    ("kind", "roles", "method", "tenants", "agents"),
    [
        ("agent", [], "ExecutionService/Execute", ["acme"], ["local:x"]),
        ("agent", ["operator"], "ExecutionService/Resolve", [], []),
        ("agent", [], "LedgerService/Read", [], []),
        ("person", ["finance"], "ApprovalService/Decide", ["acme"], ["*"]),
        ("person", [], "ApprovalService/Decide", [], []),
        ("agent", [], "ApprovalService/Revoke", ["acme"], ["local:x"]),
        ("person", ["finance"], "ApprovalService/Revoke", ["acme"], ["*"]),
        ("person", ["operator"], "ApprovalService/Revoke", ["acme"], ["*"]),
        ("person", ["auditor"], "ApprovalService/Revoke", [], []),
        ("person", ["operator"], "ExecutionService/Resolve", ["acme"], ["*"]),
        ("person", ["operator"], "LedgerService/GetReceipt", ["acme"], ["*"]),
        ("person", ["auditor"], "LedgerService/Read", ["acme"], ["*"]),
        ("person", ["auditor"], "ExecutionService/Execute", [], []),
        ("person", ["auditor"], "PolicyService/Evaluate", ["acme"], ["*"]),
        ("person", ["operator"], "PolicyService/Explain", ["acme"], ["*"]),
        ("person", ["finance"], "PolicyService/Evaluate", [], []),
        ("agent", [], "PolicyService/GetStatus", [], []),
        ("person", ["policy-editor"], "PolicyService/SetCandidate", ["acme"], ["*"]),
        ("person", ["policy-editor"], "PolicyService/Evaluate", ["acme"], ["*"]),
        ("person", ["policy-editor"], "ExecutionService/Get", [], []),
        ("person", ["auditor"], "PolicyService/SetCandidate", [], []),
        ("person", ["auditor"], "PolicyService/GetCandidate", [], []),
    ],
)
async def test_authz_filters_rows(
    engine: PolicyEngine, kind: str, roles: list[str], method: str, tenants: list[str], agents: list[str]
) -> None:
    principal = {"id": "local:x", "kind": kind, "tenant": "acme", "owner": "o", "roles": roles}
    given = {**document(), "principal": principal, "method": f"/kblock.v1.{method}"}
    answer = entrypoints.authz((await engine.evaluate(AUTHZ, given)).result)
    assert (answer.allow, list(answer.tenants), list(answer.agents)) == (bool(tenants), tenants, agents)
