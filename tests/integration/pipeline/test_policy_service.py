"""``PolicyService`` over real sockets: for auditors and operators, without consequence."""

from __future__ import annotations

from typing import Any

import pytest

from kblockd.authoring.recorded import Inputs, decisions
from kblockd.client.errors import PermissionDeniedError
from kblockd.domain.canonical import digest
from kblockd.store.database import open_view
from tests.harness import refund
from tests.integration.pipeline.local import LocalSite, ask, news, order, since, size, until

DECISION = "kblock/decision/result"


@pytest.fixture
def question(site: LocalSite) -> dict[str, Any]:
    """The input of a decision that the daemon made: a refund that waits for its approval."""
    mine = order()
    execution = ask(site, refund(mine, key=mine)).execution_id
    with open_view(site.data / "store") as view:
        recorded = next(one for one in decisions(view) if one.execution == execution)
        return dict(Inputs(view).question(recorded).document)


def test_evaluate_gives_the_decision_and_leaves_no_trace(site: LocalSite, question: dict[str, Any]) -> None:
    """The same answer as the pipeline got for the same input; no execution, no approval, no record."""
    before = size(site)
    with site.client("auditor") as auditor:
        answer = auditor.evaluate_policy(DECISION, question)
        in_force = auditor.policy_status()
    assert answer.result["effect"] == "require_approval"
    assert answer.result["approvals"] == {"count": 1, "roles": ["finance"]}
    assert answer.input_sha256 == digest(question)
    assert (answer.engine, answer.revision) == (in_force.engine, in_force.revision)
    assert answer.decision_id.startswith("decision_")
    assert answer.took_microseconds > 0
    assert news(site, before) == []


def test_explain_names_the_rules_that_fired(site: LocalSite, question: dict[str, Any]) -> None:
    before = size(site)
    with site.client("operator") as operator:
        explained = operator.explain_policy(DECISION, question)
        evaluated = operator.evaluate_policy(DECISION, question)
    assert explained.answer is not None
    assert explained.answer.result == evaluated.result
    assert (explained.failure, explained.revision) == ("", evaluated.revision)
    fired = {(rule.file, rule.name) for rule in explained.rules}
    assert ("decision.rego", "kblock.decision.result") in fired
    assert all(rule.line > 0 and rule.column > 0 for rule in explained.rules)
    assert not {rule.file for rule in explained.rules} & {"recovery.rego", "verification.rego"}
    assert news(site, before) == []


def test_status_says_what_is_in_force_and_since_when(site: LocalSite) -> None:
    """The activation is the one on record."""
    with site.client("auditor") as auditor:
        found = auditor.policy_status()
    assert (found.engine, found.ready, found.last_error) == ("embedded", True, "")
    assert found.activation is not None
    record = since(site, found.activation.ledger_index)[0]
    assert record["type"] == "policy.activated"
    body = record["body"]
    assert (found.activation.revision, found.activation.tests) == (body["revision"], body["tests"])
    assert found.activation.bundle_sha256 == body["bundle_sha256"]
    assert found.revision == body["revision"]


@pytest.mark.parametrize("who", ["agent", "lead"])
@pytest.mark.parametrize("method", ["evaluate_policy", "explain_policy", "policy_status"])
def test_agents_and_approvers_may_not_ask(site: LocalSite, who: str, method: str) -> None:
    """R110: whoever may ask for any input learns where the limits lie. The refusal is on record."""
    before = size(site)
    arguments = () if method == "policy_status" else (DECISION, {})
    with site.client(who) as client, pytest.raises(PermissionDeniedError) as refused:
        getattr(client, method)(*arguments)
    assert refused.value.reason == "PERMISSION_DENIED"
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused"])
    assert news(site, before)[0]["body"]["method"].startswith("/kblock.v1.PolicyService/")
