"""An approval is taken back: by whom, until when, and what everybody learns of it.

Between any two stages of the call that resumes the action: ``tests/integration/races``; around a death of the daemon:
``tests/crash/daemon``.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kblockd.client.answers import Answer, ApprovalPending, Completed, Denied
from kblockd.client.errors import (
    CallError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from tests.harness import approve, refund, revoke
from tests.integration.pipeline.local import (
    LocalSite,
    ask,
    body,
    effects,
    order,
    records,
    refund_in,
    run_approved,
    types,
)
from tests.upstreams.payments import PaymentsServer

WHY = "the customer has called again"


def refused(site: LocalSite, approval_id: str, who: str = "lead") -> CallError:
    """Why it could not be revoked."""
    error = revoke(site, approval_id, who)
    assert error is not None, "it was revoked"
    return error


def check_over(answer: Answer) -> None:
    """Nothing ran, nothing will, and the answer says why."""
    assert isinstance(answer, Denied), answer
    assert (answer.state, answer.code) == ("rejected", "APPROVAL_REVOKED")
    assert (answer.executed, answer.consumed) == (False, False)
    assert "revoked" in answer.detail


@pytest.mark.parametrize("approved", [False, True], ids=["pending", "approved"])
@pytest.mark.parametrize(
    ("who", "owner", "capacity"),
    [
        ("agent", "team:support-bot", "requester"),
        ("colleague", "team:support-bot", "requester"),
        ("insider", "team:support-bot", "requester"),
        ("lead", "person:lead", "approver"),
        ("deputy", "person:lead", "approver"),
        ("chief", "person:chief", "approver"),
        ("operator", "person:operator", "operator"),
    ],
)
def test_r108_revoked_before_its_use_nothing_runs(
    site: LocalSite, pay: PaymentsServer, who: str, owner: str, capacity: str, approved: bool
) -> None:
    """R108, R389: the requester's side, whoever could decide it or has, and an operator; recorded, and final."""
    mine = order()
    pending = ask(site, refund(mine, key=mine))
    if approved:
        approve(site, pending.approval_id)
    with site.client(who) as client:
        revoked = client.revoke(pending.approval_id, WHY)
    assert (revoked.approval_id, revoked.execution_id) == (pending.approval_id, pending.execution_id)
    with site.client() as agent:
        for _ in range(2):
            check_over(agent.execute(refund(mine, key=mine)))
    with site.client("lead") as lead:
        assert lead.approval(pending.approval_id).state == "revoked"
    found = records(site, pending.execution_id)
    decided = ["approval.decided"] if approved else []
    story = ["execution.proposed", "approval.requested", *decided, "approval.revoked", "execution.rejected"]
    assert [record["type"] for record in found] == story
    said = found[-2]["body"]
    assert (said["principal"], said["owner"], said["capacity"]) == (f"local:{who}", owner, capacity)
    [leaf] = site.reader.read_ledger(from_index=revoked.ledger_index, limit=1).leaves
    assert json.loads(leaf[1])["type"] == "approval.revoked"
    assert WHY not in json.dumps(found)
    assert effects(pay, mine) == []


@pytest.mark.parametrize(
    ("who", "kind"), [("counsel", PermissionDeniedError), ("auditor", PermissionDeniedError), ("other", NotFoundError)]
)
def test_r108_who_may_not_revoke(site: LocalSite, pay: PaymentsServer, who: str, kind: type[CallError]) -> None:
    """R108, C9: somebody with another role, an auditor, and an agent that did not ask: it still runs."""
    mine = order()
    pending = ask(site, refund(mine, key=mine))
    approve(site, pending.approval_id)
    assert isinstance(refused(site, pending.approval_id, who), kind)
    assert "approval.revoked" not in types(site, pending.execution_id)
    with site.client() as agent:
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    assert len(effects(pay, mine)) == 1


def test_r363_what_is_used_cannot_be_revoked(site: LocalSite, pay: PaymentsServer) -> None:
    """R363: whoever comes too late learns that it was consumed and done, and by which execution."""
    mine = order()
    done = run_approved(site, refund(mine, key=mine))
    late = refused(site, done.approval_id)
    assert isinstance(late, FailedPreconditionError)
    assert (late.reason, late.consumed, late.executed) == ("APPROVAL_NOT_VALID", True, True)
    assert late.execution_id == done.execution_id
    assert "look at the execution" in late.next_step
    assert "approval.revoked" not in types(site, done.execution_id)
    assert len(effects(pay, mine)) == 1


