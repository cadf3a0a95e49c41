"""A release to come, with a contract key of its own, over the ledger of this one: what was agreed on stays readable, or
what rests on it ends by where it stands."""

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
from kblockd.cli.kblockd import kblockd
from kblockd.client.answers import Answer, Completed, Denied, Held
from kblockd.client.errors import CallError
from kblockd.config import sources
from kblockd.domain.contract.model import ActionContract
from kblockd.domain.contract.words import ADDED
from kblockd.domain.outcome import Finding
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


def replayed(site: LocalSite) -> None:
    """``policy diff`` against what was recorded, over the policy in force, misses nothing."""
    site.stop()
    folder = str(site.config.parent / "policy")
    arguments = ["policy", "diff", "recorded", folder, "--config", str(site.config), "--json"]
    done = CliRunner().invoke(kblockd, arguments, catch_exceptions=False)
    assert json.loads(done.stdout)["decisions"]["not_replayable"] == 0, done.output
