"""What a policy does that changes, fails or answers nonsense: refused with the reason that names it, or it decides
nothing. The first word of the order id makes the rules of this site misbehave at one stage."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.authoring.recorded import Inputs, decisions
from kblockd.client.answers import Completed, Denied, Held
from kblockd.client.calls import Call
from kblockd.client.errors import CallError, FailedPreconditionError, UnavailableError
from kblockd.domain.canonical import digest
from kblockd.domain.clock import rfc3339
from kblockd.domain.envelope import TargetPin
from kblockd.domain.stages import Stage
from kblockd.store.database import open_view
from tests.harness import ROOT, approve, refund, refund_contract
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    in_background,
    news,
    order,
    refund_in,
    run_approved,
    since,
    size,
    types,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

PINNED = "f" * 64
RULES = {
    "decision.rego": """
package kblock.decision
import rego.v1
default word := ""
word := split(input.args.order_id, "-")[0] if is_string(input.args.order_id)
trouble if word in {"undefined3", "type3", "key3", "slow3", "error3"}
fine := {
    "effect": "require_approval", "approvals": {"count": 1, "roles": ["finance"]}, "observe_until": "", "reasons": []
}
result := fine if not trouble
result := "allow" if word == "type3"
result := object.union(fine, {"extra": true}) if word == "key3"
result := object.union(fine, {"effect": number}) if {
    word == "error3"
    number := to_number(input.args.currency)
}
result := fine if {
    word == "slow3"
    count([x | some x in numbers.range(1, 20000); some y in numbers.range(1, 20000); x == y]) > 0
}
""",
    "preconditions.rego": """
package kblock.preconditions
import rego.v1
default word := ""
word := split(input.args.order_id, "-")[0] if is_string(input.args.order_id)
trouble if word in {"undefined8", "type8"}
result := {"ok": true, "stands": true, "reasons": []} if not trouble
result := {"ok": "true", "stands": true, "reasons": []} if word == "type8"
""",
    "verification.rego": """
package kblock.verification
import rego.v1
default word := ""
word := split(input.args.order_id, "-")[0] if is_string(input.args.order_id)
trouble if word in {"undefined14", "type14"}
default verdict := "inconclusive"
verdict := "expected" if {
    is_array(input.read.refunds)
    count(input.read.refunds) == 1
}
result := {"verdict": verdict, "reasons": []} if not trouble
result := {"verdict": "certainly", "reasons": []} if word == "type14"
""",
    "recovery.rego": """
