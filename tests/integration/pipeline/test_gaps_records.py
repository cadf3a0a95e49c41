"""What must be on record or in a trace whatever happens: a lost lease, the snapshot before the call, identifiers of the
upstream, polls; and the conditions of an envelope, which reach the policies."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kblockd.client.answers import Completed, Held
from kblockd.client.errors import FailedPreconditionError, InvalidArgumentError
from kblockd.domain.clock import Clock
from kblockd.execution.load import value_of
from tests.harness import approve, merged, refund_contract
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    in_background,
    news,
    order,
    records,
    refund_in,
    run_approved,
    since,
    size,
    types,
    until,
)
from tests.integration.pipeline.shop import Shop, accepted, created
from tests.upstreams.messages import Reply, said
from tests.upstreams.otlp_receiver import OtlpReceiver, Received
from tests.upstreams.payments import PaymentsServer

SHOPS: dict[str, dict[str, Any]] = {
    "shop": {"verification": {"maximum_duration_seconds": 30}},
    "polled": {"verification": {"maximum_duration_seconds": 30}},
    "patient": {"execution": {"request_timeout_seconds": 15}},
    "demanding": {"verification": {"maximum_duration_seconds": 1}},
    "keyed": {"execution": {"require_idempotency_key": True}},
}
_SNAPSHOT = "snapshot_known if is_object(input.snapshot)\n"
DEMANDS_AT_8 = (
    _SNAPSHOT,
    _SNAPSHOT
    + """
problems contains {"code": "CALLERS_PRECONDITION", "message": "the target is not as the caller expects"} if {
	some key, value in input.envelope.preconditions
	not input.snapshot[key] == value
}
""",
)
_READABLE = "default wanted := 1\n"
DEMANDS_AT_14 = (
    _READABLE,
    _READABLE
    + """
violations contains {"code": "CALLERS_POSTCONDITION", "message": "the target is not as the caller wants it"} if {
	some key, value in input.envelope.postconditions
	some row in input.read.refunds
	not row[key] == value
}
""",
)


@dataclass(frozen=True)
class World:
    """One daemon over both upstreams, whose policies know the conditions of an envelope; every trace is exported."""

    site: LocalSite
    shop: Shop
    pay: PaymentsServer
    collector: OtlpReceiver

    def trace(self, operation: Callable[[Received], bool]) -> list[Received]:
        """The spans of the newest run that fits, its root first, once they have come."""
        found: list[Received] = []

        def came() -> bool:
            spans = self.collector.spans()
            roots = [s for s in spans if s.name == "kblock.execution" and operation(s)]
            if roots:
                found[:] = sorted((s for s in spans if s.trace_id == roots[-1].trace_id), key=lambda s: s.start_ns)
            return bool(roots)

        until(came)
        return found


@pytest.fixture(scope="module")
def made(payments: PaymentsServer) -> Iterator[World]:
    """For the module."""
    with OtlpReceiver() as collector, Shop() as shop, LocalSite.make() as site:
        _configure(site, shop, payments, collector)
        site.start()
        yield World(site, shop, payments, collector)


@pytest.fixture
def world(made: World, pay: PaymentsServer) -> Iterator[World]:
    """Both upstreams are well again afterwards."""
    yield made
    made.shop.well()


def _configure(site: LocalSite, shop: Shop, payments: PaymentsServer, collector: OtlpReceiver) -> None:
    for name in ("write", "read"):
        site.secret(name, f"Bearer {name}-7hvq")
    sources = {name: f"file:{site.folder / name}" for name in ("write", "read")}
    document = merged(shops.upstream(shop.url, sources), {"settings": {"request_ids": {"request": "X-Request-Id"}}})
    file = site.config.parent / "upstreams" / "shop.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(document))
    contracts = {f"refund.{name}": shops.contract(name, change) for name, change in SHOPS.items()}
    twice = {"action": {"environment": "twice"}, "execution": {"maximum_attempts": 2}}
    site.configure(
        payments.url,
        contracts={**contracts, "refund.production": refund_contract(), "refund.twice": refund_contract(twice)},
        daemon={
            "clocks": {**LONG_LEASE, "reconcile_seconds": 8},
            "telemetry": {"otlp": collector.endpoint, "sample_ratio": 1.0, "trust_parent_sampling": []},
        },
        upstream=PATIENT_BREAKER,
    )
    site.edit_policy("preconditions.rego", *DEMANDS_AT_8)
    site.edit_policy("actions/issue_refund.rego", *DEMANDS_AT_14)
    site.pin("shop")
    site.pin()


@dataclass(frozen=True)
class _Ahead:
    """The daemon's clock as it reads after the daemon stood still for a while."""

    clock: Clock
    seconds: float

    def monotonic(self) -> float:
        return self.clock.monotonic() + self.seconds

    def now(self) -> dt.datetime:
        return self.clock.now() + dt.timedelta(seconds=self.seconds)


