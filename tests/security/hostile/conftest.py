"""A daemon whose upstream, clock and policy answers can be made to lie from inside the test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import merged, refund_contract
from tests.integration.pipeline.local import LONG_LEASE, PATIENT_BREAKER, LocalSite, variants
from tests.security.hostile.fuzz import LOOSE
from tests.security.hostile.puppet import Puppet
from tests.upstreams.payments import PaymentsServer

ENVIRONMENTS = {
    "production": {},
    "twice": {"execution": {"maximum_attempts": 2}},
    "unproved": {"verification": {"required": False, "maximum_duration_seconds": 1}},
    "final": {"lookup": [merged(refund_contract()["lookup"][0], {"absent_final_after_seconds": 2})]},
}


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    """The honest server behind the puppet."""
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server


@pytest.fixture(scope="module")
def site(payments: PaymentsServer) -> Iterator[LocalSite]:
    """A contract an environment, and one whose arguments may be anything."""
    with LocalSite.make() as made:
        made.configure(
            payments.url,
            contracts={**variants(ENVIRONMENTS), "loose": LOOSE},
            daemon={"clocks": {**LONG_LEASE, "reconcile_seconds": 4}},
            upstream=PATIENT_BREAKER,
        )
        made.pin()
        made.start()
        yield made


@pytest.fixture
def puppet(site: LocalSite) -> Iterator[Puppet]:
    """The upstream of the running daemon, in the test's hands until its end."""
    with Puppet.of(site) as made:
        yield made