package kblock.recovery
import rego.v1
default word := ""
word := split(input.args.order_id, "-")[0] if is_string(input.args.order_id)
trouble if word in {"undefined15"}
result := {"recovery": "retry", "reasons": []} if not trouble
""",
}


@pytest.fixture(scope="module")
def tricky(payments: PaymentsServer) -> Iterator[LocalSite]:
    """With rules that misbehave on request, and two seconds for an evaluation."""
    with LocalSite.make() as made:
        policy = made.config.parent / "policy"
        policy.mkdir(parents=True)
        for name, text in RULES.items():
            (policy / name).write_text(text)
        shutil.copy(ROOT / "config" / "policy" / "authz.rego", policy)
        made.configure(
            payments.url,
            contracts=variants({"production": {"verification": {"maximum_duration_seconds": 1}}, "blind": BLIND}),
            daemon={"clocks": LONG_LEASE, "policy": {"evaluate_timeout_seconds": 2.0}},
            upstream=PATIENT_BREAKER,
        )
        made.pin()
        made.start()
        yield made


BLIND: dict[str, Any] = {"lookup": [], "execution": {"maximum_attempts": 2}}


def well_again(site: LocalSite) -> None:
    """The policy child answers: an ordinary call is asked about, not refused."""

    def answered() -> bool:
        mine = order()
        with site.client() as agent:
            try:
                return agent.execute(refund(mine, key=mine)).state == "pending_approval"
            except UnavailableError:
                return False

    until(answered)


@pytest.mark.parametrize(
    ("word", "reason", "retryable"),
    [
        ("undefined3", "POLICY_UNDEFINED", False),
        ("type3", "POLICY_TYPE", False),
        ("key3", "POLICY_TYPE", False),
        ("slow3", "POLICY_TIMEOUT", True),
    ],
)
def test_pol_01_pol_10_an_engine_that_fails_denies_and_closes_nothing(
    tricky: LocalSite, word: str, reason: str, retryable: bool
) -> None:
    """POL-01, POL-10, R110: UNAVAILABLE with the reason that says which; no execution, no approval, and retryable only
    where the engine was the reason."""
    mine = f"{word}-{order()}"
    before = size(tricky)
    with tricky.client() as agent, pytest.raises(UnavailableError) as caught:
        agent.execute(refund(mine, key=mine))
    error = caught.value
    assert (error.reason, error.retryable, error.executed, error.consumed) == (reason, retryable, False, False)
    until(lambda: [r["type"] for r in news(tricky, before)] == ["call.refused"])
    well_again(tricky)


def test_agt_08_a_rule_that_fails_on_an_argument_refuses_the_call(tricky: LocalSite) -> None:
    """AGT-08: FAILED_PRECONDITION with POLICY_ERROR, not retryable; no execution, one refusal on record."""
    mine = f"error3-{order()}"
    before = size(tricky)
    with tricky.client() as agent, pytest.raises(FailedPreconditionError) as caught:
        agent.execute(refund(mine, key=mine))
    error = caught.value
    assert (error.reason, error.retryable, error.executed, error.consumed) == ("POLICY_ERROR", False, False, False)
    until(lambda: [r["body"]["reason"] for r in news(tricky, before)] == ["POLICY_ERROR"])
    with tricky.client() as agent, pytest.raises(FailedPreconditionError):
        agent.execute(refund(mine, key=mine))


@pytest.mark.parametrize(("word", "reason"), [("undefined8", "POLICY_UNDEFINED"), ("type8", "POLICY_TYPE")])
def test_pol_01_an_engine_that_fails_at_stage_8_consumes_nothing(
    tricky: LocalSite, pay: PaymentsServer, word: str, reason: str
) -> None:
    """POL-01, R079, R080: the action stays approved, and runs when the policy is well."""
    mine = f"{word}-{order()}"
    pending = ask(tricky, refund(mine, key=mine))
    approve(tricky, pending.approval_id)
    with tricky.client() as agent:
        with pytest.raises(UnavailableError) as caught:
            agent.execute(refund(mine, key=mine))
        assert (caught.value.reason, caught.value.consumed) == (reason, False)
        assert agent.get(execution_id=pending.execution_id).answer.state == "approved"
    assert effects(pay, mine) == []
    file = tricky.config.parent / "policy" / "preconditions.rego"
    text = file.read_text()
    file.write_text(text.replace(f'"{word}"', '"nothing"'))
    try:
        assert tricky.run(tricky.daemon.policy.reload()) is True
        with tricky.client() as agent:
            assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    finally:
        file.write_text(text)
        tricky.run(tricky.daemon.policy.reload())


@pytest.mark.parametrize(("word", "reason"), [("undefined14", "POLICY_UNDEFINED"), ("type14", "POLICY_TYPE")])
def test_an_engine_that_fails_at_stage_14_proves_nothing(
    tricky: LocalSite, pay: PaymentsServer, word: str, reason: str
) -> None:
    """R268: inconclusive, so held; the effect happened once."""
    mine = f"{word}-{order()}"
    held = run_approved(tricky, refund(mine, key=mine))
    assert isinstance(held, Held)
    assert held.code == "VERIFICATION_INCONCLUSIVE"
    verified = body(tricky, held.execution_id, "finding.verified")
    assert (verified["verdict"], verified["code"]) == ("inconclusive", reason)
    assert len(effects(pay, mine)) == 1


@pytest.mark.parametrize(("word", "refused"), [("undefined15", None), ("retry", "retry")])
def test_r291_what_recovery_may_not_choose_becomes_manual(
    tricky: LocalSite, pay: PaymentsServer, word: str, refused: str | None
) -> None:
    """C14, R281, R291: an engine that fails means manual; retry of an unknown outcome is not followed, and both are
    recorded. One effect, although two attempts are allowed."""
    mine = f"{word}-{order()}"
    pay.control(lose_answer_once=True)
    held = run_approved(tricky, refund_in("blind", mine, key=mine))
    assert isinstance(held, Held)
    planned = body(tricky, held.execution_id, "recovery.planned")
    assert (planned["recovery"], planned.get("refused")) == ("manual", refused)
    assert len(effects(pay, mine)) == 1


def test_pol_13_a_killed_policy_process_needs_nobody(tricky: LocalSite) -> None:
    """POL-13: denied or answered, never allowed by default; well again without a manual step."""
    for child in _children(os.getpid()):
        if b"kblockd.policy" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
    mine = order()
    with tricky.client() as agent:
        try:
            said = agent.execute(refund(mine, key=mine)).state
        except UnavailableError as error:
            said = f"{error.reason}, consumed {error.consumed}"
    reason, _, known = said.partition(", consumed ")
    assert said == "pending_approval" or (reason in ("POLICY_DOWN", "POLICY_TIMEOUT") and known in ("False", "None"))
    well_again(tricky)


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue
        if f"\nPPid:\t{parent}\n" in status:
            found.append(int(folder.name))
    return found


WATCHED = refund_contract(
    {
        "action": {"type": "payment.refund.watched"},
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
)


@pytest.fixture(scope="module")
def own(payments: PaymentsServer) -> Iterator[LocalSite]:
    """The shipped policy, which tests change; each leaves it as it was."""
    with LocalSite.make() as made:
        made.configure(
            payments.url,
            contracts={**variants({"production": {}}), "watched": WATCHED},
            daemon={"clocks": LONG_LEASE},
            upstream=PATIENT_BREAKER,
        )
        made.pin()
        made.start()
        yield made


@pytest.fixture
def policy(own: LocalSite) -> Iterator[Path]:
    """The folder, as it was before afterwards."""
    folder = own.config.parent / "policy"
    kept = {file: file.read_text() for file in folder.rglob("*") if file.is_file()}
    yield folder
    for file, text in kept.items():
        file.write_text(text)
    assert own.run(own.daemon.policy.reload()) is True


REFUND = "actions/issue_refund.rego"
EUR = '"EUR": {"one": 50000, "most": 500000}'


def _without_tests(policy: Path) -> None:
    """The shipped tests know the shipped limits."""
    for tests in policy.rglob("*_test.rego"):
        tests.unlink()


def test_r114_a_policy_that_denies_meanwhile_refuses_and_voids_nothing(
    own: LocalSite, pay: PaymentsServer, policy: Path
) -> None:
    """R037, R114, R115, C27: POLICY_CHANGED, recorded once; when the policy allows it again, the action runs."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    shipped = (policy / REFUND).read_text()
    own.edit_policy(REFUND, EUR, '"EUR": {"one": 0, "most": 0}')
    _without_tests(policy)
    assert own.run(own.daemon.policy.reload()) is True
    before = size(own)
    with own.client() as agent:
        with pytest.raises(CallError) as caught:
            agent.execute(refund(mine, key=mine))
        assert (caught.value.reason, caught.value.consumed) == ("POLICY_CHANGED", False)
        until(lambda: [r["body"]["reason"] for r in news(own, before)] == ["POLICY_CHANGED"])
        assert agent.get(execution_id=pending.execution_id).answer.state == "approved"
        denied = agent.execute(refund(order(), key=order()))
        assert (denied.state, denied.code) == ("rejected", "REFUND_LIMIT")
        (policy / REFUND).write_text(shipped)
        assert own.run(own.daemon.policy.reload()) is True
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    assert len(effects(pay, mine)) == 1


