"""Many callers at one moment: one effect for a key, one at a time for a target, one for an approval."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kblockd.client import (
    Aborted,
    Answer,
    ApprovalPending,
    AsyncClient,
    Call,
    CallError,
    Client,
    Completed,
    Denied,
    FailedPrecondition,
    Held,
    InProgress,
    NotFound,
)
from kblockd.domain.outcome import Finding
from tests.crash.daemon.story import call, variant
from tests.harness import approve
from tests.integration.concurrency.callers import made
from tests.integration.concurrency.crowd import Crowd, ask, let_through
from tests.records import RecordType

PROCESSES = 4
EACH = 50
BLIND = {"lookup": []}


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """demo.refund is let through; payment.refund.create needs an approval; in blind nothing can be looked up."""
    contracts = {
        "demo": let_through(),
        "production": variant("production"),
        "blind": variant("blind", BLIND),
    }
    with Crowd.make(contracts) as found:
        yield found


@pytest.fixture
def slow(crowd: Crowd) -> Iterator[Crowd]:
    """The upstream acts after a second and a half."""
    crowd.payments.control(stall_before_seconds=1.5)
    yield crowd
    crowd.payments.control(stall_before_seconds=0.0)


def test_idm_03_idm_09_two_hundred_calls_with_one_key(slow: Crowd) -> None:
    """IDM-03, IDM-09: one effect; whoever gets a result gets the same bytes, nobody an internal error (R068, R129)."""
    order = slow.order()
    got = slow.call(*[[ask(order, f"key-{order}")] * EACH] * PROCESSES)
    assert len(got) == PROCESSES * EACH
    assert len(slow.effects(order)) == 1
    said = Counter(one["kind"] if one["kind"] != "error" else one["reason"] for one in got)
    assert set(said) <= {"Completed", "InProgress", "DUPLICATE_IN_FLIGHT"}, said
    assert said["Completed"] >= 1
    assert len({one["result"] for one in got if one["kind"] == "Completed"}) == 1
    assert len({one["execution"] for one in got}) == 1
    assert sum(one["kind"] == "Completed" and not one["replayed"] for one in got) == 1
    assert slow.check_one_at_a_time(order) == 1


def test_idm_03_two_hundred_identical_calls_without_a_key(slow: Crowd) -> None:
    """IDM-03: never two in flight; what comes after the end is new (C29, R069)."""
    order = slow.order()
    got = slow.call(*[[ask(order, None)] * EACH] * PROCESSES)
    said = Counter(one["kind"] if one["kind"] != "error" else one["reason"] for one in got)
    assert set(said) <= {"Completed", "InProgress", "DUPLICATE_IN_FLIGHT", "REPLAY"}, said
    assert said["Completed"] >= 1
    runs = slow.check_one_at_a_time(order)
    assert len(slow.effects(order)) == runs < PROCESSES * EACH / 10
    slow.payments.control(stall_before_seconds=0.0)
    with slow.site.client() as agent:
        new = agent.execute(made(ask(order, None)))
    assert isinstance(new, Completed)
    assert not new.replayed
    assert new.execution_id not in {one["execution"] for one in got}
    assert len(slow.effects(order)) == runs + 1


def test_apr_01_one_approval_and_twenty_keys(slow: Crowd) -> None:
    """APR-01: whoever cites it, one dispatch in all, and none after it (R111, R117)."""
    order = slow.order()
    refund = {"operation": "payment.refund.create", "environment": "production"}
    with slow.site.client() as agent:
        pending = agent.execute(call(order, "owner-of-" + order))
        assert isinstance(pending, ApprovalPending)
        approve(slow.site, pending.approval_id)
        cited = {"fields": {"approval_id": pending.approval_id}, **refund}
        others = [ask(order, f"key-{n}-{order}", **cited) for n in range(20)]
        got = slow.call([*others[:10], ask(order, "owner-of-" + order, **cited)], others[10:])
        assert len(slow.effects(order)) == 1
        assert [one["execution"] for one in got if one["kind"] == "Completed"] == [pending.execution_id]
        reasons = Counter(one["reason"] for one in got if one["kind"] == "error")
        assert set(reasons) <= {"PIN_MISMATCH", "TWIN_UNRESOLVED"}, reasons
        assert sum(reasons.values()) == 20
        late = slow.call([ask(order, f"late-{order}", **cited)])
        assert late[0]["reason"] == "PIN_MISMATCH"
    assert len(slow.effects(order)) == 1


def test_c10_two_keys_with_one_intent_in_flight(slow: Crowd) -> None:
    """C10: both wait, both are approved, both run at once: one acts, the other is refused and stays approved."""
    order = slow.order()
    with slow.site.client() as agent:
        calls = [call(order, f"{name}-{order}") for name in ("one", "two")]
        for one in calls:
            approve(slow.site, agent.execute(one).approval_id)
        with ThreadPoolExecutor(2) as threads:
            got = list(threads.map(lambda one: _said(agent, one), calls))
        completed = [one for one in got if isinstance(one, Completed)]
        refused = [one for one in got if isinstance(one, CallError)]
        assert (len(completed), len(refused)) == (1, 1), got
        assert refused[0].reason in ("TARGET_BUSY", "TWIN_UNRESOLVED")
        assert (refused[0].executed, refused[0].consumed) == (False, False)
    assert len(slow.effects(order)) == 1


def test_c10_the_second_of_two_approved_keys_is_refused_at_nine(crowd: Crowd) -> None:
    """C10: the first is held, its target is free and its deed is not; an operator's finding frees it (R195)."""
    order = crowd.order()
    with crowd.site.client() as agent, crowd.site.client("operator") as operator:
        first, second = (call(order, f"{name}-{order}", "blind") for name in ("one", "two"))
        for one in (first, second):
            approve(crowd.site, agent.execute(one).approval_id)
        crowd.payments.control(refuse=True)
        held = agent.execute(first)
        crowd.payments.control(refuse=False)
        assert isinstance(held, Held)
        for late in (second, call(order, f"three-{order}", "blind")):
            with pytest.raises(FailedPrecondition) as refused:
                agent.execute(late)
            assert refused.value.reason == "TWIN_UNRESOLVED"
        assert agent.get(caller_key=f"two-{order}").answer.state == "approved"
        operator.resolve(held.execution_id, Finding.ABSENT, "the provider's books do not show it")
        assert isinstance(agent.execute(second), Completed)
    assert len(crowd.effects(order)) == 1


