"""What is unknown is looked up and never sent again; what is answered is proved or held."""

from __future__ import annotations

from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed, Held, UpstreamError
from kblockd.client.errors import AbortedError, CallError, FailedPreconditionError, NotFoundError, PermissionDeniedError
from kblockd.domain.outcome import Finding
from kblockd.upstream.adapter import Sent
from kblockd.upstream.adapter import ToolCall as UpstreamCall
from tests.harness import approve, refund
from tests.integration.pipeline.local import (
    LocalSite,
    ask,
    body,
    effects,
    in_background,
    order,
    records,
    refund_in,
    run_approved,
    statement,
    types,
    until,
)
from tests.upstreams.payments import PaymentsServer


def refund_by_hand(site: LocalSite, order_id: str) -> None:
    """Somebody else refunds the same order at the provider."""
    assert site.daemon is not None
    parts = site.daemon.parts
    arguments = {"order_id": order_id, "amount": "1.00", "currency": "EUR"}
    deadline = parts.clock.monotonic() + 30
    call = UpstreamCall("refund", arguments, "by-hand", "meta", "dev.kblockd/effect-key", deadline, None, {})
    assert site.run(parts.upstreams["payments"].write.invoke(call)).sent is Sent.ANSWERED


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"lose_answer_once": True}, id="connection-dropped"),
        pytest.param({"error_after_effect": True}, id="500"),
        pytest.param({"is_error_after_effect": True}, id="is-error"),
        pytest.param({"stall_seconds": 2.0}, id="stalled"),
    ],
)
def test_out_05_out_02_mcp_02_mcp_06_a_lost_answer_is_found_by_the_effect_key(
    site: LocalSite, pay: PaymentsServer, fault: dict[str, Any]
) -> None:
    """R182, R187, R188, R190, R218, R279: sent, no valid answer; unknown, and no second call although two attempts are
    allowed; the lookup finds the effect, the read proves it, and the detail says how."""
    mine = order()
    pay.control(**fault)
    done = run_approved(site, refund_in("impatient", mine, key=mine))
    assert isinstance(done, Completed)
    assert (done.result_class, done.outcome_unknown) == ("completed_verified", False)
    assert "found by its effect key" in done.detail
    assert [e["effect_key"] for e in effects(pay, mine)] == [
        body(site, done.execution_id, "execution.sent")["effect_key"]
    ]
    assert body(site, done.execution_id, "attempt.outcome")["class"] == "unknown_outcome"
    found = body(site, done.execution_id, "finding.reconciled")
    assert (found["finding"], found["by"]) == ("present", "effect_key")
    assert types(site, done.execution_id).count("execution.sent") == 1
    assert statement(done.result_dsse)["predicate"]["verification"]["outcome"] == "expected"


def test_an_error_answer_without_effect_is_looked_up_too(site: LocalSite, pay: PaymentsServer) -> None:
    """MCP-06, R210, R216, R238: an error proves nothing by itself; the lookup after finality proves absence. The
    detail is the daemon's own: the upstream's text is revealed by no contract."""
    mine = order()
    pay.control(refuse=True)
    answer = run_approved(site, refund(mine, key=mine))
    assert isinstance(answer, UpstreamError)
    assert (answer.state, answer.result_class, answer.executed) == ("failed", "failed_before_side_effect", False)
    assert answer.detail == f"{answer.code}: the call had no effect"  # R665
    assert body(site, answer.execution_id, "finding.reconciled")["finding"] == "absent"
    assert effects(pay, mine) == []


def test_an_error_is_believed_where_the_contract_says_that_errors_have_no_effect(
    site: LocalSite, pay: PaymentsServer
) -> None:
    """MCP-06: errors_are_effect_free, one attempt: failed_before_side_effect without a lookup."""
    mine = order()
    pay.control(refuse=True)
    answer = run_approved(site, refund_in("effect-free", mine, key=mine))
    assert (answer.state, answer.result_class) == ("failed", "failed_before_side_effect")
    assert "finding.reconciled" not in types(site, answer.execution_id)
    predicate = statement(answer.result_dsse)["predicate"]
    assert (predicate["state"], predicate["code"], predicate["attempts"]) == ("failed", answer.code, "1")


