"""One data directory and one upstream for all cases of a module: each death leaves its records to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, EFFECT_FREE, World, variant
from tests.upstreams.payments import PaymentsServer

CONTRACTS = {
    "production": variant("production", ATTEMPTS),
    "single": variant("single"),
    "free": variant("free", ATTEMPTS, EFFECT_FREE),
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """production allows three attempts, single one, and free believes error answers."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        site.configure(payments.url, contracts=CONTRACTS)
        site.pin()
        yield World(site, payments)
