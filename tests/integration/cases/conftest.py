"""Two daemons for the cases: one in the test process whose stages and clocks a test holds, one that can be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import World, variant
from tests.integration.concurrency.crowd import let_through
from tests.integration.pipeline.conftest import ORPHAN, pay, payments
from tests.integration.pipeline.local import variants
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

__all__ = ["pay", "payments", "staged", "world"]

DELAY = 1  # seconds
ENVIRONMENTS = {
    "delayed": {"verification": {"consistency_delay_seconds": DELAY}},
    "patient": {"execution": {"absolute_deadline_seconds": 300}},
    "blind": {"lookup": []},
}
LONG = {"execution": {"request_timeout_seconds": 25, "absolute_deadline_seconds": 26}}
LONG_TERM = 600  # seconds; far more than a recovery may take


@pytest.fixture(scope="session")
def staged(payments: PaymentsServer) -> Iterator[StagedSite]:
    """demo.refund needs no approval; delayed looks late; patient goes on past a lease; in blind nothing can be looked
    up; no rule knows payment.refund.orphan."""
    contracts = {**variants(ENVIRONMENTS), "demo": let_through(), "refund.orphan": ORPHAN}
    with StagedSite.serving(payments, contracts, close_after_seconds=660) as made:
        yield made


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """A process of its own, whose leases last for longer than any test; one attempt. In long a call may take
    longer than the grace of a stop."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        clocks = {"lease_ttl_seconds": LONG_TERM}
        contracts = {"production": variant("production"), "long": variant("long", LONG)}
        site.configure(payments.url, contracts=contracts, daemon={"clocks": clocks})
        site.pin()
        yield World(site, payments)
