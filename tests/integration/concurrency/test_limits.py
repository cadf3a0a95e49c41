"""What is beyond a limit is refused before anything is recorded of it, and fits again when something has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from kblockd.client import ApprovalPending, CallError, Client, Completed, NotFound, ResourceExhausted
from tests.crash.daemon.story import call, variant
from tests.harness import approve
from tests.integration.concurrency.callers import made
from tests.integration.concurrency.crowd import Crowd, Got, ask, let_through
from tests.records import RecordType

EXECUTIONS = 3
PENDING = 2
NARROW = {"operation": "demo.narrow"}


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """Three executions at once, two pending approvals an agent, one demo.narrow at once."""
    narrow = let_through(action={"type": "demo.narrow", "environment": "demo", "risk_tier": "low"})
    narrow["execution"]["maximum_concurrent_actions"] = 1
    contracts = {"demo": let_through(), "narrow": narrow, "production": variant("production")}
    limits = {"executions": EXECUTIONS, "pending_approvals_per_agent": PENDING}
    with Crowd.make(contracts, limits=limits) as found:
        yield found


@pytest.fixture
def slow(crowd: Crowd) -> Iterator[Crowd]:
    """The upstream acts after a second and a half."""
    crowd.payments.control(stall_before_seconds=1.5)
    yield crowd
    crowd.payments.control(stall_before_seconds=0.0)


def test_more_executions_than_the_limit(slow: Crowd) -> None:
    """A burst of twenty targets; three run, the others are told when to come back and left no trace."""
    orders = [slow.order() for _ in range(20)]
    asked = [ask(order, f"key-{order}") for order in orders]
    got = slow.call(asked)
    said = Counter(one["kind"] if one["kind"] != "error" else (one["reason"], one["retryable"]) for one in got)
    assert said == {"Completed": EXECUTIONS, ("OVERLOAD", True): 20 - EXECUTIONS}, said
    _nothing_is_known_of(slow, [one for one, answer in zip(asked, got, strict=True) if answer["kind"] == "error"])
    assert sum(len(slow.effects(order)) for order in orders) == EXECUTIONS
    slow.payments.control(stall_before_seconds=0.0)
    with slow.site.client() as agent:
        for one in asked:
            assert isinstance(agent.execute(made(one)), Completed)
    assert [len(slow.effects(order)) for order in orders] == [1] * 20


def test_a_repeat_needs_no_place(slow: Crowd) -> None:
    """R140: a finished call is answered while all places are taken, and one that runs is joined."""
    with slow.site.client() as agent:
        done = made(ask(slow.order(), "done-" + slow.order()))
        first = agent.execute(done)
        busy = [ask(slow.order(), "busy-" + slow.order()) for _ in range(EXECUTIONS)]
        with slow.calling(busy):
            for one in busy:
                _wait_claimed(agent, one["key"])
            again = agent.execute(done)
            assert again.result_dsse == first.result_dsse != b""
            assert isinstance(agent.execute(made(busy[0])), Completed)


def test_more_pending_approvals_than_an_agent_may_have(crowd: Crowd) -> None:
    """The third is refused and leaves no record of any kind, however often it is asked (R174); another agent is not
    concerned; a denial makes room."""
    calls = [call(crowd.order(), "pending-" + crowd.order()) for _ in range(PENDING + 1)]
    with crowd.site.client() as agent, crowd.site.client("other") as other:
        pending = [agent.execute(one) for one in calls[:PENDING]]
        assert all(isinstance(one, ApprovalPending) for one in pending)
        with pytest.raises(ResourceExhausted) as refused:
            agent.execute(calls[-1])
        assert (refused.value.reason, refused.value.retryable) == ("PENDING_LIMIT", True)
        with pytest.raises(NotFound):
            agent.get(caller_key=str(calls[-1].key))
        assert isinstance(other.execute(call(crowd.order(), "of-another")), ApprovalPending)
        approve(crowd.site, pending[0].approval_id, "deny")
        decided = [record for record in crowd.records() if record.type == RecordType.APPROVAL_DECIDED]
        assert decided[-1].body["approval_id"] == pending[0].approval_id  # so what came before would be there, too
        assert "PENDING_LIMIT" not in {record.body.get("reason") for record in crowd.records()}
        assert isinstance(agent.execute(calls[-1]), ApprovalPending)


def test_more_actions_of_a_contract_than_it_allows(slow: Crowd) -> None:
    """R175: two targets under maximum_concurrent_actions 1; the second stays approved and runs when there is room."""
    asked = [ask(order, f"key-{order}", **NARROW) for order in (slow.order(), slow.order())]
    got = slow.call(asked)
    refused = [one for one in got if one["kind"] == "error"]
    assert [one["kind"] for one in got].count("Completed") == 1, got
    assert [(one["reason"], one["code"], one["retryable"]) for one in refused] == [
        ("CONCURRENCY_LIMIT", "RESOURCE_EXHAUSTED", True)
    ]
    with slow.site.client() as agent:
        for one in asked:
            assert isinstance(agent.execute(made(one)), Completed)
    assert [len(slow.effects(one["order"])) for one in asked] == [1, 1]


def _nothing_is_known_of(crowd: Crowd, asked: list[Got]) -> None:
    with crowd.site.client() as agent:
        for one in asked:
            with pytest.raises(NotFound):
                agent.get(caller_key=one["key"])
    proposed = {r.body["target"]["id"] for r in crowd.records() if r.type == RecordType.PROPOSED}
    assert not proposed & {one["order"] for one in asked}


def _wait_claimed(agent: Client, key: str) -> None:
    while True:
        try:
            if agent.get(caller_key=key).answer.phase:
                return
        except CallError:
            continue
