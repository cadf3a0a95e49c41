"""Everything again as configured now: what changed between decision and consumption refuses, and says which."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.client.answers import ApprovalPending, Completed, Denied
from kblockd.client.errors import (
    CallError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from kblockd.config import ConfigurationError
from kblockd.domain.envelope import BindingPin, TargetPin
from tests.harness import approve, refund, refund_contract
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    news,
    order,
    run_approved,
    size,
    types,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

WRONG = "0" * 64
MOMENT = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def own(payments: PaymentsServer) -> Iterator[LocalSite]:
    """A daemon whose configuration tests change; each leaves it as it was."""
    with LocalSite.make() as made:
        made.configure(
            payments.url,
            contracts=variants({"production": {}}),
            daemon={"clocks": LONG_LEASE},
            upstream=PATIENT_BREAKER,
        )
        made.pin()
        made.start()
        yield made


def refused(site: LocalSite, call: Any, reason: str) -> CallError:
    """The call is refused before anything is consumed."""
    with site.client() as agent, pytest.raises(CallError) as caught:
        agent.execute(call)
    error = caught.value
    assert error.reason == reason, error
    assert (error.executed, error.consumed) == (False, False)  # R673
    assert "othing was" in str(error) or "othing has been" in str(error)
    return error


def state(site: LocalSite, execution_id: str) -> str:
    """Of one execution."""
    with site.client() as agent:
        return agent.get(execution_id=execution_id).answer.state


PINS: list[tuple[dict[str, Any], str]] = [
    ({"requester": "local:other"}, "envelope.requester"),
    ({"agent": "local:other"}, "envelope.agent"),
    ({"tenant": "evil"}, "envelope.tenant"),
    ({"organization": "evil"}, "envelope.organization"),
    ({"binding": BindingPin(upstream="other")}, "envelope.binding.upstream"),
    ({"binding": BindingPin(tool="refund_all")}, "envelope.binding.tool"),
    ({"binding": BindingPin(server_version="3.1.9")}, "envelope.binding.server_version"),
    ({"binding": BindingPin(definition_sha256=WRONG)}, "envelope.binding.definition_sha256"),
    ({"policy_revision": WRONG}, "envelope.policy_revision"),
    ({"arguments_sha256": WRONG}, "envelope.arguments_sha256"),
    ({"approval_id": "apr_" + "0" * 32}, "envelope.approval_id"),
    ({"approval_expires_at": MOMENT}, "envelope.approval_expires_at"),
    ({"compensation_ref": "undo"}, "envelope.compensation_ref"),
]


@pytest.mark.parametrize(("pin", "field"), PINS, ids=[field for _, field in PINS])
def test_a_pin_that_differs_names_its_field(site: LocalSite, pin: dict[str, Any], field: str) -> None:
    """R030, R033, R036, R037: FAILED_PRECONDITION with the field; nobody is asked, nothing is an execution."""
    mine = order()
    before = size(site)
    error = refused(site, refund(mine, key=mine, **pin), "PIN_MISMATCH")
    assert isinstance(error, FailedPreconditionError)
    assert field in str(error)
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused"])
    with site.client() as agent, pytest.raises(NotFoundError):
        agent.get(caller_key=mine)


def test_pins_that_hold_change_nothing(site: LocalSite) -> None:
    """R030: every pin with the value that the daemon has now; the approval's own pins at the repeat."""
    mine = order()
    asked = ask(site, refund(mine, key=order()))
    proposed = body(site, asked.execution_id, "execution.proposed")
    pins = {
        "requester": "local:agent",
        "agent": "local:agent",
        "tenant": "acme",
        "policy_revision": proposed["policy_revision"],
        "binding": BindingPin("payments", proposed["tool_version"], "refund", proposed["definition_sha256"]),
    }
    call = refund(mine, key=mine, **pins)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
    done = refund(mine, key=mine, **pins, approval_id=pending.approval_id, approval_expires_at=shown.not_after)
    with site.client() as agent:
        assert isinstance(agent.execute(done), Completed)


def test_r014_a_target_that_differs_from_the_arguments_is_refused(site: LocalSite) -> None:
    """R014, R097: the target is derived; nothing is edited to fit."""
    mine = order()
    call = refund(mine, key=mine)
    other = call.of(
        "payment.refund.create",
        "production",
        target=order(),
        arguments=json.loads(call.envelope.arguments_json),
        key=mine,
    )
    with site.client() as agent, pytest.raises(InvalidArgumentError) as caught:
        agent.execute(other)
    assert caught.value.violations[0].field == "envelope.target"