def test_r166_a_lease_that_ended_while_its_holder_was_held_up_is_on_record(world: World) -> None:
    """R166, R160: a heartbeat moves the end of a lease; one that is past it is lost for good, once on record with its
    fence; whatever becomes of the execution, nothing is sent again."""
    mine, answered = order(), threading.Event()
    call = refund_in("patient", mine, key=mine)

    def wait(row: dict[str, Any]) -> Reply:
        answered.wait(60)
        return created(row)

    world.shop.shop.answers[mine] = wait
    pending = ask(world.site, call)
    approve(world.site, pending.approval_id)
    before = size(world.site)
    running = in_background(world.site, call)
    try:
        until(lambda: bool(world.shop.shop.of(mine)))
        assert world.site.run(_beat(world.site, pending.execution_id)) == (True, False, False)
        until(lambda: bool(_lost(world.site, before, pending.execution_id)))
    finally:
        answered.set()
        running.join(60)
    with world.site.client() as agent:
        until(lambda: agent.get(execution_id=pending.execution_id).answer.state != "executing")
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert len(world.shop.shop.of(mine)) == 1
    found = records(world.site, pending.execution_id)
    [lost] = _lost(world.site, before, pending.execution_id)
    [claimed] = [record for record in found if record["type"] == "execution.claimed"]
    assert (lost["stage"], lost["attempt"], lost["body"]) == (6, 1, {"fence": claimed["body"]["fence"]})
    assert claimed["body"]["lease_ttl_seconds"] == LONG_LEASE["lease_ttl_seconds"]
    assert [r["type"] for r in found].count("execution.sent") == 1


def _lost(site: LocalSite, index: int, execution_id: str) -> list[dict[str, Any]]:
    """It is on record and no row lists it, so the whole ledger is read."""
    return [r for r in since(site, index) if (r["type"], r["execution"]) == ("lease.lost", execution_id)]


async def _beat(site: LocalSite, execution_id: str) -> tuple[bool, bool, bool]:
    """Whether the lease is live after a heartbeat in time, after one too late, and after one more in time."""
    assert site.daemon is not None
    leases = site.daemon.parts.leases
    clock, ttl = leases.clock, leases.ttl
    live = []
    try:
        for ahead in (ttl / 2, ttl, 3 * ttl, 0.0):  # the second is past the end that the first one moved
            leases.clock = _Ahead(clock, ahead)  # type: ignore[assignment]  # nothing sleeps by it
            leases.renew()
            live.append(leases.live(execution_id))
    finally:
        leases.clock = clock
    assert live[0]
    return live[1], live[2], live[3]


def test_r491_the_snapshot_is_on_record_before_the_call(world: World) -> None:
    """R491, R593, R323, R100: the consumption names the digest of what was read at 7, the lease and the digests of the
    decision; its payload is the target as it was, and it stands before the send marker."""
    mine = order()
    world.shop.shop.orders[mine] = {"note": "as it was"}
    done = run_approved(world.site, refund_in("shop", mine, key=mine))
    assert isinstance(done, Completed)
    found = types(world.site, done.execution_id)
    assert found.index("execution.claimed") < found.index("execution.sent")
    claimed = body(world.site, done.execution_id, "execution.claimed")
    assert len(claimed["snapshot_sha256"]) == 64
    assert world.site.daemon is not None
    parts = world.site.daemon.parts
    kept = world.site.run(value_of(parts, done.execution_id, claimed["snapshot_sha256"]))
    before = {"order_id": mine, "exists": True, "version": 1, "status": "paid", "amount": "100.00", "currency": "EUR"}
    assert kept == {**before, "refunded": "0.00", "note": "as it was"}
    assert claimed["target_version"] == "1"
    assert claimed["fence"]["counter"] >= 1
    assert claimed["holder"]
    assert len(claimed["input_sha256"]) == 64
    proposed = body(world.site, done.execution_id, "execution.proposed")
    assert proposed["action_sha256"] == done.action_sha256


