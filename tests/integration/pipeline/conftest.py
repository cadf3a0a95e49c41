"""One payments server and one daemon a test process; each test has orders of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import EFFECT_FREE, merged, refund_contract
from tests.integration.pipeline.local import LONG_LEASE, PATIENT_BREAKER, LocalSite, variants
from tests.upstreams.payments import PaymentsServer, Switches

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "production": {},
    "twice": {"execution": {"maximum_attempts": 2}},
    "contained": {"recovery": {"verification_failure": "contain"}},
    "unproved": {"verification": {"required": False, "maximum_duration_seconds": 1}},
    "effect-free": {"tool": EFFECT_FREE},
    "impatient": {"execution": {"request_timeout_seconds": 1, "maximum_attempts": 2}},
    "brief": {"verification": {"maximum_duration_seconds": 1}},
    "blind": {"lookup": []},
    "final-late": {
        "execution": {"request_timeout_seconds": 1, "maximum_attempts": 2},
        "lookup": [merged(refund_contract()["lookup"][0], {"absent_final_after_seconds": 8})],
    },
}

# An action that two people must approve; its effect is not read back.
PAIR = refund_contract(
    {
        "action": {"type": "payment.refund.pair"},
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
)
ORPHAN = refund_contract({"action": {"type": "payment.refund.orphan"}})  # no rule of the policy knows it
_RULE = '"kinds": ["agent"], "count": 2, "roles": ["finance"], "reason": {"code": "PAIR", "message": "two must agree"}'
TWO_APPROVERS = ("approval_required := {}", f'approval_required := {{"payment.refund.pair": {{{_RULE}}}}}')


@pytest.fixture(scope="session")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    """The server that all tests of this process share."""
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server


@pytest.fixture
def pay(payments: PaymentsServer) -> Iterator[PaymentsServer]:
    """The same, with every switch back in its place afterwards."""
    yield payments
    payments.control(**dataclasses.asdict(Switches()))


@pytest.fixture(scope="session")
def site(payments: PaymentsServer) -> Iterator[LocalSite]:
    """The daemon that tests share which change no configuration; a contract an environment."""
    with LocalSite.make() as made:
        made.configure(
            payments.url,
            contracts={**variants(ENVIRONMENTS), "refund.pair": PAIR, "refund.orphan": ORPHAN},
            daemon={"clocks": {**LONG_LEASE, "reconcile_seconds": 8}},
            upstream=PATIENT_BREAKER,
        )
        made.edit_policy("decision.rego", *TWO_APPROVERS)
        made.pin()
        made.start()
        yield made
