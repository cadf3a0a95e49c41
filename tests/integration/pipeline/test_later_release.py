"""A release to come, with a contract key of its own, over the ledger of this one: what was agreed on stays readable, or
what rests on it ends by where it stands. So does whatever rests on a payload that is gone or was altered."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from click.testing import CliRunner

from kblockd import daemon
from kblockd.approvals.service import UNREADABLE
from kblockd.cli.kblockd import kblockd
from kblockd.client.answers import Answer, Completed, Denied, Held
from kblockd.client.errors import CallError, FailedPreconditionError
from kblockd.config import sources
from kblockd.domain.contract.model import ActionContract
from kblockd.domain.contract.words import ADDED
from kblockd.domain.ledger import rows, table
from kblockd.domain.outcome import Finding
from kblockd.store.protocol import Payload
from tests.harness import approve
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    order,
    refund_in,
    run_approved,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

PARSING = importlib.import_module("kblockd.domain.contract.parse")  # the package has a function of that name
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "production": {},
    "slow": {"verification": {"maximum_duration_seconds": 120}},
}


class Required(ActionContract):
    """The contract of a release that asks for more."""

    settlement: Literal["same_day", "next_day"]


class Optional(ActionContract):
    """The contract of a release that offers more."""

    settlement: Annotated[Literal["same_day", "next_day"], ADDED] = "same_day"


@dataclass
class Before:
    """What this release did."""

    site: LocalSite
    finished: Completed
    executing: str
    approved: str
    orders: dict[str, str]

    def call(self, name: str) -> Any:
        """The identical call."""
        environment = "slow" if name == "executing" else "production"
        return refund_in(environment, self.orders[name], self.orders[name])

    def repeat(self, name: str) -> Answer:
        """Called once more."""
        with self.site.client() as agent:
            return agent.execute(self.call(name))

    def state(self, execution_id: str) -> str:
        """As the ledger has it."""
        with self.site.client("operator") as operator:
            return str(operator.get(execution_id=execution_id).answer.state)


@pytest.fixture
def before(pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Before]:
    """One execution finished, one being verified, one approved; then the daemon stops."""
    monkeypatch.setattr(daemon, "GRACE_SECONDS", 0.5)  # it would wait for what is being verified
    with LocalSite.make() as site:
        site.configure(
            pay.url,
            contracts=variants(ENVIRONMENTS),
            daemon={"clocks": {**LONG_LEASE, "close_after_seconds": 200}},
            upstream=PATIENT_BREAKER,
        )
        site.pin()
        site.start()
        made = Before(site, None, "", "", {name: order() for name in ("finished", "executing", "approved")})  # type: ignore[arg-type]  # known below
        finished = run_approved(site, made.call("finished"))
        assert isinstance(finished, Completed)
        waiting = ask(site, made.call("approved"))
        approve(site, waiting.approval_id)
        pay.control(list_lag_seconds=600.0)
        begun = ask(site, made.call("executing"))
        approve(site, begun.approval_id)
        thread = threading.Thread(target=abandoned, args=(made,))
        thread.start()
        until(lambda: made.state(begun.execution_id) == "executing" and bool(sent(site, begun.execution_id)))
        made.finished, made.executing, made.approved = finished, begun.execution_id, waiting.execution_id
        site.stop()
        thread.join()
        yield made


def abandoned(made: Before) -> None:
    """Called, and the daemon stops before there is an answer."""
    with suppress(CallError):
        made.repeat("executing")


def sent(site: LocalSite, execution_id: str) -> list[str]:
    """What is on record of an effect that was shown to be sent."""
    leaves = site.reader.read_ledger(execution_id=execution_id, limit=200).leaves
    return [leaf for _, leaf in leaves if json.loads(leaf).get("type") == "attempt.outcome"]


def release(monkeypatch: pytest.MonkeyPatch, contract: type[ActionContract]) -> None:
    """The daemon is of this release from its next start on."""
    for module in (PARSING, sources):
        monkeypatch.setattr(module, "ActionContract", contract)


def configure(site: LocalSite, **keys: Any) -> None:
    """The new key in every contract."""
    for environment in ENVIRONMENTS:
        site.rewrite(lambda document: document.update(keys), f"actions/refund.{environment}.yaml")


def test_a_required_key_ends_what_rests_on_contracts_without_it(
    before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat of what is done answers as before; what executes is held, and can be resolved; the approved is void."""
    site = before.site
    release(monkeypatch, Required)
    configure(site, settlement="same_day")
    site.start()
    again = before.repeat("finished")
    assert isinstance(again, Completed)
    assert (again.replayed, again.output) == (True, before.finished.output)
    until(lambda: before.state(before.executing) == "held")
    held = before.repeat("executing")
    assert isinstance(held, Held)
    assert (held.code, held.executed) == ("STORED_UNREADABLE", True)
    cancelled = before.repeat("approved")
    assert isinstance(cancelled, Denied)
    assert (cancelled.state, cancelled.code, cancelled.executed) == ("cancelled", "STORED_UNREADABLE", False)
    with site.client("operator") as operator:
        operator.resolve(before.executing, Finding.PRESENT, "seen in the provider's books")
    sealed = before.repeat("executing")
    assert (sealed.state, sealed.result_class, bool(sealed.receipt_dsse)) == ("succeeded", "completed_verified", True)