def test_r202_the_json_rpc_id_is_on_record(world: World) -> None:
    """R202, R493, R750: the id of the MCP request in the record of the attempt."""
    mine = order()
    done = run_approved(world.site, refund_in("production", mine, key=mine))
    assert isinstance(done, Completed)
    outcome = body(world.site, done.execution_id, "attempt.outcome")
    assert outcome["request_ids"]["jsonrpc"].isdigit()


def test_r202_the_request_and_operation_of_an_http_upstream_are_on_record(world: World) -> None:
    """R202, R493, R750: the header that the configuration names, and the operation that the upstream gave."""
    mine = order()
    named = {"content-type": "application/json", "x-request-id": f"req-{mine}"}
    world.shop.shop.answers[mine] = lambda row: Reply(202, named, accepted(row).body)
    world.shop.shop.done.set()
    done = run_approved(world.site, refund_in("shop", mine, key=mine))
    assert isinstance(done, Completed)
    [row] = world.shop.shop.of(mine)
    first = next(r["body"] for r in records(world.site, done.execution_id) if r["type"] == "attempt.outcome")
    assert first["request_ids"] == {"request": f"req-{mine}"}
    assert first["operation"] == f"op-{row['refund_id']}"


def test_r515_each_poll_is_a_span_around_its_questions(world: World) -> None:
    """R515, R516: of an accepted operation at 13 and of the authority at 14; pauses between them are in none."""
    mine = order()
    world.shop.shop.answers[mine] = accepted
    call = refund_in("polled", mine, key=mine)
    approve(world.site, ask(world.site, call).approval_id)
    reads = iter([said(200, {"refunds": []})])  # the authority lags by one read
    world.shop.shop.faults["/refunds"] = lambda: next(reads, None) or _refunds(world.shop, mine)
    running = in_background(world.site, call)
    until(lambda: sum(request.target.startswith("/operations/") for request in world.shop.requests) >= 2)
    world.shop.shop.done.set()
    running.join(60)
    tree = world.trace(lambda root: _is(root, "polled", "succeeded"))
    stages = {s.span_id: s.name for s in tree}
    polls = [s for s in tree if s.name == "kblock.poll"]
    asked = [stages[poll.parent_id] for poll in polls]
    assert asked.count("kblock.reconcile") >= 2
    assert asked == ["kblock.reconcile"] * (len(asked) - 2) + ["kblock.verify"] * 2
    inside = {poll.span_id: [s for s in tree if s.parent_id == poll.span_id] for poll in polls}
    kinds = {"kblock.reconcile": ["poll"], "kblock.verify": ["read"]}
    for poll in polls:
        assert [s.attributes["kblock.call"] for s in inside[poll.span_id]] == kinds[stages[poll.parent_id]]
    assert all(one.end_ns <= two.start_ns for one, two in itertools.pairwise(polls))
    pairs = [(one, two) for one, two in itertools.pairwise(polls) if one.parent_id == two.parent_id]
    assert min(two.start_ns - one.end_ns for one, two in pairs) > 500_000_000  # poll_interval_seconds is 1


def _refunds(shop: Shop, order_id: str) -> Reply:
    return said(200, {"refunds": shop.shop.of(order_id)})


def _is(root: Received, environment: str, state: str) -> bool:
    return (root.attributes.get("kblock.environment"), root.attributes.get("kblock.state")) == (environment, state)