def test_r086_the_reviewed_version_of_the_target_must_still_be_its_version(
    site: LocalSite, pay: PaymentsServer
) -> None:
    """R034, R086, R095, R105: compared before anybody is asked, and with the read of stage 7; the action stays
    approved when only a repeat names another version."""
    mine = order()
    fresh = refund(mine, key=mine)
    stale = fresh.of(
        "payment.refund.create",
        "production",
        target=TargetPin(id=mine, version="7"),
        arguments=json.loads(fresh.envelope.arguments_json),
        key=mine,
    )
    before = size(site)
    refused(site, stale, "PIN_MISMATCH")
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused"])
    pending = ask(site, fresh)
    approve(site, pending.approval_id)
    error = refused(site, stale, "PIN_MISMATCH")
    assert "envelope.target.version" in str(error)
    assert state(site, pending.execution_id) == "approved"
    assert effects(pay, mine) == []


def test_a_precondition_that_does_not_hold_consumes_nothing(site: LocalSite, pay: PaymentsServer) -> None:
    """R084, R087, R096: an order that does not exist; the approval is not used."""
    mine = "NONE" + order()
    pending = ask(site, refund(mine, key=mine))
    approve(site, pending.approval_id)
    before = size(site)
    error = refused(site, refund(mine, key=mine), "PRECONDITION_FAILED")
    assert "NOT_REFUNDABLE" in str(error)
    assert state(site, pending.execution_id) == "approved"
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused"])  # once, and nothing else
    assert effects(pay, mine) == []


def test_mcp_13_a_definition_that_changed_before_the_decision_asks_nobody(site: LocalSite, pay: PaymentsServer) -> None:
    """MCP-13, R032: not what was reviewed; no execution, no approval."""
    mine = order()
    before = size(site)
    pay.control(swap_definition="It may also close the account.")
    refused(site, refund(mine, key=mine), "TOOL_CHANGED")
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused"])
    pay.control(swap_definition="")
    assert ask(site, refund(mine, key=mine)).state == "pending_approval"  # the key is free


def test_mcp_13_a_definition_that_changed_after_the_approval_voids_the_action(
    site: LocalSite, pay: PaymentsServer
) -> None:
    """MCP-13, R073, R081: cancelled, nothing consumed; also when it changes back, since what was approved is void."""
    mine = order()
    pending = ask(site, refund(mine, key=mine))
    approve(site, pending.approval_id)
    pay.control(swap_definition="It may also close the account.")
    refused(site, refund(mine, key=mine), "BINDING_CHANGED")
    pay.control(swap_definition="")
    with site.client() as agent, site.client("lead") as lead:
        again = agent.execute(refund(mine, key=mine))
        assert isinstance(again, Denied)
        assert (again.state, again.code, again.consumed) == ("cancelled", "BINDING_CHANGED", False)
        assert lead.approval(pending.approval_id).state == "void"
    assert types(site, pending.execution_id)[-1] == "execution.cancelled"
    assert effects(pay, mine) == []


def test_a_contract_that_changed_after_the_decision_voids_the_action(own: LocalSite, pay: PaymentsServer) -> None:
    """R039, R073: another version of the contract is another agreement; a keyed repeat is told so for good."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    own.rewrite(lambda document: document.update(version=6), "actions/refund.production.yaml")
    own.restart()
    try:
        refused(own, refund(mine, key=mine), "BINDING_CHANGED")
        with own.client() as agent:
            assert agent.execute(refund(mine, key=mine)).state == "cancelled"
            assert isinstance(agent.execute(refund(mine, key=order())), ApprovalPending)  # a new decision
    finally:
        own.rewrite(lambda document: document.update(version=5), "actions/refund.production.yaml")
        own.restart()
    assert effects(pay, mine) == []


def test_r074_an_upstream_that_moved_after_the_decision_voids_the_action(own: LocalSite, pay: PaymentsServer) -> None:
    """R074, C13: another origin is another party."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    url = pay.url
    own.rewrite(lambda document: document.update(url=url.replace("127.0.0.1", "localhost")), "upstreams/payments.yaml")
    own.restart()
    try:
        refused(own, refund(mine, key=mine), "BINDING_CHANGED")
    finally:
        own.rewrite(lambda document: document.update(url=url), "upstreams/payments.yaml")
        own.restart()
    assert state(own, pending.execution_id) == "cancelled"


