"""The whole daemon with OPA as its decision point, supervised and remote: what is decided, recorded and consumed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.client.answers import Completed
from kblockd.client.errors import CallError, UnavailableError
from kblockd.policy.bundles.bundle import read
from tests.contract.policy.remote import Server, put
from tests.contract.policy.support import HANG_SECONDS, children, opa_binary
from tests.harness import approve, refund
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    order,
    run_approved,
    since,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer


def configure(site: LocalSite, payments: PaymentsServer, opa: dict[str, Any], seconds: float = 5.0) -> None:
    """The shipped policies, decided by OPA."""
    policy = {"engine": "opa", "opa": opa, "evaluate_timeout_seconds": seconds}
    site.configure(
        payments.url,
        contracts=variants({"production": {}}),
        daemon={"clocks": LONG_LEASE, "policy": policy},
        upstream=PATIENT_BREAKER,
    )
    site.pin()


def retried(site: LocalSite, mine: str) -> tuple[Completed, list[str]]:
    """The approved call, repeated while the policy engine is the reason; and those reasons."""
    reasons: list[str] = []
    limit = time.monotonic() + HANG_SECONDS
    with site.client() as agent:
        while True:
            try:
                done = agent.execute(refund(mine, key=mine))
                assert isinstance(done, Completed), done
                return done, reasons
            except UnavailableError as error:
                reasons.append(error.reason)
                said = error.retryable, error.executed or False, error.consumed or False  # None: asked at stage 0
            assert said == (True, False, False)
            assert time.monotonic() < limit
            time.sleep(0.05)


@pytest.fixture(scope="module")
def supervised(payments: PaymentsServer) -> Iterator[LocalSite]:
    opa_binary()
    with LocalSite.make() as site:
        configure(site, payments, {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")})
        site.start()
        yield site
        site.stop()
        assert list((site.folder / "opa").iterdir()) == []
        assert children(mark=b"--server") == set()


def test_an_action_goes_through_every_stage_and_names_opa(supervised: LocalSite, payments: PaymentsServer) -> None:
    """R019, R110: the engine and the revision that decided are on record, and are those that consumption checks."""
    mine = order()
    done = run_approved(supervised, refund(mine, key=mine))
    assert isinstance(done, Completed)
    assert len(effects(payments, mine)) == 1
    revision = read(supervised.config.parent / "policy").revision
    proposed = body(supervised, done.execution_id, "execution.proposed")
    assert (proposed["policy_engine"], proposed["policy_revision"]) == ("opa", revision)
    assert body(supervised, done.execution_id, "execution.claimed")["policy_revision"] == revision
    activated = [r["body"] for r in since(supervised, 0) if r["type"] == "policy.activated"]
    assert (activated[-1]["engine"], activated[-1]["revision"]) == ("opa", revision)
    assert activated[-1]["tests"] > 10


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_pol_13_opa_that_dies_between_approval_and_effect(
    supervised: LocalSite, payments: PaymentsServer, blow: int
) -> None:
    """Denied and retryable until OPA is back by itself; the approval stands, and there is one effect."""
    mine = order()
    approve(supervised, ask(supervised, refund(mine, key=mine)).approval_id)
    (victim,) = children(mark=b"--server")
    os.kill(victim, blow)
    _, reasons = retried(supervised, mine)
    assert set(reasons) <= {"POLICY_DOWN", "POLICY_TIMEOUT"}
    assert len(effects(payments, mine)) == 1


def test_c27_reload_between_decision_and_consumption(supervised: LocalSite, payments: PaymentsServer) -> None:
    """C27, POL-05: another process with another revision; the consumption names the one that it was checked under."""
    mine = order()
    pending = ask(supervised, refund(mine, key=mine))
    approve(supervised, pending.approval_id)
    before = children(mark=b"--server")
    supervised.edit_policy("decision.rego", "# title: What may happen with an action", "# title: What may happen")
    assert supervised.daemon is not None
    assert supervised.run(supervised.daemon.policy.reload()) is True
    assert children(mark=b"--server") - before  # a new one decides; the old one ends once its questions are answered
    until(lambda: not children(mark=b"--server") & before)
    with supervised.client() as agent:
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    decided = body(supervised, pending.execution_id, "execution.proposed")["policy_revision"]
    consumed = body(supervised, pending.execution_id, "execution.claimed")["policy_revision"]
    assert decided != consumed == supervised.daemon.parts.engine.status().revision


def test_banned_call_is_refused_at_the_reload(supervised: LocalSite) -> None:
    """Whatever engine decides: the revision in force stays, and the refusal is on record."""
    assert supervised.daemon is not None
    old = supervised.daemon.parts.engine.status().revision
    file = supervised.config.parent / "policy" / "sneaky.rego"
    file.write_text('package kblock.sneaky\n\nallow if http.send({"url": "http://127.0.0.1"}).status_code == 200\n')
    try:
        assert supervised.run(supervised.daemon.policy.reload()) is False
        status = supervised.daemon.parts.engine.status()
        assert (status.revision, status.ready) == (old, True)
        assert "sneaky.rego:3" in status.last_error
        assert "http.send may not be called" in status.last_error
        assert [r["type"] for r in since(supervised, 0)][-1] == "policy.refused"
    finally:
        file.unlink()
        assert supervised.run(supervised.daemon.policy.reload()) is True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    it = Server(tmp_path, polled=True)
    yield it
    it.close()


def test_pol_04_pol_05_remote_opa_from_nothing_to_another_revision(server: Server, payments: PaymentsServer) -> None:
    """Not ready and denied until OPA serves a revision that ``policy check`` passed; again so when it serves another;
    each time well without a restart of kblockd."""
    with LocalSite.make() as site:
        configure(site, payments, {"url": server.url, "revisions": "revisions.jsonl"})
        config = ("--config", str(site.config))
        site.start(wait=False)
        assert refused(site) == "POLICY_UNDEFINED"
        server.start()
        site.command("policy", "check", "--bundle", str(server.file), *config)
        site.wait_healthy()
        mine = order()
        approve(site, ask(site, refund(mine, key=mine)).approval_id)

        site.edit_policy("decision.rego", "# title: What may happen with an action", "# title: What may happen")
        changed = read(site.config.parent / "policy")
        put(server.file, changed)
        until(lambda: not site._healthy())
        assert refused(site) == "POLICY_DOWN"
        with site.client() as agent, pytest.raises(UnavailableError) as caught:
            agent.execute(refund(mine, key=mine))
        assert caught.value.consumed is None  # stage 0: whether it repeats a call that acted was not looked at
        assert effects(payments, mine) == []

        site.command("policy", "check", *config)
        site.wait_healthy()
        done, _ = retried(site, mine)
        assert body(site, done.execution_id, "execution.claimed")["policy_revision"] == changed.revision
        assert len(effects(payments, mine)) == 1
        kinds = [r["type"] for r in since(site, 0) if r["type"].startswith("policy.")]
        assert kinds == [
            "policy.refused",
            "policy.activated",
            "policy.refused",
            "policy.activated",
        ]  # first: nothing noted


def refused(site: LocalSite) -> str:
    """Why a call is refused before anything is written."""
    with site.client() as agent, pytest.raises(CallError) as caught:
        agent.execute(refund(order(), key=order()))
    assert not caught.value.consumed
    return str(caught.value.reason)


def test_pol_10_pol_11_remote_opa_that_never_answers_blocks_nothing(server: Server, payments: PaymentsServer) -> None:
    """20 calls at once are all denied in time, health answers meanwhile, and OPA's return needs nobody."""
    with LocalSite.make() as site:
        configure(site, payments, {"url": server.url, "revisions": "revisions.jsonl"}, seconds=1.0)
        site.command("policy", "check", "--bundle", str(server.file), "--config", str(site.config))
        server.start()
        site.start()
        with site.client() as agent:
            assert agent.execute(refund(order(), key=order())).state == "pending_approval"
        os.kill(server.pid, signal.SIGSTOP)
        reasons: list[str] = []
        calls = [threading.Thread(target=lambda: reasons.append(refused(site))) for _ in range(20)]
        started = time.monotonic()
        for call in calls:
            call.start()
        longest = 0.0
        while any(call.is_alive() for call in calls):
            asked = time.monotonic()
            site._healthy()
            longest = max(longest, time.monotonic() - asked)
            time.sleep(0.02)
        assert len(reasons) == 20
        assert set(reasons) == {"POLICY_TIMEOUT"}
        assert time.monotonic() - started < HANG_SECONDS / 2
        assert longest < 5.0
        os.kill(server.pid, signal.SIGCONT)
        site.wait_healthy()
        mine = order()
        approve(site, ask(site, refund(mine, key=mine)).approval_id)
        retried(site, mine)
        assert len(effects(payments, mine)) == 1
