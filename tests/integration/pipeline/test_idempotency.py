"""The same call once more: the stored outcome, the run under way, or a refusal; never a second effect."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

import pytest

from kblockd.client.answers import ApprovalPending, Completed, InProgress, UpstreamError
from kblockd.client.errors import AlreadyExistsError, CallError, FailedPreconditionError, InvalidArgumentError
from kblockd.domain.keys import caller_key
from tests.harness import approve, refund
from tests.integration.pipeline.local import (
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
    statement,
    types,
    until,
)
from tests.upstreams.payments import PaymentsServer

SAME = ("execution_id", "result_dsse", "receipt_dsse", "output_json", "code", "detail", "result_class", "state")


def test_r140_a_keyed_repeat_gets_the_stored_outcome_byte_for_byte(site: LocalSite, pay: PaymentsServer) -> None:
    """R140, R141, R130, R131, IDM-11: RESULT, receipt and output as the first call got them; no upstream call."""
    mine = order()
    first = run_approved(site, refund(mine, key=mine))
    before = size(site)
    with site.client() as agent:
        for _ in range(3):
            again = agent.execute(refund(mine, key=mine))
            assert isinstance(again, Completed)
            assert again.replayed is True
            for field in (
                "execution_id",
                "result_dsse",
                "receipt_dsse",
                "output_json",
                "code",
                "detail",
                "result_class",
            ):
                assert getattr(again, field) == getattr(first, field)
        assert agent.get(caller_key=mine).answer.result_dsse == first.result_dsse
    assert len(effects(pay, mine)) == 1
    assert news(site, before) == []  # reading leaves no record


def test_idm_01_another_call_under_the_key_is_a_conflict(site: LocalSite, pay: PaymentsServer) -> None:
    """IDM-01, R132: the stored result is not given out, the upstream not called, the refusal on record."""
    mine = order()
    first = run_approved(site, refund(mine, key=mine))
    before = size(site)
    with site.client() as agent:
        for other in (refund(mine, amount="11.00", key=mine), refund(order(), key=mine)):
            with pytest.raises(AlreadyExistsError) as caught:
                agent.execute(other)
            assert (caught.value.reason, caught.value.execution_id) == ("IDEMPOTENCY_CONFLICT", first.execution_id)
    size(site)  # the minute is over: the second one is a number (AGT-06)
    until(lambda: [r["type"] for r in news(site, before)] == ["call.refused", "call.refused"])
    assert [r["body"]["reason"] for r in news(site, before)] == ["IDEMPOTENCY_CONFLICT"] * 2
    assert [r["body"].get("count") for r in news(site, before)] == [None, 1]
    assert len(effects(pay, mine)) == 1


def test_idm_01_a_key_that_is_in_use_conflicts_too(site: LocalSite) -> None:
    """IDM-01: also while the first one waits for an approval; the same key of another agent is another key."""
    mine = order()
    ask(site, refund(mine, key=mine))
    with site.client() as agent, pytest.raises(AlreadyExistsError):
        agent.execute(refund(mine, amount="1.00", key=mine))
    with site.client("other") as other:
        assert isinstance(other.execute(refund(order(), key=mine)), ApprovalPending)


def test_idm_13_volatile_fields_do_not_make_another_call(site: LocalSite, pay: PaymentsServer) -> None:
    """IDM-13: deadline, time-out, attempts, action id, spelling of the arguments: replay, one dispatch."""
    mine = order()
    first = run_approved(site, refund(mine, key=mine))
    spelled = json.dumps({"currency": "EUR", "order_id": mine, "amount": "100.00"}, indent=2).encode()
    variants: list[dict[str, Any]] = [
        {"deadline": dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)},
        {"request_timeout": 1.5},
        {"maximum_attempts": 1},
        {"action_id": "act-2"},
        {"wait_seconds": 1.0},
    ]
    with site.client() as agent:
        for fields in variants:
            again = agent.execute(refund(mine, key=mine, **fields))
            assert (again.execution_id, again.result_dsse) == (first.execution_id, first.result_dsse)
        call = refund(mine, key=mine)
        respelled = call.__class__(_with(call.envelope, arguments_json=spelled))
        assert agent.execute(respelled).result_dsse == first.result_dsse
    assert len(effects(pay, mine)) == 1


def _with(envelope: Any, **fields: Any) -> Any:
    return dataclasses.replace(envelope, **fields)


def test_r146_a_failure_is_repeated_as_a_failure(site: LocalSite, pay: PaymentsServer) -> None:
    """R146, R145, R341: the old key gives the recorded failure; a new key is a new action with a new decision."""
    mine = order()
    pay.control(refuse=True)
    failed = run_approved(site, refund_in("effect-free", mine, key=mine))
    assert isinstance(failed, UpstreamError)
    pay.control(refuse=False)
    with site.client() as agent:
        again = agent.execute(refund_in("effect-free", mine, key=mine))
        assert isinstance(again, UpstreamError)
        assert (again.result_dsse, again.detail, again.code) == (failed.result_dsse, failed.detail, failed.code)
        fresh = agent.execute(refund_in("effect-free", mine, key=order()))
        assert isinstance(fresh, ApprovalPending)
        assert fresh.execution_id != failed.execution_id
    assert effects(pay, mine) == []


def test_r069_a_keyless_call_resumes_its_open_action(site: LocalSite, pay: PaymentsServer) -> None:
    """R067, R069, C29, R147: while it is open the identical call is the same; once closed it is a new one."""
    mine = order()
    pending = ask(site, refund(mine))
    with site.client() as agent:
        assert agent.execute(refund(mine)).execution_id == pending.execution_id
        other = agent.execute(refund(mine, amount="1.00"))
        assert other.execution_id != pending.execution_id
        approve(site, pending.approval_id)
        done = agent.execute(refund(mine))
        assert isinstance(done, Completed)
        assert done.execution_id == pending.execution_id
        assert agent.execute(refund(mine)).execution_id != pending.execution_id
    assert len(effects(pay, mine)) == 1


def test_r120_a_repeat_during_the_run_joins_it(site: LocalSite, pay: PaymentsServer) -> None:
    """R120, C8, C29: IN_PROGRESS when the wait runs out, else the same outcome; one dispatch."""
    mine = order()
    call = refund(mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    pay.control(stall_seconds=1.5)
    running = in_background(site, call)
    until(lambda: len(effects(pay, mine)) == 1)
    with site.client() as agent:
        meanwhile = agent.execute(refund(mine, key=mine, wait_seconds=0.0))
        assert isinstance(meanwhile, InProgress)
        assert (meanwhile.state, meanwhile.code, meanwhile.consumed) == ("executing", "EXECUTION_IN_PROGRESS", True)
        done = agent.execute(call)
    running.join(60)
    assert isinstance(done, Completed)
    assert len(effects(pay, mine)) == 1
    assert types(site, done.execution_id).count("execution.claimed") == 1


def test_c10_another_key_for_the_same_deed_is_refused_while_it_runs(site: LocalSite, pay: PaymentsServer) -> None:
    """C10: two keys with one intent may both wait for approval; one is consumed, the other refused at stage 9 or
    before, also when another agent asks; then the second is void: its approvers were shown another version."""
    mine = order()
    first, second = refund(mine, key=mine), refund(mine, key=order())
    approve(site, ask(site, first).approval_id)
    approve(site, ask(site, second).approval_id)
    pay.control(stall_seconds=1.5)
    running = in_background(site, first)
    until(lambda: len(effects(pay, mine)) == 1)
    with site.client() as agent, site.client("other") as other:
        with pytest.raises(CallError) as caught:
            agent.execute(second)
        assert (caught.value.reason, caught.value.consumed) in (("TWIN_UNRESOLVED", False), ("TARGET_BUSY", False))
        with pytest.raises(FailedPreconditionError) as elsewhere:
            other.execute(refund(mine, key=order()))
        assert elsewhere.value.reason == "TWIN_UNRESOLVED"
        running.join(60)
        with pytest.raises(FailedPreconditionError) as after:
            agent.execute(second)
        assert after.value.reason == "BINDING_CHANGED"  # the first changed the version that was approved
    assert len(effects(pay, mine)) == 1


@pytest.mark.parametrize("key", ["", "   ", "a\0b", "k" * 10_000], ids=["empty", "blank", "nul", "long"])
def test_idm_19_a_key_that_is_none_is_refused(site: LocalSite, key: str) -> None:
    """IDM-19: never the unprotected path instead; no state."""
    before = size(site)
    with site.client() as agent, pytest.raises(InvalidArgumentError) as caught:
        agent.execute(refund(order(), key=key))
    assert caught.value.violations[0].field == "envelope.caller_key"
    assert news(site, before) == []


def test_the_callers_key_never_travels(site: LocalSite, pay: PaymentsServer) -> None:
    """C9, R128, R129, R134: the effect key is the daemon's own; of the caller's there is a digest only."""
    mine, key = order(), f"secret-{order()}"
    done = run_approved(site, refund(mine, key=key))
    [effect] = effects(pay, mine)
    assert len(effect["effect_key"]) == 64
    assert key not in json.dumps(effect)
    assert key not in json.dumps(since(site, 0))
    digest = caller_key(tenant="acme", agent="local:agent", key=key)
    assert body(site, done.execution_id, "execution.proposed")["caller_key"] == digest
    assert statement(done.result_dsse)["predicate"]["idempotency"] == {"digest": digest, "replay": False}
