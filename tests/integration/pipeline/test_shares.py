"""What a short disk stops, and what it does not: nothing begins, and whatever has begun comes to its end (AGT-06)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kblockd.client import ApprovalPending, CallError, PermissionDeniedError, ResourceExhaustedError
from tests.harness import approve, refund, revoke
from tests.integration.pipeline.local import (
    LocalSite,
    ask,
    effects,
    in_background,
    news,
    order,
    records,
    refund_in,
    size,
    until,
)
from tests.upstreams.payments import PaymentsServer


@contextmanager
def short(site: LocalSite) -> Iterator[None]:
    """The disk of the ledger is full."""
    assert site.daemon is not None
    capacity = site.daemon.parts.capacity
    real = capacity.free_bytes
    try:
        capacity.free_bytes, capacity._looked = (lambda: 0), -math.inf
        yield
    finally:
        capacity.free_bytes, capacity._looked = real, -math.inf


def _state(site: LocalSite, execution_id: str) -> str:
    return site.reader.get(execution_id=execution_id).answer.state


def test_agt_06_a_short_disk_takes_no_new_record_and_lets_what_has_begun_end(
    site: LocalSite, pay: PaymentsServer
) -> None:
    running, waiting, other, third = (refund(key=key, order=key) for key in (order(), order(), order(), order()))
    begun = ask(site, running)
    approve(site, begun.approval_id)
    left = [ask(site, call) for call in (waiting, other, third)]
    with site.client() as agent, pytest.raises(PermissionDeniedError):
        agent.policy_status()  # so that stage 0's answer is remembered, and on record
    site.reader.list(["held"])
    pay.control(stall_before_seconds=2.0)
    thread = in_background(site, running)
    until(lambda: _state(site, begun.execution_id) == "executing")
    before = size(site)
    with short(site):
        with site.client() as agent:
            for call in (refund(order(), key=order()), refund_in("twice", order(), key=order())):
                with pytest.raises(ResourceExhaustedError) as refused:
                    agent.execute(call)
                assert (refused.value.reason, refused.value.retryable) == ("OVERLOAD", True)
                assert "free_space_mib" in str(refused.value)
            for _ in range(5):
                with pytest.raises(PermissionDeniedError):
                    agent.policy_status()
            assert isinstance(agent.execute(waiting), ApprovalPending)  # a repeat is answered
        with pytest.raises(CallError) as undecided:
            approve(site, left[0].approval_id)
        assert undecided.value.reason == "OVERLOAD"
        foreign = [r for r in news(site, before) if r["execution"] != begun.execution_id]
        assert foreign == []
        approve(site, left[1].approval_id, "deny")  # these end something
        assert revoke(site, left[2].approval_id) is None
        thread.join(30)
        until(lambda: _state(site, begun.execution_id) == "succeeded")
    assert len(effects(pay, str(running.envelope.target.id))) == 1
    assert records(site, begun.execution_id)[-1]["type"] == "result.sealed"
    assert [_state(site, one.execution_id) for one in left] == ["pending_approval", "rejected", "rejected"]
    size(site)
    counted = [r["body"] for r in news(site, before) if r["type"] == "call.refused"]
    assert [(b["reason"], b["count"]) for b in counted] == [("PERMISSION_DENIED", 5)]
    approve(site, left[0].approval_id)  # there is room again
