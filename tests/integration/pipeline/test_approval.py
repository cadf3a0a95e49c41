"""The story, and who may let it happen: requests, decisions, expiry, separation of duties."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.client.answers import ApprovalPending, Completed, Denied
from kblockd.client.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, PermissionDeniedError
from kblockd.domain.clock import parse_rfc3339
from kblockd.evidence import verify_offline
from tests.harness import approve, refund
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    order,
    records,
    refund_in,
    run_approved,
    statement,
    types,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

STORY = [
    "execution.proposed",
    "approval.requested",
    "approval.decided",
    "execution.claimed",
    "execution.sent",
    "attempt.outcome",
    "finding.verified",
    "result.sealed",
]


def test_the_story(site: LocalSite, pay: PaymentsServer, tmp_path: Path) -> None:
    """R359, R364, R116, R213, R468: asked, approved, called once more, done once, proved, signed, checked offline."""
    mine = order()
    pending = ask(site, refund(mine, key="story"))
    with site.client() as agent:
        again = agent.execute(refund(mine, key="story"))
    assert isinstance(again, ApprovalPending)
    assert (again.execution_id, again.replayed, again.consumed) == (pending.execution_id, True, False)
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
    assert shown.summary == f'Refund "100.00" "EUR" for order "{mine}"'
    assert json.loads(shown.arguments_json) == {"order_id": mine, "amount": "100.00", "currency": "EUR"}
    assert effects(pay, mine) == []
    approve(site, pending.approval_id)
    with site.client() as agent:
        assert agent.get(execution_id=pending.execution_id).answer.state == "approved"  # R359: nothing ran
        done = agent.execute(refund(mine, key="story"))
    assert isinstance(done, Completed)
    assert (done.result_class, done.executed, done.consumed, done.replayed) == ("completed_verified", True, True, False)
    assert done.output == {"output": {"refund_id": done.output["output"]["refund_id"], "status": "succeeded"}}
    [effect] = effects(pay, mine)
    assert effect["effect_key"] == statement(done.result_dsse)["predicate"]["effectKey"]
    assert types(site, done.execution_id) == STORY
    status, said = _verified_offline(site, done, tmp_path)
    assert (status, said["verdict"]) == (0, "verified")


def _verified_offline(site: LocalSite, done: Completed, place: Path) -> tuple[int, dict[str, object]]:
    """By the file alone, in a process that sees nothing of kblockd."""
    script = shutil.copy(verify_offline.__file__, place / "verify_offline.py")
    parts = {"result": done.result_dsse, "receipt": done.receipt_dsse, "proof": done.receipt_proof.encode()}
    command = [sys.executable, "-I", str(script), "--json", "--action", done.action_sha256, "--state", "succeeded"]
    for name, data in parts.items():
        (place / name).write_bytes(data)
        command += [f"--{name}", str(place / name)]
    keys = site.data / "keys"
    command += ["--root", str(keys / "root.pub.pem"), "--keyset", str(keys / "keyset.dsse.json")]
    environment = {"PATH": os.environ["PATH"]}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment, timeout=60, check=False)
    return ended.returncode, json.loads(ended.stdout)


def test_the_result_says_what_happened(site: LocalSite) -> None:
    """R470: the RESULT binds action, approval, target, policy and the verification; it names no operation that the
    upstream never named."""
    done = run_approved(site, refund(order(), key="result"))
    predicate = statement(done.result_dsse)["predicate"]
    claimed = body(site, done.execution_id, "execution.claimed")
    assert predicate["resultClass"] == "completed_verified"
    assert predicate["verification"]["source"] == "authoritative_read"
    assert predicate["policy"] == {"id": claimed["decision_id"], "digest": claimed["policy_revision"]}
    assert predicate["target"]["version"] == "1"
    assert predicate["approval"]["id"] == done.approval_id
    assert "operationId" not in predicate["upstream"]
    receipt = statement(done.receipt_dsse)["predicate"]
    assert [event["type"] for event in receipt["events"]] == STORY


def test_idm_11_a_denial_is_final_and_said_at_once(site: LocalSite, pay: PaymentsServer) -> None:
    """R388, R389: the approver's no closes the action; the repeat gets the same answer."""
    mine = order()
    pending = ask(site, refund(mine, key="denied"))
    approve(site, pending.approval_id, "deny")
    with site.client() as agent:
        first, second = agent.execute(refund(mine, key="denied")), agent.execute(refund(mine, key="denied"))
    for answer in (first, second):
        assert isinstance(answer, Denied)
        assert (answer.state, answer.code, answer.consumed, answer.executed) == (
            "rejected",
            "APPROVAL_DENIED",
            False,
            False,
        )
    assert effects(pay, mine) == []
    with pytest.raises(FailedPreconditionError) as late:
        approve(site, pending.approval_id)
    assert late.value.reason == "APPROVAL_NOT_VALID"


