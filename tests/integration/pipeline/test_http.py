"""The HTTP adapter through the whole pipeline, and what only a server on raw sockets can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed, Held, UpstreamError
from kblockd.client.errors import Aborted, FailedPrecondition, Unavailable
from kblockd.domain.ledger import rows
from kblockd.domain.outcome import Finding
from tests.harness import approve
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import (
    LONG_LEASE,
    LocalSite,
    ask,
    body,
    in_background,
    order,
    raw_files,
    records,
    refund_in,
    run_approved,
    since,
    statement,
    types,
    until,
)
from tests.integration.pipeline.shop import Shop, accepted
from tests.upstreams.messages import said
from tests.upstreams.misbehaving import Mode

WRITE, READ = "Bearer write-5tzq", "Bearer read-8kwm"
UNUSED = "http://127.0.0.1:9/mcp"  # the upstream of the shipped contract, which nobody calls here
FINAL_LATE = [{**shops.refund_contract()["lookup"][0], "absent_final_after_seconds": 8}]
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "shop": {},
    "twice": {"execution": {"maximum_attempts": 2}},
    "twice-unversioned": {
        "execution": {"maximum_attempts": 2},
        "reads": {"snapshot": {"version": None}},
        "preflight": {"require_current_resource_version": False},
    },
    "plain": {"tool": {"name": "refund_plain"}},
    "blind": {"tool": {"effect_key": {"in": "none", "name": ""}}, "idempotency_scope": "none", "lookup": []},
    "final-late": {"execution": {"maximum_attempts": 2}, "lookup": FINAL_LATE},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Shop]:
    """One for the module."""
    with Shop() as made:
        yield made


@pytest.fixture(scope="module")
def shop_site(server: Shop) -> Iterator[LocalSite]:
    """A daemon whose contracts all go to the shop."""
    with LocalSite.make() as made:
        contracts = {f"refund.{name}": shops.contract(name, change) for name, change in ENVIRONMENTS.items()}
        clocks = {**LONG_LEASE, "reconcile_seconds": 8}
        secrets = {"write": WRITE, "read": READ}
        for name, value in secrets.items():
            made.secret(name, value)
        sources = {name: f"file:{made.folder / name}" for name in secrets}
        file = made.config.parent / "upstreams" / "shop.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(shops.upstream(server.url, sources)))
        made.configure(UNUSED, contracts=contracts, daemon={"clocks": clocks})
        made.pin("shop")
        made.start()
        yield made


@pytest.fixture
def shop(server: Shop) -> Iterator[Shop]:
    """Well again afterwards."""
    yield server
    server.well()


def posts(shop: Shop, order_id: str) -> int:
    """Requests with the effect that reached the server."""
    return sum(json.loads(request.body)["order_id"] == order_id for request in shop.calls)


@pytest.mark.parametrize("status", [200, 201])
def test_htp_03_two_hundreds_are_answers(shop_site: LocalSite, shop: Shop, status: int) -> None:
    """HTP-03, R213: proved by an independent read as the read-only identity; one request."""
    mine = order()
    shop.shop.answers[mine] = lambda row: said(status, {"ok": True, "refund_id": row["refund_id"], "status": "done"})
    done = run_approved(shop_site, refund_in("shop", mine, key=mine))
    assert isinstance(done, Completed)
    assert (done.result_class, posts(shop, mine)) == ("completed_verified", 1)
    assert done.output["output"]["status"] == "done"
    [row] = shop.shop.of(mine)
    assert row["key"] == body(shop_site, done.execution_id, "execution.sent")["effect_key"]
    used = {r.headers["authorization"]: r.method for r in shop.requests if mine in r.target or mine.encode() in r.body}
    assert used == {WRITE: "POST", READ: "GET"}  # R249


@pytest.mark.parametrize("round_", [1, 2])
def test_htp_03_out_10_accepted_work_is_followed_to_its_end(shop_site: LocalSite, shop: Shop, round_: int) -> None:
    """HTP-03, OUT-10, R212, R223 to R225: accepted is not done; its operation is recorded, polled, and then proved.
    It counts as one concurrent action and stops counting at its end: the second round may run."""
    mine = order()
    shop.shop.answers[mine] = accepted
    call = refund_in("shop", mine, key=mine)
    pending = ask(shop_site, call)
    approve(shop_site, pending.approval_id)
    running = in_background(shop_site, call)
    until(lambda: "operation.accepted" in types(shop_site, pending.execution_id))
    with shop_site.client() as agent:
        meanwhile = agent.get(execution_id=pending.execution_id).answer
    assert (meanwhile.state, meanwhile.phase, meanwhile.result_class) == ("executing", "accepted", "accepted")
    shop.shop.done.set()
    running.join(60)
    with shop_site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert (done.result_class, posts(shop, mine)) == ("completed_verified", 1)
    [row] = shop.shop.of(mine)
    predicate = statement(done.result_dsse)["predicate"]
    assert predicate["upstream"]["operationId"] == f"op-{row['refund_id']}"
    assert any(request.target == f"/operations/op-{row['refund_id']}" for request in shop.requests)


def test_htp_04_a_failure_in_the_body_is_no_success(shop_site: LocalSite, shop: Shop) -> None:
    """HTP-04, R226: with the predicate an error answer, which proves nothing; the effect is there, so the lookup finds
    it, and what the authority shows decides."""
    mine = order()
    shop.shop.answers[mine] = lambda row: said(200, {"ok": False})
    done = run_approved(shop_site, refund_in("shop", mine, key=mine))
    outcome = body(shop_site, done.execution_id, "attempt.outcome")
    assert (outcome["code"], outcome["class"], outcome["is_error"]) == ("REPORTED_FAILURE", "unknown_outcome", True)
    assert body(shop_site, done.execution_id, "finding.reconciled")["finding"] == "present"
    assert done.detail.startswith("REPORTED_FAILURE: ")
    assert posts(shop, mine) == 1


def test_htp_04_without_a_predicate_only_the_authority_decides(shop_site: LocalSite, shop: Shop) -> None:
    """HTP-04, R222, R268: 200 with {ok: false} is an answer; nothing shows at the authority, so it is held."""
    mine = order()
    shop.shop.answers[mine] = lambda row: said(200, {"ok": False})
    shop.shop.faults["/refunds"] = lambda: said(200, {"refunds": []})
    held = run_approved(shop_site, refund_in("plain", mine, key=mine))
    assert isinstance(held, Held)
    assert (held.code, held.result_class) == ("VERIFICATION_INCONCLUSIVE", "completed_unverified")


def test_htp_08_a_gateway_timeout_without_idempotency_is_held(shop_site: LocalSite, shop: Shop) -> None:
    """HTP-08, R195, R218: unknown, nothing can prove it, an operator must; never a second POST, not by repeats, not
    by a restart."""
    mine = order()
    shop.mode = Mode.GATEWAY_TIMEOUT
    call = refund_in("blind", mine, key=mine)
    held = run_approved(shop_site, call)
    assert isinstance(held, Held)
    assert (held.code, held.result_class, held.outcome_unknown) == ("HTTP_504", "unknown_outcome", True)
    shop.well()
    with shop_site.client() as agent:
        assert isinstance(agent.execute(call), Held)
        with pytest.raises(FailedPrecondition) as twin:
            agent.execute(refund_in("blind", mine, key=order()))
    assert twin.value.reason == "TWIN_UNRESOLVED"
    shop_site.restart()
    with shop_site.client() as agent:
        assert isinstance(agent.execute(call), Held)
    assert posts(shop, mine) == 1


def test_idm_18_out_05_a_refused_connection_allows_the_second_attempt(shop_site: LocalSite, shop: Shop) -> None:
    """IDM-18, OUT-05 A, R206, R282: no byte left, so attempt 2 dispatches once under the same effect key."""
    mine = order()
    call = refund_in("twice", mine, key=mine)
    pending = ask(shop_site, call)
    approve(shop_site, pending.approval_id)
    shop.deaf_after = mine
    running = in_background(shop_site, call)
    try:
        until(lambda: "recovery.planned" in types(shop_site, pending.execution_id))
    finally:
        shop.listen_again()
    running.join(60)
    with shop_site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert (done.result_class, posts(shop, mine)) == ("completed_verified", 1)
    found = records(shop_site, done.execution_id)
    assert [(r["attempt"], r["body"]["sent"]) for r in found if r["type"] == "attempt.outcome"] == [
        (1, "not_sent"),
        (2, "answered"),
    ]
    keys = {r["body"]["effect_key"] for r in found if r["type"] in ("execution.claimed", "execution.sent")}
    assert keys == {shop.shop.of(mine)[0]["key"]}
    assert statement(done.result_dsse)["predicate"]["attempts"] == "2"


def test_out_05_a_refused_connection_without_attempts_left_has_failed_before(shop_site: LocalSite, shop: Shop) -> None:
    """OUT-05 A, R216, R664, R666: recorded as UPSTREAM_FAILED, the caller gets the precise code; nothing to resolve."""
    mine = order()
    call = refund_in("shop", mine, key=mine)
    approve(shop_site, ask(shop_site, call).approval_id)
    shop.deaf_after = mine
    try:
        with shop_site.client() as agent:
            failed = agent.execute(call)
    finally:
        shop.listen_again()
    assert isinstance(failed, UpstreamError)
    assert (failed.result_class, failed.executed, failed.consumed) == ("failed_before_side_effect", False, True)
    assert failed.code == "CONNECT_FAILED"
    assert failed.detail.startswith("CONNECT_FAILED: ")
    assert body(shop_site, failed.execution_id, "result.sealed")["code"] == "UPSTREAM_FAILED"
    assert posts(shop, mine) == 0
    with shop_site.client() as agent:
        again = agent.execute(call)
        assert (again.result_dsse, again.replayed) == (failed.result_dsse, True)  # R146
        fresh = refund_in("shop", mine, key=order())
        approve(shop_site, ask(shop_site, fresh).approval_id)  # R145: a new key is a new action with a new decision
        assert isinstance(agent.execute(fresh), Completed)


@pytest.mark.parametrize(
    ("mode", "state", "finding"),
    [(Mode.DROP_BEFORE_EFFECT, "failed", "absent"), (Mode.DROP_AFTER_EFFECT, "succeeded", "present")],
)
def test_out_05_b_a_reset_after_the_request_is_unknown(
    shop_site: LocalSite, shop: Shop, mode: Mode, state: str, finding: str
) -> None:
    """OUT-05 B, HTP-01: the server read the request and closed; only the lookup tells the two apart."""
    mine = order()
    shop.mode = mode
    answer = run_approved(shop_site, refund_in("shop", mine, key=mine))
    assert body(shop_site, answer.execution_id, "attempt.outcome")["class"] == "unknown_outcome"
    assert body(shop_site, answer.execution_id, "finding.reconciled")["finding"] == finding
    assert (answer.state, posts(shop, mine)) == (state, 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda: said(403, {"error": "forbidden"}), id="403"),
        pytest.param(lambda: said(404, {"refunds": []}), id="404"),
        pytest.param(lambda: said(500, {"refunds": [{"amount": "100.00", "currency": "EUR"}]}), id="500"),
        pytest.param(lambda: said(200, {"refunds": []}), id="empty-page"),
        pytest.param(lambda: shops.Reply(200, body=b""), id="empty-body"),
        pytest.param(lambda: shops.Reply(200, body=b"<html>"), id="no-json"),
    ],
)
def test_ver_04_a_read_that_fails_is_inconclusive(shop_site: LocalSite, shop: Shop, answer: Any) -> None:
    """VER-04, R268: neither success nor failure, whatever the error page looks like."""
    mine = order()
    shop.shop.faults["/refunds"] = answer
    held = run_approved(shop_site, refund_in("shop", mine, key=mine))
    assert isinstance(held, Held)
    assert (held.code, posts(shop, mine)) == ("VERIFICATION_INCONCLUSIVE", 1)
    assert body(shop_site, held.execution_id, "finding.verified")["verdict"] == "inconclusive"


def test_ver_04_a_read_that_never_answers_is_inconclusive_within_the_bound(shop_site: LocalSite, shop: Shop) -> None:
    """VER-04, R261: a stalled read does not outlast the bound of the verification by its own time-out."""
    mine = order()
    stalled = shops.threading.Event()
    shop.shop.faults["/refunds"] = lambda: said(200, {"stalled": stalled.wait(60)})
    try:
        held = run_approved(shop_site, refund_in("shop", mine, key=mine))
    finally:
        stalled.set()
    assert isinstance(held, Held)
    verified = [r for r in records(shop_site, held.execution_id) if r["type"] == "finding.verified"]
    assert [r["body"]["verdict"] for r in verified] == ["inconclusive"]
    took = sum(
        us for r in records(shop_site, held.execution_id) for stage, us in r["body"].get("stages", []) if stage == 14
    )
    assert took < 8_000_000


def test_a_late_answer_decides_the_reconciliation(shop_site: LocalSite, shop: Shop) -> None:
    """C3, RPC-09: after the deadline it is evidence; with nothing else to go by it proves the effect, and the caller
    gets what it said."""
    mine = order()
    shop.mode, shop.shop.refunds.hidden = Mode.LATE, True
    call = refund_in("final-late", mine, key=mine)
    pending = ask(shop_site, call)
    approve(shop_site, pending.approval_id)
    running = in_background(shop_site, call)
    until(lambda: "attempt.outcome" in types(shop_site, pending.execution_id))
    shop.release()
    running.join(60)
    with shop_site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert (done.result_class, posts(shop, mine)) == ("completed_verified", 1)
    assert done.output == {"output": {"refund_id": shop.shop.of(mine)[0]["refund_id"], "status": "succeeded"}}
    outcomes = [r for r in records(shop_site, done.execution_id) if r["type"] == "attempt.outcome"]
    assert [(r["attempt"], r["body"]["late"], r["body"]["class"]) for r in outcomes] == [
        (1, False, "unknown_outcome"),
        (1, True, "completed_unverified"),
    ]
    assert body(shop_site, done.execution_id, "finding.reconciled")["by"] == "late_answer"


def test_r080_a_precondition_that_is_met_later_lets_the_approved_action_run(shop_site: LocalSite, shop: Shop) -> None:
    """R079, R080, R087, R105: refused, approval not used; fixed in time it runs, with the same approval."""
    mine = order()
    shop.shop.unpaid.add(mine)
    call = refund_in("shop", mine, key=mine)
    pending = ask(shop_site, call)
    approve(shop_site, pending.approval_id)
    with shop_site.client() as agent:
        with pytest.raises(FailedPrecondition) as refused:
            agent.execute(call)
        assert (refused.value.reason, refused.value.consumed) == ("PRECONDITION_FAILED", False)
        assert agent.get(execution_id=pending.execution_id).answer.state == "approved"
        shop.shop.unpaid.clear()
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert types(shop_site, done.execution_id).count("approval.requested") == 1
    assert posts(shop, mine) == 1


def test_r077_a_credential_that_cannot_be_read_consumes_nothing(
    shop_site: LocalSite, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """R077, R079, R080: found out before the consumption; the operator learns where it lies, no agent does."""
    mine = order()
    call = refund_in("shop", mine, key=mine)
    approve(shop_site, ask(shop_site, call).approval_id)
    secret = shop_site.folder / "write"
    secret.rename(shop_site.folder / "away")
    try:
        with shop_site.client() as agent, pytest.raises(FailedPrecondition) as refused:
            agent.execute(call)
    finally:
        (shop_site.folder / "away").rename(secret)
    assert (refused.value.reason, refused.value.consumed) == ("PREFLIGHT_FAILED", False)
    assert "CREDENTIAL_UNREADABLE: upstream shop cannot be used" in str(refused.value)
    assert str(secret) not in str(refused.value) + refused.value.next_step
    assert f"CREDENTIAL_UNREADABLE: {secret}: No such file" in caplog.text
    assert WRITE not in str(refused.value) + caplog.text
    with shop_site.client() as agent:
        assert isinstance(agent.execute(call), Completed)
    assert posts(shop, mine) == 1


def test_r083_a_target_that_cannot_be_read_consumes_nothing(shop_site: LocalSite, shop: Shop) -> None:
    """R083, R080: no evidence is no evidence; UNAVAILABLE, and it runs when the authority answers again."""
    mine = order()
    call = refund_in("shop", mine, key=mine)
    approve(shop_site, ask(shop_site, call).approval_id)
    shop.shop.faults[f"/orders/{mine}"] = lambda: said(500, {"status": "paid"})
    with shop_site.client() as agent:
        with pytest.raises(Unavailable) as refused:
            agent.execute(call)
        assert (refused.value.reason, refused.value.consumed) == ("UPSTREAM_UNAVAILABLE", False)
        shop.well()
        assert isinstance(agent.execute(call), Completed)
    assert posts(shop, mine) == 1


def test_credentials_stay_where_they_belong(shop_site: LocalSite, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """R177, R631, R527: an upstream that repeats the credential in its answer does not get it into output, ledger,
    store or log; the reads never see the write identity."""
    mine = order()
    shop.mode = Mode.ECHO_CREDENTIAL
    shop.shop.answers[mine] = lambda row: said(
        201, {"ok": True, "refund_id": f"echo {WRITE}", "status": WRITE, "more": [WRITE.upper(), READ]}
    )
    done = run_approved(shop_site, refund_in("shop", mine, key=mine))
    assert isinstance(done, Completed)
    assert WRITE not in json.dumps(done.output)
    assert "write-5tzq" not in json.dumps(since(shop_site, 0))
    assert "write-5tzq" not in caplog.text
    shop_site.stop()
    try:
        assert [name for name, data in raw_files(shop_site) if b"write-5tzq" in data] == []
    finally:
        shop_site.start()
    reads = [r for r in shop.requests if r.method == "GET" and mine in r.target]
    assert {r.headers.get("authorization") for r in reads} == {READ}


def test_out_04_an_oversized_answer_is_no_failure(shop_site: LocalSite, shop: Shop) -> None:
    """OUT-04, C26, R181: too large to keep is not "failed before": unknown, looked up, proved."""
    mine = order()
    shop.shop.answers[mine] = lambda row: said(201, {"ok": True, "refund_id": "x" * (3 << 20)})
    done = run_approved(shop_site, refund_in("shop", mine, key=mine))
    assert isinstance(done, Completed)
    assert (done.result_class, posts(shop, mine)) == ("completed_verified", 1)
    assert done.detail.startswith("RESPONSE_TOO_LARGE")


def _held(site: LocalSite, shop: Shop, order_id: str) -> Answer:
    """A call whose request was read and dropped without effect, and that nothing can prove."""
    shop.mode = Mode.DROP_BEFORE_EFFECT
    held = run_approved(site, refund_in("blind", order_id, key=order()))
    shop.mode = Mode.OK
    assert isinstance(held, Held)
    return held


def test_c10_a_second_disposition_frees_nobody_elses_guard(shop_site: LocalSite, shop: Shop) -> None:
    """C10: once freed, the twin may be another execution's; what is said later of the first one leaves it alone."""
    mine = order()
    with shop_site.client("operator") as operator, shop_site.client() as agent:
        first = _held(shop_site, shop, mine)
        operator.resolve(first.execution_id, Finding.UNPROVABLE, "nobody knows")
        operator.resolve(first.execution_id, Finding.ABSENT, "it is not there")
        second = _held(shop_site, shop, mine)
        operator.resolve(first.execution_id, Finding.ABSENT, "looked once more")
        with pytest.raises(FailedPrecondition) as twin:
            agent.execute(refund_in("blind", mine, key=order()))
    assert (twin.value.reason, twin.value.execution_id) == ("TWIN_UNRESOLVED", second.execution_id)