def test_c10_a_resolved_hold_does_not_free_what_others_hold(crowd: Crowd) -> None:
    """C10: the first is held without its lock; the second acted on the target, its daemon died, and nobody can prove
    it, so that its row alone holds the target. Resolving the first must not let a third in beside the second."""
    order = crowd.order()
    blind = {"operation": "payment.refund.create", "environment": "blind"}
    with crowd.site.client() as agent, crowd.site.client("operator") as operator, ThreadPoolExecutor(1) as thread:
        crowd.payments.control(refuse=True)
        held = agent.execute(_approved(crowd, call(order, f"one-{order}", "blind")))
        crowd.payments.control(refuse=False, stall_seconds=30.0)
        assert isinstance(held, Held)
        second = _approved(crowd, made(ask(order, f"two-{order}", "10.00", **blind)))
        running = thread.submit(agent.execute, second)
        while not crowd.effects(order):
            time.sleep(0.01)
        crowd.site.start()
        running.exception(60)
        crowd.payments.control(stall_seconds=0.0)
        assert isinstance(agent.execute(second), InProgress)
        operator.resolve(held.execution_id, Finding.ABSENT, "the provider's books do not show it")
        with pytest.raises(Aborted) as refused:
            agent.execute(made(ask(order, f"three-{order}", "20.00")))
        assert refused.value.reason == "TARGET_BUSY"
    assert len(crowd.effects(order)) == 1