def test_an_optional_key_changes_no_digest_and_the_past_is_replayed(
    before: Before, monkeypatch: pytest.MonkeyPatch, pay: PaymentsServer
) -> None:
    """What executes goes on, the approved runs, and every decision of the past gives its digest."""
    site = before.site
    release(monkeypatch, Optional)
    pay.control(list_lag_seconds=0.0)
    site.start()
    assert before.repeat("finished").replayed
    assert isinstance(before.repeat("approved"), Completed)
    until(lambda: before.state(before.executing) == "succeeded")
    replayed(site)


def test_an_optional_key_that_is_set_voids_what_was_approved_without_it(
    before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another contract is another action; the past is read by the contracts of the past."""
    site = before.site
    release(monkeypatch, Optional)
    configure(site, settlement="next_day")
    site.start()
    assert before.repeat("finished").replayed
    with pytest.raises(CallError) as refused:
        before.repeat("approved")
    assert refused.value.reason == "BINDING_CHANGED"
    replayed(site)


DAMAGES: dict[str, Any] = {
    "gone": lambda data: None,
    "garbage": lambda data: b"\x00" + data[1:],
    "altered": lambda data: data.replace(b"refund", b"Refund").replace(b"100.00", b"900.00"),  # canonical all the same
}


def damage(site: LocalSite, execution_id: str, field: str, how: str) -> None:
    """What the execution's row names by ``field`` is no longer what was stored; counts from the next read on."""
    assert site.daemon is not None
    store = site.daemon.parts.store
    row = site.run(store.get(rows.execution(execution_id)))[1]
    if field == "presentation_payload":
        row = site.run(store.get(rows.approval(row.approval_id)))[1]
    digest = getattr(row, field)
    key = rows.payload("contract" if field == "contract_sha256" else execution_id, digest)
    stored = site.run(store.payload(key))
    after = DAMAGES[how](stored)
    assert after != stored
    site.run(store.delete_payload(key) if after is None else store.commit([], [], [Payload(key, after)]))


@pytest.mark.parametrize("how", DAMAGES)
def test_a_call_that_is_not_what_was_stored_is_never_acted_on(before: Before, pay: PaymentsServer, how: str) -> None:
    """Held and resolved, or void; an amount that nobody approved is not sent."""
    site = before.site
    site.start()
    approved, executing = before.approved, before.executing
    damage(site, approved, "call_sha256", how)
    damage(site, executing, "call_sha256", how)
    site.restart()
    cancelled = before.repeat("approved")
    assert isinstance(cancelled, Denied)
    assert (cancelled.state, cancelled.code, cancelled.executed) == ("cancelled", "STORED_UNREADABLE", False)
    held_and_resolved(before)
    assert {effect["amount"] for effect in pay.effects() if effect["order_id"] in before.orders.values()} == {"100.00"}


def held_and_resolved(before: Before) -> None:
    """What executes ends by an operator's word."""
    site = before.site
    until(lambda: before.state(before.executing) == "held")
    held = before.repeat("executing")
    assert isinstance(held, Held)
    assert (held.code, held.executed) == ("STORED_UNREADABLE", True)
    with site.client("operator") as operator:
        operator.resolve(before.executing, Finding.PRESENT, "seen in the provider's books")
    sealed = before.repeat("executing")
    assert (sealed.state, bool(sealed.receipt_dsse)) == ("succeeded", True)


@pytest.mark.parametrize("how", ["garbage", "altered"])
def test_an_answer_that_is_not_what_was_stored_is_not_judged(before: Before, how: str) -> None:
    """Its execution is held, and can be resolved although the answer cannot be read for its seal either."""
    site = before.site
    site.start()
    damage(site, before.executing, "output_sha256", how)
    site.restart()
    held_and_resolved(before)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("field", ["output_sha256", "contract_sha256"])
def test_what_is_sealed_answers_without_what_cannot_be_read(before: Before, field: str, how: str) -> None:
    """With its evidence and what can still be shown: nothing of an output that differs from what was sealed."""
    site = before.site
    site.rewrite(lambda document: document.update(version=document["version"] + 1), "actions/refund.production.yaml")
    site.start()
    execution_id = before.finished.execution_id
    damage(site, execution_id, field, how)
    again = before.repeat("finished")
    assert isinstance(again, Completed)
    assert (again.replayed, again.receipt_dsse) == (True, before.finished.receipt_dsse)
    assert again.output in ({}, {"output": {}})
    with site.client("operator") as operator:
        assert execution_id in {answer.execution_id for answer in operator.list().items}
        assert operator.get(execution_id=execution_id).events


@pytest.mark.parametrize("type_", ["result.sealed", "finding.verified", "execution.proposed"])
def test_a_record_of_another_release_is_told_by_its_envelope(
    before: Before, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    """By Get, List and Watch of what is sealed, which follow what the rows and the signed evidence say."""
    site = before.site
    site.start()
    monkeypatch.delitem(table._DECODERS, ("kblockd.record/1", type_))
    execution_id = before.finished.execution_id
    assert before.repeat("finished").output == before.finished.output
    with site.client("operator") as operator:
        events = operator.get(execution_id=execution_id).events
        assert type_ in [event.record_type for event in events]
        assert tuple(operator.watch(execution_id)) == events
        assert execution_id in {answer.execution_id for answer in operator.list().items}


@pytest.mark.parametrize("how", ["garbage", "altered"])
def test_nobody_approves_what_nobody_can_read(before: Before, how: str) -> None:
    """It is shown as unreadable; an approval makes the action void, a denial would do as ever."""
    site = before.site
    site.start()
    call = refund_in("production", order(), order())
    pending, denied = ask(site, call), ask(site, refund_in("production", order(), order()))
    for asked in (pending, denied):
        damage(site, asked.execution_id, "presentation_payload", how)
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
        assert (shown.state, shown.summary, shown.arguments_json) == ("pending", UNREADABLE, b"")
        assert pending.approval_id in {approval.approval_id for approval in lead.approvals().items}
    with pytest.raises(FailedPreconditionError) as refused:
        approve(site, pending.approval_id)
    assert refused.value.reason == "STORED_UNREADABLE"
    with site.client() as agent:
        void = agent.execute(call)
    assert (void.state, void.code, void.executed) == ("cancelled", "STORED_UNREADABLE", False)
    approve(site, denied.approval_id, "deny")
    assert before.state(denied.execution_id) == "rejected"


def replayed(site: LocalSite) -> None:
    """``policy diff`` against what was recorded, over the policy in force, misses nothing."""
    site.stop()
    folder = str(site.config.parent / "policy")
    arguments = ["policy", "diff", "recorded", folder, "--config", str(site.config), "--json"]
    done = CliRunner().invoke(kblockd, arguments, catch_exceptions=False)
    assert json.loads(done.stdout)["decisions"]["not_replayable"] == 0, done.output