def test_a_proved_absence_allows_a_second_attempt_under_the_same_key(site: LocalSite, pay: PaymentsServer) -> None:
    """C14, R206, R207, R282: refused, proved absent, planned, sent again once; one effect key, one consumption."""
    mine = order()
    call = refund_in("twice", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    pay.control(refuse=True)
    running = in_background(site, call)
    until(lambda: "attempt.outcome" in types(site, pending.execution_id))
    pay.control(refuse=False)
    running.join(60)
    with site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    found = records(site, done.execution_id)
    sent = [r for r in found if r["type"] == "execution.sent"]
    assert [r["attempt"] for r in sent] == [1, 2]
    assert len({r["body"]["effect_key"] for r in sent} | {e["effect_key"] for e in effects(pay, mine)}) == 1
    claims = [r["body"] for r in found if r["type"] == "execution.claimed"]
    assert [c["again"] for c in claims] == [False, True]
    assert claims[0]["fence"]["counter"] < claims[1]["fence"]["counter"]
    assert body(site, done.execution_id, "recovery.planned")["recovery"] == "retry"


def test_out_02_an_abandoned_call_that_acts_late_is_not_doubled(site: LocalSite, pay: PaymentsServer) -> None:
    """VER-01, R187, R194: absent before finality proves nothing, so nobody sends again; the late effect is found."""
    mine = order()
    pay.control(stall_before_seconds=3.0)
    done = run_approved(site, refund_in("final-late", mine, key=mine))
    assert isinstance(done, Completed)
    assert len(effects(pay, mine)) == 1
    assert types(site, done.execution_id).count("execution.sent") == 1
    assert body(site, done.execution_id, "finding.reconciled")["finding"] == "present"


def test_without_any_lookup_the_unknown_is_held(site: LocalSite, pay: PaymentsServer) -> None:
    """R195, R268: nothing can prove it, so an operator must; no RESULT yet, no second deed meanwhile."""
    mine = order()
    pay.control(lose_answer_once=True)
    held = run_approved(site, refund_in("blind", mine, key=mine))
    assert isinstance(held, Held)
    assert (held.state, held.result_class, held.outcome_unknown) == ("held", "unknown_outcome", True)
    assert held.result_dsse == b""
    with site.client() as agent, pytest.raises(FailedPreconditionError) as twin:
        agent.execute(refund_in("blind", mine, key=order()))
    assert twin.value.reason == "TWIN_UNRESOLVED"
    with site.client("operator") as operator:
        sealed = operator.resolve(held.execution_id, Finding.PRESENT, "seen in the provider's books")
    assert (sealed.state, sealed.result_class) == ("succeeded", "completed_verified")
    assert len(effects(pay, mine)) == 1


def test_ver_01_ver_07_a_lagging_list_is_waited_for(site: LocalSite, pay: PaymentsServer) -> None:
    """R261 to R263: not seen yet is inconclusive, and read again until the bound."""
    mine = order()
    pay.control(list_lag_seconds=0.5)
    done = run_approved(site, refund(mine, key=mine))
    assert isinstance(done, Completed)
    assert done.result_class == "completed_verified"
    assert types(site, done.execution_id).count("execution.sent") == 1


def test_verification_that_is_not_required_ends_unverified(site: LocalSite, pay: PaymentsServer) -> None:
    """C19, R214: succeeded, but visibly not proved."""
    mine = order()
    pay.control(list_lag_seconds=3600)
    done = run_approved(site, refund_in("unproved", mine, key=mine))
    assert isinstance(done, Completed)
    assert done.result_class == "completed_unverified"
    assert statement(done.result_dsse)["predicate"]["resultClass"] == "completed_unverified"


@pytest.mark.parametrize("environment", ["production", "contained"])
def test_ver_06_a_prohibited_outcome_is_never_success(site: LocalSite, pay: PaymentsServer, environment: str) -> None:
    """R217, R281, R289: the authority shows a second refund: held, planned as the contract says; containment keeps the
    target locked, manual does not. An operator's "present" seals it as failed after the effect."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    approve(site, ask(site, call).approval_id)
    pay.control(stall_seconds=1.0)
    running = in_background(site, call)
    until(lambda: len(effects(pay, mine)) == 1)
    refund_by_hand(site, mine)
    running.join(60)
    with site.client() as agent:
        held = agent.execute(call)
    assert isinstance(held, Held)
    assert (held.result_class, held.code) == ("failed_after_side_effect", "DUPLICATE")
    planned = body(site, held.execution_id, "recovery.planned")
    assert planned["recovery"] == ("containment" if environment == "contained" else "manual")
    other = refund_in(environment, mine, key=order(), amount="5.00")
    approve(site, ask(site, other).approval_id)
    with site.client() as agent, pytest.raises(CallError) as refused:
        agent.execute(other)
    if environment == "contained":
        assert (type(refused.value), refused.value.reason) == (AbortedError, "TARGET_BUSY")
    else:
        assert refused.value.reason == "PRECONDITION_FAILED"
    with site.client("operator") as operator:
        sealed = operator.resolve(held.execution_id, Finding.PRESENT, "both are there")
    assert (sealed.state, sealed.result_class, sealed.code) == (
        "failed",
        "failed_after_side_effect",
        "PROHIBITED_OUTCOME",
    )
    with site.client() as agent, pytest.raises(FailedPreconditionError) as after:
        agent.execute(other)
    assert after.value.reason == "PRECONDITION_FAILED"  # the lock is gone, the order is refunded


@pytest.fixture
def held(site: LocalSite, pay: PaymentsServer) -> Answer:
    """An execution whose verification found nothing in time."""
    mine = order()
    pay.control(list_lag_seconds=3600)
    answer = run_approved(site, refund_in("brief", mine, key=mine))
    assert isinstance(answer, Held)
    return answer


def test_r268_lack_of_evidence_is_not_success(site: LocalSite, held: Answer) -> None:
    """C19, R214, R268: held, VERIFICATION_INCONCLUSIVE, no RESULT and no receipt; the repeat says the same."""
    assert (held.state, held.code, held.result_dsse, held.receipt_dsse) == (
        "held",
        "VERIFICATION_INCONCLUSIVE",
        b"",
        b"",
    )
    assert "result.sealed" not in types(site, held.execution_id)
    assert held.call is not None
    with site.client() as agent:
        again = agent.execute(held.call)
        assert isinstance(again, Held)
        assert (again.replayed, again.code) == (True, held.code)
    with site.client("auditor") as auditor, pytest.raises(CallError):
        auditor.receipt(held.execution_id)


@pytest.mark.parametrize(
    ("finding", "state", "result_class", "code"),
    [
        (Finding.PRESENT, "succeeded", "completed_verified", ""),
        (Finding.ABSENT, "failed", "failed_before_side_effect", "EFFECT_ABSENT"),
        (Finding.UNPROVABLE, "failed", "unknown_outcome", "OUTCOME_UNKNOWN"),
    ],
)
def test_an_operator_seals_what_is_held(
    site: LocalSite, held: Answer, finding: Finding, state: str, result_class: str, code: str
) -> None:
    """R195, R288: with a finding and a reason; the RESULT names the operator as its source."""
    with site.client("operator") as operator:
        sealed = operator.resolve(held.execution_id, finding, "looked at the provider's books")
    assert (sealed.state, sealed.result_class, sealed.code) == (state, result_class, code)
    assert sealed.outcome_unknown == (finding is Finding.UNPROVABLE)
    predicate = statement(sealed.result_dsse)["predicate"]
    assert (predicate["verification"]["source"], predicate["resultClass"]) == ("operator", result_class)
    resolved = body(site, held.execution_id, "execution.resolved")
    assert (resolved["operator"], resolved["finding"]) == ("local:operator", str(finding))
    assert "books" not in str(records(site, held.execution_id))
    events = statement(sealed.receipt_dsse)["predicate"]["events"]
    assert [e["type"] for e in events][-2:] == ["execution.resolved", "result.sealed"]
    assert ["index" in e for e in events][-3:] == [True, False, False]


def test_nobody_resolves_the_action_of_their_own_team(site: LocalSite, held: Answer) -> None:
    """C23: the operator's owner is not the requester's; an agent may not at all; a reason is needed."""
    with site.client("insider") as insider, pytest.raises(PermissionDeniedError) as refused:
        insider.resolve(held.execution_id, Finding.PRESENT, "believe me")
    assert "owner" in str(refused.value)
    with site.client() as agent, pytest.raises((PermissionDeniedError, NotFoundError)):
        agent.resolve(held.execution_id, Finding.PRESENT, "believe me")
    with site.client("operator") as operator, pytest.raises(CallError) as empty:
        operator.resolve(held.execution_id, Finding.PRESENT, "  ")
    assert empty.value.reason == "INVALID_FIELD"
    assert "execution.resolved" not in types(site, held.execution_id)


def test_rcp_11_a_disposition_frees_the_twin_and_changes_no_result(
    site: LocalSite, pay: PaymentsServer, held: Answer
) -> None:
    """C10, C23: a sealed unknown keeps its twin until somebody says what it was; the RESULT stays byte for byte."""
    assert held.call is not None
    mine = held.call.envelope.target.id
    again = refund_in("brief", mine, key=order())
    with site.client("operator") as operator, site.client() as agent:
        sealed = operator.resolve(held.execution_id, Finding.UNPROVABLE, "the provider does not answer")
        with pytest.raises(FailedPreconditionError) as twin:
            agent.execute(again)
        assert twin.value.reason == "TWIN_UNRESOLVED"
        disposed = operator.resolve(held.execution_id, Finding.PRESENT, "it answered a week later")
        assert (disposed.result_dsse, disposed.state) == (sealed.result_dsse, "failed")
        assert disposed.receipt_dsse == sealed.receipt_dsse
        replayed = agent.execute(held.call)
        assert replayed.result_dsse == sealed.result_dsse
        assert ask(site, again).state == "pending_approval"  # the twin is free
        recorded = [r["body"] for r in records(site, held.execution_id) if r["type"] == "disposition"]
        assert [r["finding"] for r in recorded] == ["present"]