def test_apr_14_many_decisions_on_one_request(crowd: Crowd) -> None:
    """APR-14: approvals and denials at one moment; the first counts, and what the agent may do follows from it."""
    order = crowd.order()
    one = call(order, f"key-{order}")
    with crowd.site.client() as agent, crowd.site.client("lead") as lead, ThreadPoolExecutor(16) as threads:
        pending = agent.execute(one)
        shown = lead.approval(pending.approval_id)

        def decide(number: int) -> str:
            try:
                decided = lead.decide(
                    shown.approval_id,
                    action_sha256=shown.action_sha256,
                    presented_sha256=shown.presented_sha256,
                    verdict=("approve", "deny")[number % 2],
                    reason="as agreed",
                )
            except (Aborted, FailedPrecondition) as error:
                return error.reason
            return decided.approval.state

        said = Counter(threads.map(decide, range(16)))
        won = [state for state in ("approved", "denied") if said.pop(state, 0)]
        assert len(won) == 1
        assert sum(said.values()) == 15
        assert set(said) <= {"CONFLICT", "APPROVAL_NOT_VALID"}, said
        answer = agent.execute(one)
    assert isinstance(answer, Completed if won == ["approved"] else Denied)
    assert len(crowd.effects(order)) == (1 if won == ["approved"] else 0)


def test_r108_many_revocations_while_the_action_is_run(crowd: Crowd) -> None:
    """R108, R111: the approval is taken back once or used once, never both, and everybody is told which."""
    for order in (crowd.order() for _ in range(4)):
        one = _approved(crowd, call(order, f"key-{order}"))
        with crowd.site.client() as agent, crowd.site.client("lead") as lead, ThreadPoolExecutor(12) as threads:
            approval_id = agent.get(caller_key=f"key-{order}").answer.approval_id

            def revoke(approval_id: str) -> str:
                try:
                    lead.revoke(approval_id, "not any more")
                except (Aborted, FailedPrecondition) as error:
                    return "used" if error.consumed else "not used"
                return "revoked"

            running = [threads.submit(agent.execute, one) for _ in range(4)]
            said = Counter(threads.map(revoke, [approval_id] * 8))
            told = [run.exception() or run.result() for run in running]
            answer = agent.execute(one)
        assert said["revoked"] <= 1
        if said["revoked"]:
            assert isinstance(answer, Denied)
            assert (said["used"], crowd.effects(order)) == (0, [])
            assert all(isinstance(one, Denied | FailedPrecondition) for one in told), told
        else:
            assert isinstance(answer, Completed)
            assert (said["used"], len(crowd.effects(order))) == (8, 1)


def test_many_findings_on_one_hold(crowd: Crowd) -> None:
    """R501: operators resolve at one moment; one finding is recorded, and the RESULT says what it says."""
    order = crowd.order()
    one = _approved(crowd, call(order, f"key-{order}", "blind"))
    crowd.payments.control(refuse=True)
    findings = [Finding.PRESENT, Finding.ABSENT, Finding.UNPROVABLE] * 4
    with crowd.site.client() as agent, crowd.site.client("operator") as operator, ThreadPoolExecutor(12) as threads:
        held = agent.execute(one)
        crowd.payments.control(refuse=False)
        assert isinstance(held, Held)

        def resolve(finding: Finding) -> Answer | CallError:
            try:
                return operator.resolve(held.execution_id, finding, "looked into the provider's books")
            except (Aborted, FailedPrecondition) as error:
                return error

        got = list(threads.map(resolve, findings))
        answer = agent.execute(one)
    ours = [record for record in crowd.records() if record.execution == held.execution_id]
    resolved = [record for record in ours if record.type == RecordType.RESOLVED]
    sealed = [record for record in ours if record.type == RecordType.SEALED]
    assert (len(resolved), len(sealed)) == (1, 1)
    classes = {"present": "completed_verified", "absent": "failed_before_side_effect", "unprovable": "unknown_outcome"}
    assert answer.result_class == sealed[0].body["class"] == classes[resolved[0].body["finding"]]
    winners = [one for one in got if isinstance(one, Answer)]
    # An execution that was sealed as unknown takes dispositions; then more than one may have been heard.
    assert len(winners) == 1 or answer.result_class == "unknown_outcome"