def test_r526_the_root_says_what_was_decided_done_and_proved(world: World) -> None:
    """R520 to R526, R528: attributes of the root of a run that needed a second attempt, as they arrive over OTLP, and
    the plan on its stage (R517); a lookup at 13 is a poll too (R515)."""
    mine = order()
    call = refund_in("twice", mine, key=mine)
    pending = ask(world.site, call)
    approve(world.site, pending.approval_id)
    world.pay.control(refuse=True)
    running = in_background(world.site, call)
    until(lambda: "attempt.outcome" in types(world.site, pending.execution_id))
    world.pay.control(refuse=False)
    running.join(60)
    tree = world.trace(lambda root: _is(root, "twice", "succeeded"))
    root = next(s for s in tree if s.name == "kblock.execution")
    said_of_it = {name.removeprefix("kblock."): value for name, value in root.attributes.items()}
    version = said_of_it.pop("server.version")
    assert str(version)[0].isdigit()
    assert (
        said_of_it.items()
        >= {
            "agent": "local:agent",
            "operation": "payment.refund.create",
            "environment": "twice",
            "upstream": "payments",
            "tool": "refund",
            "policy.effect": "require_approval",
            "state": "succeeded",
            "result_class": "completed_verified",
            "recovery": "retry",
            "verification": "expected",
            "attempt": 2,
        }.items()
    )
    assert {s.attributes.get("kblock.recovery") for s in tree if s.name == "kblock.recover"} >= {"retry"}
    names = {s.span_id: s.name for s in tree}
    lookups = [s for s in tree if s.attributes.get("kblock.call") == "lookup"]
    assert {names[s.parent_id] for s in lookups} == {"kblock.poll"}


def test_r569_a_contract_that_wants_a_key_refuses_a_call_without_one(world: World) -> None:
    """R569: INVALID_ARGUMENT naming the field; nothing is recorded; with a key the same call is asked about."""
    mine = order()
    before = size(world.site)
    with world.site.client() as agent, pytest.raises(InvalidArgumentError) as refused:
        agent.execute(refund_in("keyed", mine))
    assert [violation.field for violation in refused.value.violations] == ["envelope.caller_key"]
    assert (refused.value.executed, refused.value.consumed) == (False, False)
    assert [r["type"] for r in news(world.site, before) if r["type"] != "call.refused"] == []
    assert ask(world.site, refund_in("keyed", mine, key=mine)).approval_id


def test_r023_the_callers_preconditions_are_judged_at_8(world: World) -> None:
    """R023: the policy compares them with the snapshot; what does not hold consumes nothing and stays approved."""
    mine = order()
    call = refund_in("shop", mine, key=mine, preconditions={"customer": "gold"})
    pending = ask(world.site, call)
    approve(world.site, pending.approval_id)
    with world.site.client() as agent:
        with pytest.raises(FailedPreconditionError) as refused:
            agent.execute(call)
        assert (refused.value.reason, refused.value.consumed) == ("PRECONDITION_FAILED", False)
        assert "CALLERS_PRECONDITION" in str(refused.value)
        assert agent.get(execution_id=pending.execution_id).answer.state == "approved"
        assert "execution.claimed" not in types(world.site, pending.execution_id)
        world.shop.shop.orders[mine] = {"customer": "gold"}
        assert isinstance(agent.execute(call), Completed)
    assert len(world.shop.shop.of(mine)) == 1


@pytest.mark.parametrize(("currency", "verdict"), [("EUR", "expected"), ("USD", "prohibited")])
def test_r024_the_callers_postconditions_are_judged_at_14(world: World, currency: str, verdict: str) -> None:
    """R024: the policy compares them with what the authority shows; a wish that it does not show is no success."""
    mine = order()
    done = run_approved(world.site, refund_in("demanding", mine, key=mine, postconditions={"currency": currency}))
    verified = body(world.site, done.execution_id, "finding.verified")
    assert verified["verdict"] == verdict
    assert verified["reasons"] == ([] if verdict == "expected" else ["CALLERS_POSTCONDITION"])
    assert isinstance(done, Completed if verdict == "expected" else Held)
    assert len(world.shop.shop.of(mine)) == 1
