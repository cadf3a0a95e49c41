"""One daemon on one machine whose clocks are moved; each test sets the wall clock right again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.pipeline.conftest import pay, payments
from tests.integration.pipeline.local import variants
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

__all__ = ["made", "pay", "payments", "site"]

ENVIRONMENTS = {
    "production": {},
    "hurried": {"execution": {"absolute_deadline_seconds": 3}},
    "patient": {"execution": {"absolute_deadline_seconds": 300, "maximum_attempts": 2}},
}


@pytest.fixture(scope="module")
def made(payments: PaymentsServer) -> Iterator[StagedSite]:
    """In ``hurried`` nothing is attempted later than three seconds after the consumption, in ``patient`` until long
    after the lease."""
    with StagedSite.serving(payments, variants(ENVIRONMENTS), close_after_seconds=660) as site:
        yield site


@pytest.fixture
def site(made: StagedSite) -> Iterator[StagedSite]:
    """The wall clock is right again afterwards."""
    yield made
    made.machine.set_by = 0.0
    assert made.boundaries.clear() == []