def test_c20_who_resolves_one_action_does_not_unlock_anothers_target(shop_site: LocalSite, shop: Shop) -> None:
    """C20, R164: a manual hold gives the target up; another action takes it; sealing the first leaves it locked."""
    mine = order()
    first = _held(shop_site, shop, mine)
    second = refund_in("final-late", mine, key=order(), amount="5.00")
    third = refund_in("shop", mine, key=order(), amount="7.00")
    for call in (second, third):
        approve(shop_site, ask(shop_site, call).approval_id)
    shop.mode, shop.shop.refunds.hidden = Mode.LATE, True
    running = in_background(shop_site, second)
    until(lambda: posts(shop, mine) == 2)
    with shop_site.client("operator") as operator, shop_site.client() as agent:
        operator.resolve(first.execution_id, Finding.ABSENT, "it is not there")
        target = rows.target("acme", "shop", "order", mine)
        locked = shop_site.run(shop_site.daemon.parts.store.get(target))
        with pytest.raises(Aborted) as busy:
            agent.execute(third)
    shop.release()
    running.join(60)
    assert locked is not None
    assert busy.value.reason == "TARGET_BUSY"
    assert shop_site.run(shop_site.daemon.parts.store.get(target)) is None


@pytest.mark.parametrize("environment", ["twice", "twice-unversioned"])
def test_ups_07_a_target_that_moved_since_a_lost_attempt_is_no_proof_of_absence(
    shop_site: LocalSite, shop: Shop, environment: str
) -> None:
    """UPS-07: the look-up wrongly says absent for ever, and the target shows that somebody has refunded. Neither a
    second effect nor "nothing happened" follows: an operator decides."""
    mine = order()
    shop.shop.refunds.hidden = True
    shop.misbehave(Mode.DROP_AFTER_EFFECT, calls=1)
    held = run_approved(shop_site, refund_in(environment, mine, key=mine))
    assert isinstance(held, Held), held
    assert (held.code, held.result_class, held.outcome_unknown) == ("TARGET_CHANGED", "unknown_outcome", True)
    assert body(shop_site, held.execution_id, "finding.reconciled")["finding"] == "absent"
    assert (posts(shop, mine), len(shop.shop.of(mine))) == (1, 1)
    with shop_site.client("operator") as operator:
        sealed = operator.resolve(held.execution_id, Finding.PRESENT, "seen in the books")
    assert sealed.state == "succeeded"