def test_a_repeat_finds_it_done_and_records_nothing(site: LocalSite) -> None:
    """As a second decision does: what is over says so, and that nothing was consumed."""
    denied, taken_back = (ask(site, refund(order(), key=order())) for _ in range(2))
    approve(site, denied.approval_id, "deny")
    assert revoke(site, taken_back.approval_id) is None
    for pending, state in ((denied, "denied"), (taken_back, "revoked")):
        before = types(site, pending.execution_id)
        again = refused(site, pending.approval_id)
        assert (again.reason, again.consumed, again.executed) == ("APPROVAL_NOT_VALID", False, False)
        assert f"is {state}" in str(again)
        assert types(site, pending.execution_id) == before


def test_what_is_revoked_is_not_decided_any_more(site: LocalSite) -> None:
    """With one of two approvals given, and then none can be added."""
    mine = order()
    call = refund_in("production", mine, key=mine, operation="payment.refund.pair")
    pending = ask(site, call)
    approve(site, pending.approval_id)
    assert revoke(site, pending.approval_id, "chief") is None
    for who in ("chief", "lead"):
        with pytest.raises(FailedPreconditionError, match="is revoked"):
            approve(site, pending.approval_id, who=who)
    with site.client() as agent:
        check_over(agent.execute(call))


def test_who_waits_for_the_approval_learns_of_it(site: LocalSite) -> None:
    """R361: in a wait of the client, and in the stream of the execution's records, which ends."""
    mine = order()
    call = refund(mine, key=mine)
    pending = ask(site, call)
    with site.client() as agent, site.client("operator") as operator, ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(agent.wait_for_approval, pending, 60.0)
        watching = threads.submit(lambda: [event.record_type for event in operator.watch(pending.execution_id)])
        assert revoke(site, pending.approval_id) is None
        check_over(waiting.result(60))
        assert watching.result(60)[-2:] == ["approval.revoked", "execution.rejected"]


def test_who_watches_need_not_ask_again(site: LocalSite) -> None:
    """Told by the time that the revocation is answered, not when the next look is due."""
    pending = ask(site, refund(order(), key=order()))
    assert site.daemon is not None
    changes = site.daemon.parts.changes

    async def told() -> bool:
        with changes.watching(pending.execution_id) as change:
            change.clear()
            assert await asyncio.to_thread(revoke, site, pending.approval_id) is None
            return change.is_set()

    assert site.run(told())


def test_idm_04_a_keyless_call_is_new_after_a_revocation(site: LocalSite, pay: PaymentsServer) -> None:
    """C29, R363: the open action is closed, so the identical call without a key asks anew, and needs a new approval;
    the old one is good for no other call."""
    mine = order()
    first = ask(site, refund(mine))
    approve(site, first.approval_id)
    assert revoke(site, first.approval_id, "agent") is None
    second = ask(site, refund(mine))
    assert isinstance(second, ApprovalPending)
    assert (second.execution_id != first.execution_id, second.approval_id != first.approval_id) == (True, True)
    with site.client() as agent, pytest.raises(FailedPreconditionError) as citing:
        agent.execute(refund(mine, key=mine, approval_id=first.approval_id))
    assert citing.value.reason == "PIN_MISMATCH"
    assert effects(pay, mine) == []


@pytest.mark.parametrize("reason", ["", " \n", "x" * 2001])
def test_a_revocation_says_why(site: LocalSite, reason: str) -> None:
    pending = ask(site, refund(order(), key=order()))
    with site.client("lead") as lead:
        with pytest.raises(InvalidArgumentError):
            lead.revoke(pending.approval_id, reason)
        assert lead.approval(pending.approval_id).state == "pending"


def test_an_unknown_approval_is_not_revoked(site: LocalSite) -> None:
    """R673: typed, and nothing is learnt."""
    assert isinstance(refused(site, "apr_" + "0" * 32), NotFoundError)


def test_the_reason_is_kept_beside_the_record(site: LocalSite) -> None:
    """R503: under its digest, as a deletable payload."""
    pending = ask(site, refund(order(), key=order()))
    assert revoke(site, pending.approval_id, reason=WHY) is None
    digest = body(site, pending.execution_id, "approval.revoked")["reason_sha256"]
    assert site.daemon is not None
    kept = site.run(site.daemon.parts.store.payload(("payload", pending.execution_id, digest)))
    assert (json.loads(kept)["kind"], json.loads(kept)["value"]) == ("reason", WHY)
