"""A site whose policy has one limit: what is within it runs at once, what is above it waits for an approval."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kblockd.client import AsyncClient
from tests.harness import ROOT
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import LONG_LEASE, LocalSite, order, refund_in
from tests.integration.pipeline.shop import Shop

WITHIN = """
within if to_number(input.args.amount) <= data.limits.amount
"""
RULES = {
    "decision.rego": """
package kblock.decision
import rego.v1
default result := {"effect": "deny", "approvals": {"count": 0, "roles": []}, "observe_until": "", "reasons": []}
result := {
    "effect": "allow", "approvals": {"count": 0, "roles": []}, "observe_until": "",
    "reasons": [{"code": "WITHIN", "message": "within the limit"}]
} if within
else := {
    "effect": "require_approval", "approvals": {"count": 1, "roles": ["finance"]}, "observe_until": "",
    "reasons": [{"code": "ABOVE", "message": "above the limit"}]
}
""",
    "preconditions.rego": """
package kblock.preconditions
import rego.v1
default stands := false
stands if within
stands if input.approval.state == "approved"
result := {"ok": true, "stands": stands, "reasons": []}
""",
    "verification.rego": """
package kblock.verification
import rego.v1
default verdict := "inconclusive"
verdict := "expected" if count(input.read.refunds) == 1
result := {"verdict": verdict, "reasons": []}
""",
    "recovery.rego": """
package kblock.recovery
import rego.v1
result := {"recovery": "manual", "reasons": []}
""",
}
UNVERIFIED = {
    "reads": {"snapshot": None, "verify": None},
    "verification": {"required": False, "authoritative_read_tool": None},
    "preflight": {"require_current_resource_version": False},
    "execution": {"maximum_concurrent_actions": 1000, "credential_source": "none"},
    "tool": {"name": "refund_plain"},
}
UNUSED = "http://127.0.0.1:9/mcp"  # the upstream of the shipped contract, which nobody calls here
_CALLERS = 32


def policy(folder: Path, amount: float) -> Path:
    """A bundle with this limit."""
    folder.mkdir(parents=True)
    for name, text in RULES.items():
        (folder / name).write_text(text + (WITHIN if "within" in text else ""))
    (folder / "data.json").write_text(json.dumps({"limits": {"amount": amount}}))
    shutil.copy(ROOT / "config" / "policy" / "authz.rego", folder)
    return folder


@contextmanager
def limited(
    amount: float,
    contract: Mapping[str, Any] = UNVERIFIED,
    *,
    secrets: Mapping[str, str] | None = None,
    daemon: Mapping[str, Any] | None = None,
) -> Iterator[tuple[LocalSite, Shop]]:
    """A daemon with that limit in force, and the shop behind it; ``secrets``: the credentials of write and read."""
    with Shop() as shop, LocalSite.make() as site:
        policy(site.config.parent / "policy", amount)
        upstreams = site.config.parent / "upstreams"
        upstreams.mkdir()
        for name, value in (secrets or {}).items():
            site.secret(name, value)
        sources = {name: f"file:{site.folder / name}" if secrets else "none" for name in ("write", "read")}
        (upstreams / "shop.yaml").write_text(json.dumps(shops.upstream(shop.url, sources)))
        contracts = {"refund.shop": shops.contract("shop", contract)}
        site.configure(UNUSED, contracts=contracts, daemon={"clocks": LONG_LEASE, **(daemon or {})})
        site.pin("shop")
        site.start()
        yield site, shop


def refunds(site: LocalSite, amounts: Sequence[str]) -> dict[str, str]:
    """One call for each amount, all of them answered; the amount by execution."""

    async def called() -> dict[str, str]:
        places = asyncio.Semaphore(_CALLERS)
        async with AsyncClient(f"unix:{site.socket('agent')}") as agent:

            async def one(amount: str) -> tuple[str, str]:
                mine = order()
                async with places:
                    answer = await agent.execute(refund_in("shop", mine, key=mine, amount=amount))
                return answer.execution_id, amount

            return dict(await asyncio.gather(*map(one, amounts)))

    return asyncio.run(called())
