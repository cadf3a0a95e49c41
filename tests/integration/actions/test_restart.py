"""Restart a service: the shipped contract, upstream and policy in a daemon process of its own, over real HTTP.

The shipped pins hold as they are; only the upstream's address and some times are the test's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kblockd.client import Call
from kblockd.client.answers import ApprovalPending, Completed, Denied, Held
from kblockd.client.errors import AbortedError, FailedPreconditionError
from tests.harness import SHORT_CONTRACT, Site, approve, merged, shipped
from tests.integration.actions.orchestrator import Orchestrator
from tests.integration.pipeline.local import order, run_approved
from tests.upstreams.misbehaving import MisbehavingServer, Mode

RESTART = "service.restart.execute"
UNUSED = "http://127.0.0.1:9/mcp"  # of the payment provider, whom nobody calls here


@pytest.fixture(scope="module")
def app() -> Orchestrator:
    """One for the module; each test has services of its own."""
    return Orchestrator()


@pytest.fixture(scope="module")
def server(app: Orchestrator) -> Iterator[MisbehavingServer]:
    """Its front."""
    with MisbehavingServer(app) as made:
        yield made


@pytest.fixture(scope="module")
def site(server: MisbehavingServer) -> Iterator[Site]:
    """With two people of operations."""
    with Site.make() as made:
        upstream = made.config.parent / "upstreams" / "orchestrator.yaml"
        upstream.parent.mkdir(parents=True)
        upstream.write_text(json.dumps({**shipped("upstreams/orchestrator.yaml"), "url": server.url}))
        contract = merged(shipped(f"actions/{RESTART}.yaml"), SHORT_CONTRACT)
        contract["lookup"][0]["absent_final_after_seconds"] = 1
        people = [
            {**person, "roles": ["operations"]} if person["id"] in ("local:lead", "local:auditor") else person
            for person in made._daemon()["principals"]
        ]
        made.configure(UNUSED, contracts={RESTART: contract}, daemon={"principals": people})
        made.start()
        yield made


def restart(service: str, strategy: str = "rolling") -> Call:
    """What the agent asks for."""
    arguments = {"service": service, "strategy": strategy}
    return Call.of(RESTART, "production", target=service, arguments=arguments, key=service)


def service() -> str:
    """One that no other test has."""
    return order()


def test_r072_a_restart_is_approved_done_once_and_proved(site: Site, app: Orchestrator) -> None:
    """R072, R001: asked, approved by operations, restarted once, healthy and unchanged afterwards."""
    mine = service()
    done = run_approved(site, restart(mine))
    assert isinstance(done, Completed)
    assert (done.result_class, app.of(mine)) == ("completed_verified", 1)
    assert done.output == {"output": {"operation_id": f"op-{len(app.restarts)}"}}
    with site.client() as agent:
        assert agent.execute(restart(mine)).result_dsse == done.result_dsse
    assert app.of(mine) == 1


def test_r606_a_lost_answer_restarts_nothing_twice(site: Site, app: Orchestrator, server: MisbehavingServer) -> None:
    """R072, R606: the connection drops after the effect; it is found by its key and proved, without a second call."""
    mine = service()
    server.misbehave(Mode.DROP_AFTER_EFFECT, calls=1)
    done = run_approved(site, restart(mine))
    assert (done.result_class, app.of(mine)) == ("completed_verified", 1)


def test_r072_what_is_busy_is_not_restarted(site: Site, app: Orchestrator) -> None:
    """R072, R079: refused before anything is consumed; once the other work has ended the approval still does."""
    mine = service()
    app.busy.add(mine)
    with pytest.raises(FailedPreconditionError) as refused:
        run_approved(site, restart(mine))
    assert (refused.value.reason, refused.value.consumed) == ("PRECONDITION_FAILED", False)
    assert app.of(mine) == 0
    app.busy.clear()
    with site.client() as agent:
        assert isinstance(agent.execute(restart(mine)), Completed)
    assert app.of(mine) == 1


def test_r586_another_service_that_changed_is_no_success(site: Site, app: Orchestrator) -> None:
    """R072, R586: the neighbour went down, too: never a success, and nothing more may touch the service."""
    mine = service()
    app.careless.add(mine)
    held = run_approved(site, restart(mine))
    assert isinstance(held, Held)
    assert (held.code, app.of(mine)) == ("UNRELATED", 1)
    fresh = Call.of(
        RESTART, "production", target=mine, arguments={"service": mine, "strategy": "all_at_once"}, key=service()
    )
    with pytest.raises(AbortedError):
        run_approved(site, fresh)
    assert app.of(mine) == 1


def test_r072_a_critical_service_needs_two_and_never_goes_down_whole(site: Site, app: Orchestrator) -> None:
    """R072: two owners of operations; all at once is refused whoever asks."""
    with site.client() as agent:
        denied = agent.execute(restart("ledger", "all_at_once"))
        assert isinstance(denied, Denied)
        assert denied.code == "OUTAGE"
        call = Call.of(
            RESTART, "production", target="ledger", arguments={"service": "ledger", "strategy": "rolling"}, key=order()
        )
        pending = agent.execute(call)
        assert isinstance(pending, ApprovalPending)
        approve(site, pending.approval_id)
        assert isinstance(agent.execute(call), ApprovalPending)
        approve(site, pending.approval_id, who="auditor")
        assert isinstance(agent.execute(call), Completed)
    assert app.of("ledger") == 1