def test_c27_a_reload_under_which_the_decision_stands_voids_nothing(
    own: LocalSite, pay: PaymentsServer, policy: Path
) -> None:
    """C27: another revision, the same decision; the consumption names the revision that it was checked under."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    own.edit_policy("decision.rego", "# title: What may happen with an action", "# title: What may happen")
    assert own.run(own.daemon.policy.reload()) is True
    with own.client() as agent:
        done = agent.execute(refund(mine, key=mine))
    assert isinstance(done, Completed)
    decided = body(own, pending.execution_id, "execution.proposed")["policy_revision"]
    consumed = body(own, pending.execution_id, "execution.claimed")["policy_revision"]
    assert decided != consumed == own.daemon.parts.engine.status().revision


def test_apv_11_a_higher_demand_meanwhile_voids_what_was_approved_under_the_lower_one(
    own: LocalSite, pay: PaymentsServer, policy: Path
) -> None:
    """APV-11, C27, R037: the policy asks for two approvers now. One does not do and cannot grow, so the action is void,
    and says so; nobody waits for its expiry."""
    mine = order()
    pending = ask(own, refund(mine, key=mine))
    approve(own, pending.approval_id)
    own.edit_policy(REFUND, EUR, '"EUR": {"one": 1, "most": 500000}')
    _without_tests(policy)
    assert own.run(own.daemon.policy.reload()) is True
    before = size(own)
    with own.client() as agent, own.client("chief") as chief:
        with pytest.raises(CallError) as caught:
            agent.execute(refund(mine, key=mine))
        assert (caught.value.reason, caught.value.consumed) == ("APPROVAL_INSUFFICIENT", False)
        assert "asks for 2 approvals by distinct owners of certain roles, and 1 approved" in str(caught.value)
        again = agent.execute(refund(mine, key=mine))
        assert isinstance(again, Denied)
        assert (again.state, again.code) == ("cancelled", "APPROVAL_INSUFFICIENT")
        assert "more approvals are asked for now" in again.detail
        assert chief.approval(pending.approval_id).state == "void"
    until(lambda: [r["type"] for r in news(own, before)] == ["call.refused", "call.refused", "execution.cancelled"])
    judged, decided, _ = news(own, before)
    assert (judged["stage"], judged["body"]["reason"]) == (8, "POLICY_CHANGED")
    assert (decided["stage"], decided["body"]["reason"]) == (3, "APPROVAL_INSUFFICIENT")
    assert (decided["body"]["effect"], decided["body"]["count"]) == ("require_approval", 2)
    assert effects(pay, mine) == []


def test_a_broken_policy_leaves_the_old_one_in_force(own: LocalSite, pay: PaymentsServer, policy: Path) -> None:
    """kblockd/policy/README.md#a-bundle-comes-into-force: loudly (a record), and without a gap."""
    before, revision = size(own), own.daemon.parts.engine.status().revision
    (policy / "decision.rego").write_text("package kblock.decision\nimport rego.v1\nresult := {")
    assert own.run(own.daemon.policy.reload()) is False
    until(lambda: [r["type"] for r in news(own, before)] == ["policy.refused"])
    assert own.daemon.parts.engine.status().revision == revision
    mine = order()
    assert isinstance(run_approved(own, refund(mine, key=mine)), Completed)