def test_idm_11_a_policy_denial_is_final_and_said_at_once(site: LocalSite) -> None:
    """R110: an action without a rule is denied and recorded whole; a keyless repeat is a new call (C29)."""
    mine = order()
    call = refund_in("production", mine, key=mine, operation="payment.refund.orphan")
    keyless = refund_in("production", mine, operation="payment.refund.orphan")
    with site.client() as agent:
        first, second = agent.execute(call), agent.execute(call)
        third, fourth = agent.execute(keyless), agent.execute(keyless)
    for answer in (first, second, third, fourth):
        assert isinstance(answer, Denied)
        assert (answer.state, answer.code, answer.consumed) == ("rejected", "NO_RULE", False)
        assert answer.detail == "refused by policy: NO_RULE"  # the code; policy's words are not for callers
    assert len({a.execution_id for a in (first, second)}) == 1
    assert len({a.execution_id for a in (first, third, fourth)}) == 3
    assert types(site, first.execution_id) == ["execution.proposed", "execution.rejected"]


def test_a_principal_of_all_tenants_cannot_execute(site: LocalSite) -> None:
    """R012: an action belongs to one tenant; who may not execute at all is refused by policy before that."""
    call = refund(order(), key="tenant")
    with site.client("chief") as chief, pytest.raises(PermissionDeniedError):
        chief.execute(call)
    with site.client("operator") as operator, pytest.raises(PermissionDeniedError) as refused:
        operator.execute(call)
    assert "all tenants" in str(refused.value)


@pytest.mark.parametrize("who", ["colleague", "operator"])
def test_apr_08_who_may_not_approve(site: LocalSite, who: str) -> None:
    """APR-08: the requester's own team, and somebody without the role; the approval stays pending."""
    mine = order()
    pending = ask(site, refund(mine, key=mine))
    with pytest.raises(PermissionDeniedError):
        approve(site, pending.approval_id, who=who)
    with site.client("lead") as lead:
        assert lead.approval(pending.approval_id).state == "pending"
    assert "approval.decided" not in types(site, pending.execution_id)


def test_apr_08_the_requester_cannot_approve(site: LocalSite) -> None:
    """APR-08: an agent cannot decide at all, and cannot even see the request."""
    pending = ask(site, refund(order(), key="self"))
    with site.client() as agent, pytest.raises(PermissionDeniedError):
        agent.decide(
            pending.approval_id, action_sha256=pending.action_sha256, presented_sha256="0" * 64, verdict="approve"
        )


@pytest.mark.parametrize("field", ["action_sha256", "presented_sha256"])
@pytest.mark.parametrize("value", ["", "0" * 64])
def test_a_decision_names_what_was_shown(site: LocalSite, field: str, value: str) -> None:
    """R040: without the digests, or with others, nothing is recorded."""
    mine = order()
    pending = ask(site, refund(mine, key=mine))
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
        digests = {"action_sha256": shown.action_sha256, "presented_sha256": shown.presented_sha256, field: value}
        with pytest.raises(FailedPreconditionError if value else InvalidArgumentError) as refused:
            lead.decide(pending.approval_id, **digests, verdict="approve")
        assert refused.value.reason == ("SHOWN_DIFFERS" if value else "INVALID_FIELD")
        assert lead.approval(pending.approval_id).state == "pending"


def test_two_distinct_owners_must_approve(site: LocalSite, pay: PaymentsServer) -> None:
    """``count`` counts owners. One owner's second account does not count, whoever is asked."""
    mine = order()
    call = refund_in("production", mine, key="pair", operation="payment.refund.pair")
    pending = ask(site, call)
    approve(site, pending.approval_id)
    with site.client() as agent:
        assert isinstance(agent.execute(call), ApprovalPending)
    with pytest.raises(FailedPreconditionError) as twice:
        approve(site, pending.approval_id, who="deputy")
    assert twice.value.reason == "APPROVAL_NOT_VALID"
    approve(site, pending.approval_id, who="chief")
    with site.client() as agent:
        done = agent.execute(call)
    assert (done.state, done.result_class) == ("succeeded", "completed_unverified")
    assert len(effects(pay, mine)) == 1


def test_one_no_outweighs_one_yes(site: LocalSite, pay: PaymentsServer) -> None:
    """With two approvers, a denial closes the action at once."""
    mine = order()
    call = refund_in("production", mine, key="pair-no", operation="payment.refund.pair")
    pending = ask(site, call)
    approve(site, pending.approval_id)
    approve(site, pending.approval_id, "deny", who="chief")
    with site.client() as agent:
        assert isinstance(agent.execute(call), Denied)
    assert effects(pay, mine) == []


