"""What an approver is asked and shown, what stands under policy, and what reaches the agent, through a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from kblockd.cli.kblockctl import kblockctl
from kblockd.client.answers import Completed, Denied, UpstreamError
from kblockd.client.errors import CallError, FailedPreconditionError, PermissionDeniedError, UnavailableError
from kblockd.domain.answer import AnswerFault, Unreadable
from kblockd.upstream.adapter import Sent
from tests.harness import approve, refund, refund_contract, shipped
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    news,
    order,
    refund_in,
    run_approved,
    size,
    types,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

PASSED_BY_POLICY = refund_contract(
    {"action": {"type": "note.create", "risk_tier": "low", "environment": "staging"}, "intent": None}
)
PASSED_BY_POLICY.pop("intent")
PASSED_BY_POLICY["summary"] = "Note on {target.id}"


@pytest.fixture(scope="module")
def floored(payments: PaymentsServer) -> Iterator[LocalSite]:
    """Floors under policy: anybody of finance for what is low, two with the role legal for what is high."""
    with LocalSite.make() as made:
        contracts = {**variants({"production": {}}), "note": PASSED_BY_POLICY}
        made.configure(
            payments.url,
            contracts=contracts,
            daemon={
                "clocks": LONG_LEASE,
                "approval_floor": {"low": {"count": 1, "roles": ["finance"]}, "high": {"count": 0, "roles": []}},
            },
            upstream=PATIENT_BREAKER,
        )
        made.pin()
        made.start()
        yield made


def half(order_id: str, key: str) -> Any:
    """A refund of half of the order."""
    return refund_in("production", order_id, key=key, amount="50.00")


def told(site: LocalSite, *arguments: str, who: str = "lead") -> str:
    """What ``kblockctl`` prints."""
    done = CliRunner().invoke(kblockctl, ["--socket", str(site.socket(who)), *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


# The version of the target


def test_apv_05_the_version_read_at_the_request_is_shown_kept_and_compared(
    site: LocalSite, pay: PaymentsServer
) -> None:
    """Approved at version 1, version 2 at the execution: void with both named."""
    mine = order()
    first, second = refund_in("production", mine, key=order(), amount="40.00"), half(mine, order())
    asked = ask(site, second)
    with site.client("lead") as lead:
        view = lead.approval(asked.approval_id)
    assert (view.target_type, view.target_id, view.target_version, view.target_version_note) == ("order", mine, "1", "")
    assert body(site, asked.execution_id, "approval.requested")["target_version"] == "1"
    assert 'at version "1" when it was asked for' in " ".join(told(site, "approvals", asked.approval_id).split())
    approve(site, asked.approval_id)
    assert isinstance(run_approved(site, first), Completed)
    with site.client() as agent:
        with pytest.raises(FailedPreconditionError) as caught:
            agent.execute(second)
        assert (caught.value.reason, caught.value.executed, caught.value.consumed) == ("BINDING_CHANGED", False, False)
        assert "was at '1' when the approval was asked for and is at '2' now" in str(caught.value)
        again = agent.execute(second)
    assert isinstance(again, Denied)
    assert (again.state, again.code) == ("cancelled", "BINDING_CHANGED")
    with site.client("lead") as lead:
        assert lead.approval(asked.approval_id).state == "void"
    assert [effect["amount"] for effect in effects(pay, mine)] == ["40.00"]


def test_apv_05_the_digest_of_what_was_shown_covers_the_version(site: LocalSite, pay: PaymentsServer) -> None:
    """What was asked about version 1 and what is asked about version 2 cannot be decided by one reading."""
    mine = order()
    before = ask(site, half(mine, order()))
    with site.client("lead") as lead:
        old = lead.approval(before.approval_id)
        assert isinstance(run_approved(site, refund_in("production", mine, key=order(), amount="40.00")), Completed)
        new = lead.approval(ask(site, half(mine, order())).approval_id)
        assert (old.target_version, new.target_version) == ("1", "2")
        with pytest.raises(FailedPreconditionError, match="presented_sha256"):
            lead.decide(
                new.approval_id,
                action_sha256=new.action_sha256,
                presented_sha256=old.presented_sha256,
                verdict="approve",
            )


def test_apv_05_a_version_that_cannot_be_read_asks_nobody(floored: LocalSite, pay: PaymentsServer) -> None:
    """Nobody approves what could never run; the decision is on record with the refusal, and the key is free."""
    mine, before = order(), size(floored)
    parts = floored.daemon.parts  # type: ignore[union-attr]  # it runs
    whole = parts.upstreams["payments"].read.read

    async def lost(call: Any) -> Any:
        outcome = await whole(call)
        return outcome if call.tool != "get_order" else type(outcome)(type(outcome.sent).LOST, code="UPSTREAM_TIMEOUT")

    reader = parts.upstreams["payments"].read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader), "read", lambda self, call: lost(call))
        with floored.client() as agent, pytest.raises(UnavailableError) as caught:
            agent.execute(refund(mine, key=mine))
    assert (caught.value.reason, caught.value.retryable, caught.value.consumed) == ("UPSTREAM_UNAVAILABLE", True, False)
    assert "nobody was asked" in str(caught.value)
    until(lambda: [r["type"] for r in news(floored, before)] == ["call.refused"])
    [refused] = news(floored, before)
    assert (refused["stage"], refused["body"]["effect"]) == (3, "require_approval")
    assert ask(floored, refund(mine, key=mine)).state == "pending_approval"


@pytest.mark.parametrize(
    ("said", "refusal", "reason"),
    [
        (
            {"sent": Sent.LOST, "unreadable": Unreadable(AnswerFault.INTEGER, "/version")},
            FailedPreconditionError,
            "TARGET_UNREADABLE",
        ),
        ({"is_error": True, "code": "HTTP_404"}, UnavailableError, "UPSTREAM_UNAVAILABLE"),
    ],
)
def test_apv_05_a_version_that_no_repeat_can_read_is_not_retryable(
    floored: LocalSite, said: dict[str, Any], refusal: type[CallError], reason: str
) -> None:
    """As at stage 7: what cannot be kept is unreadable at its place, and what the upstream refuses stays refused."""
    parts = floored.daemon.parts  # type: ignore[union-attr]  # it runs
    whole = parts.upstreams["payments"].read.read

    async def other(call: Any) -> Any:
        outcome = await whole(call)
        return outcome if call.tool != "get_order" else replace(outcome, **said)

    mine = order()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(parts.upstreams["payments"].read), "read", lambda self, call: other(call))
        with floored.client() as agent, pytest.raises(refusal) as caught:
            agent.execute(refund(mine, key=mine))
    assert (caught.value.reason, caught.value.retryable, caught.value.consumed) == (reason, False, False)
    assert "nobody was asked" in str(caught.value)
    if reason == "TARGET_UNREADABLE":
        assert "unreadable at /version: an integer beyond 2^53-1" in str(caught.value)


def test_apv_05_a_call_that_is_denied_reads_nothing(floored: LocalSite, pay: PaymentsServer) -> None:
    mine = order()
    reader, reads = floored.daemon.parts.upstreams["payments"].read, []  # type: ignore[union-attr]
    whole = type(reader).read

    async def counted(self: Any, call: Any) -> Any:
        reads.append(call.tool)
        return await whole(self, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader), "read", counted)
        with floored.client() as agent:
            denied = agent.execute(refund(mine, amount="999999.00", key=mine))
            assert isinstance(denied, Denied)
            assert reads == []
        ask(floored, refund(mine, key=order()))
        assert reads == ["get_order"]


# Look-alikes


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("\u0410-1001", "U+0410 CYRILLIC CAPITAL LETTER A"),
        ("\u039a\u0391\u03a4\u0395", "U+039A GREEK CAPITAL LETTER KAPPA"),
        ("p\u0251ypal", "U+0251 LATIN SMALL LETTER ALPHA"),
    ],
)
def test_apv_06_a_look_alike_target_is_named_to_the_approver(site: LocalSite, target: str, named: str) -> None:
    pending = ask(site, refund(target, key=order()))
    with site.client("lead") as lead:
        view = lead.approval(pending.approval_id)
    assert any(w.startswith("target/id holds characters outside ASCII") and named in w for w in view.warnings)
    assert any(w.startswith("intent/order holds characters outside ASCII") and named in w for w in view.warnings)
    assert f"WARNING: target/id holds characters outside ASCII: {named[:20]}" in told(
        site, "approvals", view.approval_id
    )


def test_apv_06_blanks_in_a_target_are_shown_and_write_no_row(site: LocalSite) -> None:
    ask(site, refund(f"{order()}{' ' * 45}apr_0 x", key=order()))
    listed = told(site, "approvals", "--limit", "1")
    assert "␠×45apr_0" in listed.replace("\n    ↪ ", "")
    assert [line.split()[0][:4] for line in listed.splitlines() if not line.startswith(" ")] == ["appr", "apr_"]


# The floor


def test_the_floor_raises_what_policy_allows_and_everybody_is_told(floored: LocalSite, pay: PaymentsServer) -> None:
    """Record, approver's view and explanation say that the floor raised it; the folder of policies cannot lower it."""
    mine = order()
    note = refund_in("staging", mine, key=mine, operation="note.create")
    pending = ask(floored, note)
    proposed = body(floored, pending.execution_id, "execution.proposed")
    assert proposed["effect"] == "require_approval"
    assert proposed["floor"] == {
        "count": 1,
        "roles": ["finance"],
        "raised": True,
        "policy_effect": "allow",
        "policy_count": 0,
    }
    requested = body(floored, pending.execution_id, "approval.requested")
    assert (requested["count"], requested["roles"], requested["floor_roles"], requested["raised"]) == (
        1,
        [],
        ["finance"],
        True,
    )
    raised = "policy said allow; approval_floor.low raised it to 1 owner, each with one of the roles finance"
    with floored.client("lead") as lead, floored.client("counsel") as counsel:
        view = lead.approval(pending.approval_id)
        assert (view.count, view.roles, view.floor_roles, view.raised) == (1, (), ("finance",), raised)
        assert raised in " ".join(told(floored, "approvals", pending.approval_id).replace("↪", "").split())
        with pytest.raises(PermissionDeniedError, match="none of the roles that the approval floor asks for: finance"):
            counsel.decide(
                view.approval_id,
                action_sha256=view.action_sha256,
                presented_sha256=view.presented_sha256,
                verdict="approve",
            )
    assert effects(pay, mine) == []
    approve(floored, pending.approval_id)
    with floored.client() as agent:
        assert agent.execute(note).state != "pending_approval"
    assert "execution.claimed" in types(floored, pending.execution_id)


