"""One data directory and one upstream for all cases of a module: each death leaves its records to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.policy.support import opa_binary
from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, EFFECT_FREE, World, variant
from tests.harness import refund_contract
from tests.upstreams.payments import PaymentsServer

LATE = {"lookup": [{**refund_contract()["lookup"][0], "absent_final_after_seconds": 3}]}
CONTRACTS = {
    "production": variant("production", ATTEMPTS),
    "single": variant("single"),
    "free": variant("free", ATTEMPTS, EFFECT_FREE),
    "late": variant("late", ATTEMPTS, LATE),
}


@pytest.fixture(scope="module")
def engine() -> str:
    """What decides; a module may say "opa"."""
    return "embedded"


@pytest.fixture(scope="module")
def world(engine: str) -> Iterator[World]:
    """production allows three attempts, single one; free believes error answers; in late absence is final after 3 s."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        policy: dict[str, Any] = {}
        if engine == "opa":
            policy = {"engine": engine, "opa": {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")}}
        site.configure(payments.url, contracts=CONTRACTS, daemon={"policy": policy})
        site.pin()
        yield World(site, payments)
