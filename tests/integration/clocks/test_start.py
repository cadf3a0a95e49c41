"""A daemon that is started with a clock behind its last record serves, and consumes nothing until that has passed."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from kblockd.client.answers import ApprovalPending, Completed, Denied, InProgress, UpstreamError
from kblockd.client.calls import Call
from kblockd.client.errors import FailedPreconditionError, UnavailableError
from kblockd.domain.clock import parse_rfc3339
from tests.harness import approve
from tests.integration.pipeline.local import (
    LONG_LEASE,
    ask,
    effects,
    in_background,
    order,
    records,
    refund_in,
    types,
    until,
)
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

HOUR, DAY = 3600.0, 86_400.0


def restart(site: StagedSite, seconds: float) -> None:
    """With a wall clock that is set by so much."""
    site.stop()
    site.machine.set_by = seconds
    site.start()


def check_refused(site: StagedSite, pay: PaymentsServer, call: Call, execution_id: str) -> None:
    """CLOCK_BEHIND: nothing is consumed, and the action stays approved."""
    with site.client() as agent:
        with pytest.raises(UnavailableError) as refused:
            agent.execute(call)
        assert (refused.value.reason, refused.value.retryable, refused.value.consumed) == ("CLOCK_BEHIND", True, False)
        assert agent.get(execution_id=execution_id).answer.state == "approved"
    assert effects(pay, call.envelope.target.id) == []


@pytest.mark.parametrize("behind", [HOUR, pytest.param(DAY, marks=pytest.mark.soak)])
def test_lse_03_behind_its_last_record_a_daemon_consumes_nothing(
    site: StagedSite, pay: PaymentsServer, behind: float
) -> None:
    """LSE-03, LSE-04: what was approved before, and what is asked and approved now, waits; no record is older than the
    one before it. Once the clock is set right both run, once."""
    old, new = order(), order()
    calls = [refund_in("production", target, key=target) for target in (old, new)]
    first = ask(site, calls[0])
    approve(site, first.approval_id)
    last = records(site, first.execution_id)[-1]["at"]
    restart(site, -behind)
    check_refused(site, pay, calls[0], first.execution_id)
    second = ask(site, calls[1])
    approve(site, second.approval_id)
    check_refused(site, pay, calls[1], second.execution_id)
    times = [record["at"] for record in records(site, second.execution_id)]
    assert last <= times[0]
    assert len(set(times)) == 1  # time stands still
    site.machine.set_by = 0.0
    with site.client() as agent:
        assert all(isinstance(agent.execute(call), Completed) for call in calls)
    assert (len(effects(pay, old)), len(effects(pay, new))) == (1, 1)
    found = [parse_rfc3339(record["at"]) for record in records(site, second.execution_id)]
    assert found == sorted(found)


@pytest.mark.soak
def test_apr_04_what_was_approved_while_time_stood_still_lapses_when_it_goes_on(
    site: StagedSite, pay: PaymentsServer
) -> None:
    """APR-04, LSE-03: asked by a clock that stood behind; the correction goes past the approval's end: expired, never
    consumed."""
    mine = order()
    call = refund_in("production", mine, key=mine)
    restart(site, -HOUR)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    site.machine.passed += LONG_LEASE["approval_ttl_seconds"] + 1
    site.machine.set_by = 0.0
    with site.client() as agent:
        with pytest.raises(FailedPreconditionError) as over:
            agent.execute(call)
        assert (over.value.reason, over.value.consumed) == ("APPROVAL_NOT_VALID", False)
        again = agent.execute(call)
    assert isinstance(again, Denied)
    assert (again.state, again.code, again.consumed) == ("expired", "TASK_EXPIRED", False)
    assert effects(pay, mine) == []


def interrupted(site: StagedSite, environment: str) -> tuple[str, Call, Any]:
    """An action that is consumed and not marked, in a daemon that has ended."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    site.boundaries.at("mark_sent:before", asyncio.Event().wait)
    waiting = in_background(site, dataclasses.replace(call, wait_seconds=0))
    until(lambda: "execution.claimed" in types(site, pending.execution_id))
    waiting.join(60)
    return mine, call, pending


def test_idm_05_lse_03_what_was_consumed_before_waits_for_the_clock(site: StagedSite, pay: PaymentsServer) -> None:
    """IDM-05, LSE-03, R572: an action of the life before, consumed and unsent: not sent while the clock is behind; set
    right in time, it is sent once, under a newer fence."""
    mine, call, pending = interrupted(site, "production")
    restart(site, -HOUR)
    with site.client() as agent:
        assert isinstance(agent.execute(dataclasses.replace(call, wait_seconds=1.5)), InProgress)
        assert "execution.sent" not in types(site, pending.execution_id)
        site.machine.set_by = 0.0
        assert isinstance(agent.execute(call), Completed)
    claims = [r["body"]["fence"] for r in records(site, pending.execution_id) if r["type"] == "execution.claimed"]
    assert [(fence["incarnation"], fence["counter"]) for fence in claims] == sorted(
        (fence["incarnation"], fence["counter"]) for fence in claims
    )
    assert (types(site, pending.execution_id).count("execution.sent"), len(effects(pay, mine))) == (1, 1)


@pytest.mark.soak
def test_r572_a_clock_that_stays_behind_ends_what_was_consumed_unsent(site: StagedSite, pay: PaymentsServer) -> None:
    """R572, R461: the deadline is by monotonic time, so it comes although the wall clock stands behind."""
    mine, call, pending = interrupted(site, "hurried")
    restart(site, -DAY)
    with site.client() as agent:
        ended = agent.execute(call)
    assert isinstance(ended, UpstreamError), ended
    assert (ended.state, ended.result_class, ended.code) == ("failed", "not_started", "CLOCK_BEHIND")
    assert (ended.executed, ended.consumed, ended.outcome_unknown) == (False, True, False)
    assert "execution.sent" not in types(site, pending.execution_id)
    assert effects(pay, mine) == []


@pytest.mark.soak
def test_lse_03_a_day_ahead_and_then_right_again(site: StagedSite, pay: PaymentsServer) -> None:
    """LSE-03, APR-10: by a clock that is a day ahead at the start approvals have lapsed; right again, the daemon stands
    behind its own records and says so, rather than to write older ones."""
    lapsed, waiting = order(), order()
    calls = [refund_in("production", target, key=target) for target in (lapsed, waiting)]
    approve(site, ask(site, calls[0]).approval_id)
    restart(site, DAY)
    with site.client() as agent:
        answer = agent.execute(calls[0])
    assert isinstance(answer, Denied)
    assert (answer.state, answer.code, answer.consumed) == ("expired", "TASK_EXPIRED", False)
    pending = ask(site, calls[1])
    assert isinstance(pending, ApprovalPending)
    approve(site, pending.approval_id)
    restart(site, 0.0)
    check_refused(site, pay, calls[1], pending.execution_id)
    site.machine.passed += DAY  # it has caught up by waiting, within the time of the approval
    with site.client() as agent:
        assert isinstance(agent.execute(calls[1]), Completed)
    assert (len(effects(pay, lapsed)), len(effects(pay, waiting))) == (0, 1)
