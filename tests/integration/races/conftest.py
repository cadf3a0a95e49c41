"""One daemon for all races of a process: each test undoes what it changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import EFFECT_FREE
from tests.integration.pipeline.conftest import pay, payments
from tests.integration.pipeline.local import variants
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

__all__ = ["pay", "payments", "staged"]

FREE = {"tool": EFFECT_FREE, "execution": {"maximum_attempts": 2}}


@pytest.fixture(scope="session")
def staged(payments: PaymentsServer) -> Iterator[StagedSite]:
    """In ``free`` an error answer means that nothing happened, and a second attempt is allowed; in ``blind`` nothing
    can be looked up."""
    with StagedSite.serving(payments, variants({"production": {}, "free": FREE, "blind": {"lookup": []}})) as made:
        yield made