def test_r115_an_observe_window_ends(own: LocalSite, pay: PaymentsServer, policy: Path) -> None:
    """R115, R659: let through within it; after it OBSERVE_ENDED at stage 3, and at stage 5 for what was decided
    within it and had not run."""
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3)
    own.edit_policy("decision.rego", "observed := {}", f'observed := {{"payment.refund.watched": "{rfc3339(ends)}"}}')
    _without_tests(policy)
    assert own.run(own.daemon.policy.reload()) is True
    within, stuck, after = order(), order(), order()
    waits, before = _stuck(stuck), size(own)
    with own.client() as agent:
        done = agent.execute(_watched(within))
        assert isinstance(done, Completed)
        assert body(own, done.execution_id, "execution.proposed")["effect"] == "observe"
        with pytest.raises(CallError) as blocked:
            agent.execute(waits)
        assert (blocked.value.reason, blocked.value.consumed) == ("PIN_MISMATCH", False)
        until(lambda: dt.datetime.now(dt.UTC) > ends)
        for call in (waits, _watched(after)):
            with pytest.raises(CallError) as caught:
                agent.execute(call)
            assert (caught.value.reason, caught.value.consumed) == ("OBSERVE_ENDED", False)
        with pytest.raises(CallError) as nothing:
            agent.get(caller_key=after)
        assert nothing.value.reason == "NOT_FOUND"
    body_ = _refused_decision(own, before, reason="OBSERVE_ENDED", effect="observe")
    assert body_["observe_until"] == rfc3339(ends)
    assert [len(effects(pay, target)) for target in (within, stuck, after)] == [1, 0, 0]


def test_another_revision_than_the_pinned_one_is_not_asked(own: LocalSite, pay: PaymentsServer) -> None:
    """Whoever pins what is not in force learns it before anything is decided or kept."""
    before, mine = size(own), order()
    with own.client() as agent, pytest.raises(CallError) as caught:
        agent.execute(_pinned(mine))
    assert caught.value.reason == "PIN_MISMATCH"
    until(lambda: news(own, before) != [])
    [refused] = news(own, before)
    assert (refused["type"], refused["stage"]) == ("call.refused", None)
    assert "decision_id" not in refused["body"]
    assert effects(pay, mine) == []