def test_r449_a_tool_without_a_reviewed_definition_does_not_run(own: LocalSite) -> None:
    """R449: the start is refused, with the tool's name; only development.unpinned_tools lets it run."""
    reviewed = (own.config.parent / "upstreams" / "payments.yaml").read_text()
    whole = own.config.read_text()
    own.rewrite(lambda document: document["tools"].pop("refund"), "upstreams/payments.yaml")
    try:
        with pytest.raises(ConfigurationError) as caught:
            own.restart()
        assert "the tool 'refund' has no reviewed definition" in str(caught.value)
        own.rewrite(lambda document: document["development"].update(unpinned_tools=True))
        own.start()
        assert isinstance(run_approved(own, refund(order(), key=order())), Completed)
    finally:
        (own.config.parent / "upstreams" / "payments.yaml").write_text(reviewed)
        own.config.write_text(whole)
        own.restart()


def test_r112_an_approver_who_is_gone_takes_the_approval_along(own: LocalSite, pay: PaymentsServer) -> None:
    """R082, R112, R392, APR-13: disabled between approval and consumption: refused, the action stays approved;
    active again: it runs, and nobody is asked a second time."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    file = own.config
    whole = file.read_text()

    def without_lead(document: dict[str, Any]) -> None:
        document["principals"] = [p for p in document["principals"] if p["id"] != "local:lead"]
        document["listeners"] = [one for one in document["listeners"] if one["principal"] != "local:lead"]

    own.rewrite(without_lead)
    own.restart()
    try:
        error = refused(own, refund(mine, key=mine), "PERMISSION_DENIED")
        assert isinstance(error, PermissionDeniedError)
        assert "local:lead" in str(error)
        assert state(own, pending.execution_id) == "approved"
    finally:
        file.write_text(whole)
        own.restart()
    with own.client() as agent:
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    assert types(own, pending.execution_id).count("approval.requested") == 1
    assert len(effects(pay, mine)) == 1


def test_r144_a_requester_who_is_gone_gets_nothing_and_runs_nothing(own: LocalSite, pay: PaymentsServer) -> None:
    """R036, R112, R144: without the principal its socket is gone; what it had approved waits, and nobody else can run
    it; a key belongs to the agent that used it."""
    mine, done = order(), order()
    with own.client("other") as other:
        pending = other.execute(refund(mine, key=mine))
        approve(own, other.execute(refund(done, key=done)).approval_id)
        stored = other.execute(refund(done, key=done))
        assert isinstance(stored, Completed)
    approve(own, pending.approval_id)
    whole = own.config.read_text()

    def without_other(document: dict[str, Any]) -> None:
        document["principals"] = [p for p in document["principals"] if p["id"] != "local:other"]
        document["listeners"] = [one for one in document["listeners"] if one["principal"] != "local:other"]

    own.rewrite(without_other)
    own.restart()
    try:
        for key in (mine, done):
            with own.client("other") as other, pytest.raises(CallError):
                other.execute(refund(key, key=key))
        assert not own.socket("other").exists()
        with own.client() as agent, pytest.raises(NotFoundError):
            agent.get(execution_id=pending.execution_id)
        with own.client("operator") as operator:
            assert operator.get(execution_id=pending.execution_id).answer.state == "approved"
    finally:
        own.config.write_text(whole)
        own.restart()
    with own.client("other") as other:
        assert other.execute(refund(done, key=done)).result_dsse == stored.result_dsse
        assert isinstance(other.execute(refund(mine, key=mine)), Completed)
    assert (len(effects(pay, mine)), len(effects(pay, done))) == (1, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"roles": []}, "APPROVAL_NOT_VALID", id="role-lost"),
        pytest.param({"owner": "team:support-bot"}, "APPROVAL_NOT_VALID", id="owner-is-the-requesters-now"),
    ],
)
def test_an_approver_who_may_no_longer_approve_does_not_count(
    own: LocalSite, change: dict[str, Any], reason: str
) -> None:
    """R082, R392: roles and owner as they are now."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    whole = own.config.read_text()

    def changed(document: dict[str, Any]) -> None:
        next(p for p in document["principals"] if p["id"] == "local:lead").update(change)

    own.rewrite(changed)
    own.restart()
    try:
        refused(own, refund(mine, key=mine), reason)
        assert state(own, pending.execution_id) == "approved"
    finally:
        own.config.write_text(whole)
        own.restart()