def test_different_targets_run_beside_each_other(slow: Crowd) -> None:
    """R161: twelve targets, twelve effects, in far less than twelve times one."""
    orders = [slow.order() for _ in range(12)]
    got = slow.call([ask(order, f"key-{order}") for order in orders])
    assert Counter(one["kind"] for one in got) == {"Completed": 12}, got
    assert [len(slow.effects(order)) for order in orders] == [1] * 12
    claimed = [kind for order in [*orders] for kind, _ in slow.runs_of(order)[:1]]
    assert claimed == ["execution.claimed"] * 12
    ours = {one["execution"] for one in got}
    order_of_records = [str(r.type) for r in slow.records() if r.execution in ours]
    first_seal = order_of_records.index("result.sealed")
    assert order_of_records[:first_seal].count("execution.claimed") > 1, "they ran one after the other"


def test_one_target_is_changed_by_one_action_at_a_time(slow: Crowd) -> None:
    """R161, REC-09: other deeds on a busy target are told so, stay approved, and run when it is free."""
    order = slow.order()
    asked = [ask(order, f"key-{n}-{order}", f"{n}.00") for n in range(1, 6)]
    busy = 0
    for _ in range(20):
        got = slow.call(asked)
        left = []
        for one, answer in zip(asked, got, strict=True):
            if answer["kind"] == "error":
                assert (answer["reason"], answer["code"], answer["retryable"]) == ("TARGET_BUSY", "ABORTED", True)
                left.append(one)
        busy += len(left)
        if not left:
            break
        asked = left
    assert busy > 0
    assert sorted(effect["amount"] for effect in slow.effects(order)) == [f"{n}.00" for n in range(1, 6)]
    assert slow.check_one_at_a_time(order) == 5


async def test_rpc_10_a_cancelled_call_goes_on(slow: Crowd) -> None:
    """RPC-10, RPC-07: the caller gives up its RPC; the same key joins the run and gets its result (R185)."""
    order = slow.order()
    one = made(ask(order, f"key-{order}"))
    async with AsyncClient(f"unix:{slow.site.socket('agent')}") as agent:
        waiting = asyncio.create_task(agent.execute(one))
        await _claimed(agent, f"key-{order}")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answer = await agent.execute(one)
    assert isinstance(answer, Completed)
    assert answer.replayed
    assert len(slow.effects(order)) == 1


def test_rpc_06_a_caller_that_dies(slow: Crowd) -> None:
    """RPC-06: the process of the caller is killed while it waits; the key has the result."""
    order = slow.order()
    with slow.site.client() as agent:
        with slow.calling([ask(order, f"key-{order}")]) as process:
            _wait_claimed(agent, f"key-{order}")
            process.kill()
        answer = agent.execute(made(ask(order, f"key-{order}")))
    assert isinstance(answer, Completed)
    assert len(slow.effects(order)) == 1


def _said(agent: Client, one: Call) -> Answer | CallError:
    try:
        return agent.execute(one)
    except CallError as error:
        return error


def _approved(crowd: Crowd, one: Call) -> Call:
    with crowd.site.client() as agent:
        approve(crowd.site, agent.execute(one).approval_id)
    return one


def _wait_claimed(agent: Client, key: str) -> None:
    while True:
        try:
            if agent.get(caller_key=key).answer.phase:
                return
        except NotFound:
            pass
        time.sleep(0.02)


async def _claimed(agent: AsyncClient, key: str) -> None:
    while True:
        try:
            if (await agent.get(caller_key=key)).answer.phase:
                return
        except NotFound:
            pass
        await asyncio.sleep(0.02)