def test_a_decision_under_another_revision_than_the_pinned_one_is_on_record(
    own: LocalSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R109: every decision is, also one that nothing came of: the pinned revision is replaced while policy is asked."""
    before, mine = size(own), order()
    engine = own.daemon.parts.engine
    in_force = engine.status()
    with monkeypatch.context() as patch, own.client() as agent:
        patch.setattr(engine, "status", lambda: dataclasses.replace(in_force, revision=PINNED))
        with pytest.raises(CallError) as caught:
            agent.execute(_pinned(mine))
    assert caught.value.reason == "PIN_MISMATCH"
    body_ = _refused_decision(own, before, reason="PIN_MISMATCH", effect="require_approval")
    assert (body_["count"], body_["roles"]) == (1, ["finance"])
    assert effects(pay, mine) == []


def _pinned(order_id: str) -> Call:
    call = refund(order_id, key=order_id)
    return dataclasses.replace(call, envelope=dataclasses.replace(call.envelope, policy_revision=PINNED))


def _refused_decision(site: LocalSite, index: int, *, reason: str, effect: str) -> dict[str, Any]:
    """The body of the one refusal of stage 3 since then, which rides along with what is written next; its decision
    can be asked again."""

    def refusals() -> list[dict[str, Any]]:
        return [
            r for r in news(site, index) if r["type"] == "call.refused" and r["stage"] in (None, Stage.DECIDE.order)
        ]

    until(lambda: len(refusals()) > 0)
    [refused] = refusals()
    found: dict[str, Any] = refused["body"]
    assert (refused["stage"], refused["execution"]) == (Stage.DECIDE.order, "")
    assert (found["reason"], found["effect"]) == (reason, effect)
    assert found["policy_revision"] == site.daemon.parts.engine.status().revision
    with open_view(site.data / "store") as view:
        [decision] = [one for one in decisions(view) if one.decision_id == found["decision_id"]]
        assert digest(Inputs(view).question(decision).document) == found["input_sha256"]
    return found


def _watched(order_id: str) -> Any:
    return refund_in("production", order_id, key=order_id, operation="payment.refund.watched")


def _stuck(order_id: str) -> Any:
    """Decided at stage 3, refused at stage 8: the order is not at that version."""
    arguments = {"order_id": order_id, "amount": "100.00", "currency": "EUR"}
    call = _watched(order_id)
    aim = TargetPin(id=order_id, version="7")
    return call.of("payment.refund.watched", "production", target=aim, arguments=arguments, key=order_id)


def test_pol_04_without_a_policy_everything_is_refused_until_there_is_one(payments: PaymentsServer) -> None:
    """POL-04: NOT_SERVING and POLICY_UNDEFINED; it needs no restart when the folder is there."""
    with LocalSite.make() as made:
        policy = made.config.parent / "policy"
        policy.mkdir(parents=True)
        made.configure(payments.url, daemon={"clocks": LONG_LEASE}, upstream=PATIENT_BREAKER)
        made.pin()
        made.start(wait=False)
        assert not made._healthy()
        mine = order()
        with made.client() as agent, pytest.raises(UnavailableError) as caught:
            agent.execute(refund(mine, key=mine))
        # At stage 0 nobody has looked whether this call repeats one that acted: nothing is said of it.
        assert (caught.value.reason, caught.value.consumed) == ("POLICY_UNDEFINED", None)
        shutil.copytree(ROOT / "config" / "policy", policy, dirs_exist_ok=True)
        made.wait_healthy()
        assert isinstance(run_approved(made, refund(mine, key=mine)), Completed)


def test_a_policy_that_changes_during_the_run_is_seen_at_the_consumption(
    own: LocalSite, pay: PaymentsServer, policy: Path
) -> None:
    """R114: the consumption is conditioned on the revision that stage 8 evaluated; what ran is consistent."""
    calls = [refund(order(), key=order()) for _ in range(4)]
    for call in calls:
        approve(own, ask(own, call).approval_id)
    running = [in_background(own, call) for call in calls]
    own.edit_policy("decision.rego", "# title: What may happen with an action", "# title: What may happen now")
    assert own.run(own.daemon.policy.reload()) is True
    for thread in running:
        thread.join(60)
    activations = {r["body"]["revision"] for r in since(own, 0) if r["type"] == "policy.activated"}
    with own.client() as agent:
        for call in calls:
            done = agent.execute(call)
            assert isinstance(done, Completed)
            assert body(own, done.execution_id, "execution.claimed")["policy_revision"] in activations
            assert types(own, done.execution_id).count("execution.sent") == 1
