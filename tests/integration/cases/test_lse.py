"""Leases on a clock that the test moves: three terms in one call, a term that ends, an answer that comes as it ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kblockd.client import Answer
from kblockd.client.answers import Completed
from tests.harness import approve
from tests.integration.pipeline.local import LONG_LEASE, ask, effects, order, records, refund_in, since, size, types
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

TERM = float(LONG_LEASE["lease_ttl_seconds"])
ANSWERED = "classify:before"


def met(site: StagedSite, mine: str, act: Any) -> Answer:
    """An approved call; ``act`` happens when the upstream has answered and nothing is written of it yet."""
    call = refund_in("patient", mine, key=mine)
    approve(site, ask(site, call).approval_id)
    site.boundaries.at(ANSWERED, act)
    with site.client() as agent:
        answer = agent.execute(call)
    assert site.boundaries.clear() == []
    return answer


def test_rec_01_a_call_of_three_terms_is_sent_once(staged: StagedSite, pay: PaymentsServer) -> None:
    """REC-01: heartbeats keep the lease for as long as the adapter takes; nobody else gets the execution."""
    heartbeat, mine = staged.parts.leases.heartbeat, order()

    async def wait() -> None:
        for _ in range(int(3.5 * TERM / heartbeat)):
            staged.machine.passed += heartbeat
            staged.parts.leases.renew()

    done = met(staged, mine, wait)
    assert isinstance(done, Completed)
    assert len(effects(pay, mine)) == 1
    found = types(staged, done.execution_id)
    assert (found.count("execution.claimed"), found.count("execution.sent"), found.count("lease.lost")) == (1, 1, 0)


def test_lse_08_a_lost_lease_is_lost_once(
    staged: StagedSite, pay: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LSE-08: a hundred heartbeats find nothing to renew, and neither the log nor the ledger is flooded."""
    mine, before = order(), size(staged)

    async def pause() -> None:
        staged.machine.passed += TERM
        [lease] = staged.parts.leases._held.values()
        for _ in range(100):
            staged.parts.leases.renew()
        assert lease.lost
        assert lease.expires_at <= staged.parts.clock.monotonic()

    with caplog.at_level(logging.INFO, logger="kblockd"):
        done = met(staged, mine, pause)
    assert caplog.text.count("a lease ended while its holder was held up") == 1
    lost = [record["execution"] for record in since(staged, before) if record["type"] == "lease.lost"]
    assert lost == [done.execution_id]
    assert isinstance(done, Completed)
    assert len(effects(pay, mine)) == 1


@pytest.mark.parametrize("milliseconds", [-500, -10, -1, 0, 1, 10, 500])
def test_lse_10_an_answer_at_the_end_of_its_term_counts_once(
    staged: StagedSite, pay: PaymentsServer, milliseconds: int
) -> None:
    """LSE-10: on either side of the end, and while somebody else looks for what is left behind, one outcome is
    recorded and one result sealed; nothing is sent again."""
    mine, takers = order(), []

    async def end() -> None:
        [lease] = staged.parts.leases._held.values()
        left = lease.expires_at - staged.parts.leases.skew - staged.parts.clock.monotonic()
        staged.machine.passed += left + milliseconds / 1000
        takers.append(await staged.daemon.supervisor.take_up(lease.execution_id))

    done = met(staged, mine, end)
    assert isinstance(done, Completed)
    assert len(takers) == len(effects(pay, mine)) == 1
    found = records(staged, done.execution_id)
    outcomes = [record["body"]["late"] for record in found if record["type"] == "attempt.outcome"]
    sealed = [record for record in found if record["type"] == "result.sealed"]
    assert (outcomes.count(False), len(sealed)) == (1, 1)
    assert [record["type"] for record in found].count("execution.sent") == 1