def test_apr_01_an_approval_holds_for_its_own_action_only(site: LocalSite, pay: PaymentsServer) -> None:
    """APR-01, R040: another key citing the approval is refused; the approved one runs once."""
    mine = order()
    pending = ask(site, refund(mine, key="cited"))
    approve(site, pending.approval_id)
    with site.client() as agent:
        with pytest.raises(FailedPreconditionError) as refused:
            agent.execute(refund(mine, key="citing", approval_id=pending.approval_id))
        assert refused.value.reason == "PIN_MISMATCH"
        done = agent.execute(refund(mine, key="cited", approval_id=pending.approval_id))
        assert isinstance(done, Completed)
        with pytest.raises(FailedPreconditionError):
            agent.execute(refund(mine, key="citing-late", approval_id=pending.approval_id))
    assert len(effects(pay, mine)) == 1


def test_an_unknown_approval_is_not_found(site: LocalSite) -> None:
    """R673: typed, and nothing is learnt."""
    with site.client("lead") as lead, pytest.raises(NotFoundError):
        lead.approval("apr_" + "0" * 32)


@pytest.fixture(scope="module")
def hasty(payments: PaymentsServer) -> Iterator[LocalSite]:
    """Approvals of three seconds, and a sweep that does not come in time."""
    with LocalSite.make() as made:
        clocks = {**LONG_LEASE, "approval_ttl_seconds": 3, "sweep_seconds": 240}
        made.configure(
            payments.url, contracts=variants({"production": {}}), daemon={"clocks": clocks}, upstream=PATIENT_BREAKER
        )
        made.pin()
        made.start()
        yield made


def test_apr_04_apr_10_apr_12_what_has_expired_is_over(hasty: LocalSite, pay: PaymentsServer) -> None:
    """R360, R657, R392: by the check itself. A late approve is refused, and an approved action that nobody ran has
    lapsed: TASK_EXPIRED, never consumed."""
    waiting, allowed = order(), order()
    undecided, decided = ask(hasty, refund(waiting, key="w")), ask(hasty, refund(allowed, key="a"))
    approve(hasty, decided.approval_id)
    with hasty.client("lead") as lead:
        until(lambda: lead.approval(undecided.approval_id).state == "expired")
        until(lambda: lead.approval(decided.approval_id).state == "expired")
        with pytest.raises(FailedPreconditionError) as late:
            approve(hasty, undecided.approval_id)
        assert (late.value.reason, "expired" in str(late.value)) == ("APPROVAL_NOT_VALID", True)
        for over in (undecided, decided):
            with pytest.raises(FailedPreconditionError, match="expired"):
                lead.revoke(over.approval_id, "too late")
        assert lead.approvals(["pending", "approved"]).items == ()
    with hasty.client() as agent:
        for key, target in (("w", waiting), ("a", allowed)):
            answer = agent.execute(refund(target, key=key))
            assert isinstance(answer, Denied)
            assert (answer.state, answer.code, answer.consumed) == ("expired", "TASK_EXPIRED", False)
        assert agent.get(execution_id=decided.execution_id).answer.state == "expired"
    assert effects(pay, waiting) + effects(pay, allowed) == []
    for over in (undecided, decided):
        assert "approval.revoked" not in types(hasty, over.execution_id)
    assert types(hasty, decided.execution_id)[-1] == "execution.expired"


def test_apr_06_a_callers_short_wait_decides_nothing(site: LocalSite) -> None:
    """APR-06, R361: the waiter gives up, the approval stands, the identical call runs."""
    mine = order()
    pending = ask(site, refund(mine, key="short", wait_seconds=0.0))
    with site.client() as agent, pytest.raises(TimeoutError):
        agent.wait_for_approval(pending, timeout_seconds=0.05)
    approve(site, pending.approval_id)
    with site.client() as agent:
        assert isinstance(agent.execute(refund(mine, key="short")), Completed)


def test_the_decision_is_signed_and_recorded(site: LocalSite) -> None:
    """APR-08: the recorded approver is the authenticated one; the statement binds what was shown and when."""
    pending = ask(site, refund(order(), key="signed"))
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
        decided = lead.decide(
            pending.approval_id,
            action_sha256=shown.action_sha256,
            presented_sha256=shown.presented_sha256,
            verdict="approve",
            reason="as agreed with the customer",
        )
    predicate = statement(decided.approval_dsse)["predicate"]
    assert (predicate["approver"], predicate["owner"], predicate["signedBy"]) == ("local:lead", "person:lead", "daemon")
    assert predicate["presentedSha256"] == shown.presented_sha256
    assert parse_rfc3339(predicate["notAfter"]) == shown.not_after
    recorded = [r for r in records(site, pending.execution_id) if r["type"] == "approval.decided"]
    assert [r["body"]["approver"] for r in recorded] == ["local:lead"]
    assert "customer" not in json.dumps(recorded)
