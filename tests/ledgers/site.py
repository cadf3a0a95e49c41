"""The site whose data directories are kept: fixed addresses, so that a ledger of any build finds its upstreams again.

The upstreams listen on ports of their own; a configuration of today is written beside the old data.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kblockd.client import Call
from tests.harness import Site, merged, refund_contract
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.shop import Shop
from tests.upstreams.payments import PaymentsServer

PAYMENTS_PORT, SHOP_PORT = 19_731, 19_732
SLOW = {"maximum_duration_seconds": 120}
ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    "production": {},
    "twice": {"execution": {"maximum_attempts": 2}},
    "blind": {"lookup": []},
    "unproved": {"verification": {"required": False, "maximum_duration_seconds": 1}},
    "contained": {"recovery": {"verification_failure": "contain"}},
    "slow": {"verification": SLOW},
}
SANDBOX = "bench.refund"
CLOCKS = {
    "lease_ttl_seconds": 30,
    "heartbeat_seconds": 2,
    "close_after_seconds": 240,
    "approval_ttl_seconds": 120,  # what waits has expired by the time that an archive is opened
    "client_wait_seconds": 60,
}


def contracts() -> dict[str, Any]:
    """One refund contract an environment, one over plain HTTP, and one that policy allows by itself."""
    found = {f"refund.{name}": _contract(name, change) for name, change in ENVIRONMENTS.items()}
    found["refund.shop"] = shops.contract("shop", {"execution": {"credential_source": "none"}})
    found[SANDBOX] = _contract("bench", {**ENVIRONMENTS["unproved"], "action": {"type": SANDBOX}})
    return found


def configure(site: Site, payments: PaymentsServer, shop: Shop) -> None:
    """The configuration as today's build wants it; data and keys that are there already stay."""
    file = site.config.parent / "upstreams" / "shop.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    none = {"write": "none", "read": "none"}
    file.write_text(json.dumps(shops.upstream(shop.url, none)))
    patient = {"breaker": {"failures": 1000, "open_seconds": 1}}
    given = {"clocks": CLOCKS, "limits": {"pending_approvals_per_agent": 1000}, "instance": "golden"}
    site.configure(payments.url, contracts=contracts(), daemon=given, upstream=patient)
    for name in ("payments", "shop"):
        site.pin(name)


@contextlib.contextmanager
def upstreams(folder: Path) -> Iterator[tuple[PaymentsServer, Shop]]:
    """Both at their fixed ports; the payments server reads the effects that ``folder`` holds."""
    payments = PaymentsServer(folder, "payments")
    payments.port = PAYMENTS_PORT
    payments.run()
    try:
        with Shop(SHOP_PORT) as shop:
            yield payments, shop
    finally:
        payments.kill()


def call(environment: str, order: str, *, keyed: bool = True, amount: str = "100.00") -> Call:
    """The refund of one order; its caller key is the order's name."""
    operation = SANDBOX if environment == "bench" else "payment.refund.create"
    arguments = {"order_id": order, "amount": amount, "currency": "EUR"}
    key = order if keyed else None
    return Call.of(operation, environment, target=order, arguments=arguments, key=key, keyless=not keyed)


def _contract(environment: str, change: Mapping[str, Any]) -> dict[str, Any]:
    return refund_contract(merged(change, {"action": {**change.get("action", {}), "environment": environment}}))