def test_policy_explain_says_what_the_floor_makes_of_the_answer(floored: LocalSite) -> None:
    document = {
        "v": "kblockd.policy/1",
        "now": "2026-12-01T00:00:00.000000Z",
        "principal": {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:bot", "roles": []},
        "action": {"type": "note.create", "risk_tier": "low", "environment": "staging"},
        "contract": None,
    }
    with floored.client("auditor") as auditor:
        found = auditor.explain_policy("kblock/decision/result", document)
        assert found.answer is not None
        assert found.answer.result["effect"] == "allow"
        assert found.ruling is not None
        assert (found.ruling.effect, found.ruling.count, found.ruling.floor_roles) == (
            "require_approval",
            1,
            ("finance",),
        )
        assert found.ruling.raised.startswith("policy said allow; approval_floor.low raised it")
        assert auditor.explain_policy("kblock/recovery/result", document).ruling is None
    file = floored.folder / "input.json"
    file.write_text(json.dumps(document))
    said = floored.command("policy", "eval", "--config", str(floored.config), "--input", str(file))
    assert "raised: policy said allow; approval_floor.low raised it to 1 owner" in said


def test_a_floor_that_rose_after_the_approval_voids_the_action(floored: LocalSite, pay: PaymentsServer) -> None:
    """Held against the approval again at stage 8: one of finance approved, the floor wants two with the role legal."""
    mine = order()
    pending = ask(floored, refund(mine, key=mine))
    assert body(floored, pending.execution_id, "execution.proposed")["floor"] is None
    approve(floored, pending.approval_id)
    floored.rewrite(lambda document: document["approval_floor"].update(high={"count": 2, "roles": ["legal"]}))
    floored.restart()
    try:
        with floored.client() as agent:
            with pytest.raises(CallError) as caught:
                agent.execute(refund(mine, key=mine))
            assert (caught.value.reason, caught.value.consumed) == ("APPROVAL_INSUFFICIENT", False)
            assert "approval floor of risk tier high asks for 2 approvals" in str(caught.value)
            assert agent.execute(refund(mine, key=mine)).code == "APPROVAL_INSUFFICIENT"
        assert types(floored, pending.execution_id)[-1] == "execution.cancelled"
        assert effects(pay, mine) == []
        other = order()
        raised = ask(floored, refund(other, key=other))
        with floored.client("lead") as lead:
            view = lead.approval(raised.approval_id)
        assert (view.count, view.roles, view.floor_roles) == (2, ("finance",), ("legal",))
    finally:
        floored.rewrite(lambda document: document["approval_floor"].update(high={"count": 0, "roles": []}))
        floored.restart()


def test_the_shipped_floor_asks_two_for_what_is_critical() -> None:
    floors = shipped("kblockd.yaml")["approval_floor"]
    assert floors["critical"] == {"count": 2, "roles": ["legal", "network", "records", "security"]}
    assert all(floors[tier] == {"count": 0, "roles": []} for tier in ("low", "medium", "high"))


# What the agent sees


def test_an_upstreams_text_and_a_policys_words_reach_no_caller(site: LocalSite, pay: PaymentsServer) -> None:
    """Codes only, in answers, lists and events; the words stay beside the records."""
    mine, denied = order(), order()
    pay.control(refuse=True)
    failed = run_approved(site, refund(mine, key=mine))
    assert isinstance(failed, UpstreamError)
    with site.client() as agent:
        refused = agent.execute(refund(denied, amount="999999.00", key=denied))
        assert (refused.code, refused.detail) == ("REFUND_LIMIT", "refused by policy: REFUND_LIMIT")
        story = agent.get(execution_id=failed.execution_id)
        listed = agent.list(page_size=5).items
    seen = repr((failed, refused, story, listed))
    assert "cannot be refunded" not in seen
    assert "beyond what may be refunded" not in seen
    kept = body(site, failed.execution_id, "attempt.outcome")["detail_sha256"]
    assert kept != ""
    data = site.run(site.daemon.parts.store.payload(("payload", failed.execution_id, kept)))  # type: ignore[union-attr]
    assert b"cannot be refunded" in data