def test_what_was_answered_survives_a_restart(own: LocalSite, pay: PaymentsServer) -> None:
    """APR-13, IDM-11, R140: approved, denied, pending and done are the same after a restart."""
    approved, denied, waiting, done = (order() for _ in range(4))
    for target in (approved, denied, waiting):
        pending = ask(own, refund(target, key=target))
        if target != waiting:
            approve(own, pending.approval_id, "approve" if target == approved else "deny")
    before = run_approved(own, refund(done, key=done))
    own.restart()
    with own.client() as agent:
        said = agent.execute(refund(denied, key=denied))
        assert (said.state, said.code) == ("rejected", "APPROVAL_DENIED")
        assert isinstance(agent.execute(refund(waiting, key=waiting)), ApprovalPending)
        after = agent.execute(refund(done, key=done))
        assert (after.result_dsse, after.receipt_dsse, after.output_json) == (
            before.result_dsse,
            before.receipt_dsse,
            before.output_json,
        )
        assert isinstance(agent.execute(refund(approved, key=approved)), Completed)
    assert [len(effects(pay, target)) for target in (approved, denied, waiting, done)] == [1, 0, 0, 1]


def test_r143_a_keyed_repeat_is_resolved_before_anything_else(own: LocalSite) -> None:
    """R142, R143: without its contract the repeat of a finished call is UNKNOWN_TOOL."""
    mine = order()
    run_approved(own, refund(mine, key=mine))
    actions = own.config.parent / "actions" / "refund.production.yaml"
    whole = actions.read_text()
    actions.unlink()
    (actions.parent / "other.yaml").write_text(json.dumps(refund_contract({"action": {"environment": "staging"}})))
    own.restart()
    try:
        with own.client() as agent, pytest.raises(InvalidArgumentError) as caught:
            agent.execute(refund(mine, key=mine))
        assert caught.value.reason == "UNKNOWN_TOOL"
    finally:
        actions.write_text(whole)
        (actions.parent / "other.yaml").unlink()
        own.restart()
    with own.client() as agent:
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)


def test_apv_03_an_approval_ends_with_the_envelopes_deadline(site: LocalSite, pay: PaymentsServer) -> None:
    """APV-03, R025, R197: approved in time, run too late: expired, and the approval says until when it was good."""
    mine = order()
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    call = refund(mine, key=mine, deadline=deadline)
    pending = ask(site, call)
    with site.client("lead") as lead:
        assert lead.approval(pending.approval_id).not_after == deadline
    approve(site, pending.approval_id)
    until(lambda: dt.datetime.now(dt.UTC) > deadline)
    with site.client() as agent:
        answer = agent.execute(call)
    assert (answer.state, answer.executed, answer.consumed) == ("expired", False, False)
    assert effects(pay, mine) == []


def test_apv_03_the_deadline_passed_while_the_daemon_was_down(own: LocalSite, pay: PaymentsServer) -> None:
    """APV-03: neither the pending nor the approved one is shown as open or can be decided on, and the first sweep
    records their end; an approval without a deadline keeps its own term."""
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=4)
    waiting, approved, unbounded = (order() for _ in range(3))
    pending = {name: ask(own, refund(name, key=name, deadline=deadline)) for name in (waiting, approved)}
    pending[unbounded] = ask(own, refund(unbounded, key=unbounded))
    approve(own, pending[approved].approval_id)
    own.stop()
    until(lambda: dt.datetime.now(dt.UTC) > deadline)
    own.start()
    until(lambda: types(own, pending[waiting].execution_id)[-1] == "execution.expired")
    until(lambda: types(own, pending[approved].execution_id)[-1] == "execution.expired")
    with own.client("lead") as lead:
        shown = {view.approval_id for view in lead.approvals(["pending", "approved"]).items}
        assert pending[unbounded].approval_id in shown
        assert not shown & {pending[waiting].approval_id, pending[approved].approval_id}
        assert lead.approval(pending[waiting].approval_id).state == "expired"
    with pytest.raises(FailedPreconditionError) as late:
        approve(own, pending[waiting].approval_id)
    assert late.value.reason == "APPROVAL_NOT_VALID"
    assert effects(pay, approved) == []
