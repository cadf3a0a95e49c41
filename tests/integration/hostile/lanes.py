"""Upstreams with their contracts, as the daemon of the table is configured with them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kblockd.upstream.adapter import ToolDescription
from kblockd.upstream.catalog import load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from kblockd.upstream.pins import definition_sha256, describe_all
from tests.harness import Site, merged, refund_contract
from tests.integration.hostile.rows import PATIENT_SECONDS
from tests.upstreams import mcp_app, rest_app
from tests.upstreams.mcp_app import HANDSHAKE, MODERN, McpApp
from tests.upstreams.misbehaving import MisbehavingServer
from tests.upstreams.rest_app import RestApp

UNUSED: Final = "http://127.0.0.1:9/mcp"  # the upstream of the shipped configuration, which nobody calls here
# Identity to the token and what it decodes to.
CREDENTIALS: Final = {
    "write": ("d3JpdGUtaWRlbnRpdHk6NXR6cS05MWtk", "5tzq-91kd"),
    "read": ("cmVhZC1pZGVudGl0eTo4a3dtLTc3YWo", "8kwm-77aj"),
}
CLOCKS: Final = {
    "lease_ttl_seconds": 60,
    "close_after_seconds": 120,
    "reconcile_seconds": PATIENT_SECONDS,
    "client_wait_seconds": 120,
}
PROTOCOLS: Final = {"mcp": MODERN, "mcp-2025": HANDSHAKE}
# Of the tool's own errors, by whether it speaks REST: those that say "later" come before any work.
ERRORS: Final = {
    True: {
        "in": "body",
        "media_type": rest_app.PROBLEM,
        "has": "/code",
        "code": "/code",
        "rejected_before_work": [429],
        "in_progress": ["busy"],
    },
    False: {
        "in": "tool_result",
        "has": "/code",
        "code": "/code",
        "rejected_before_work": ["later"],
        "in_progress": ["busy"],
    },
}
READS: Final = ("get_order", "list_refunds", "find_refund")


@dataclass(frozen=True)
class Lane:
    """One upstream and one contract, both of this name."""

    name: str
    adapter: str
    tool: str
    timeout_seconds: int
    final_seconds: int
    proof_seconds: int
    server: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        app: Any = RestApp() if self.adapter == "http" else McpApp(PROTOCOLS[self.adapter])
        object.__setattr__(self, "server", MisbehavingServer(app))

    def contract(self) -> dict[str, Any]:
        """Two attempts, and everything is revealed."""
        rest = self.adapter == "http"
        place = {"in": "header", "name": rest_app.EFFECT_KEY} if rest else {"in": "meta", "name": mcp_app.EFFECT_KEY}
        changes = {
            "action": {"environment": self.name},
            "tool": {"upstream": self.name, "name": self.tool, "effect_key": place, "errors": ERRORS[rest]},
            "execution": {
                "credential_source": "static",
                "maximum_attempts": 2,
                "request_timeout_seconds": self.timeout_seconds,
                "absolute_deadline_seconds": 40,
            },
            "verification": {"maximum_duration_seconds": self.proof_seconds},
            "reveal": [""],
        }
        base: dict[str, Any] = refund_contract(changes)
        base["lookup"] = [merged(base["lookup"][0], {"absent_final_after_seconds": self.final_seconds})]
        return base

    def upstream(self, secrets: Path) -> dict[str, Any]:
        """Without pins."""
        rest = self.adapter == "http"
        return {
            "adapter": self.adapter.partition("-")[0],
            "url": self.server.url if rest else f"{self.server.url}/mcp",
            "allow_addresses": ["127.0.0.0/8"],
            "credentials": {name: f"file:{secrets / name}" for name in CREDENTIALS},
            "settings": REST if rest else {"protocol": PROTOCOLS[self.adapter]},
        }


def _rest() -> dict[str, Any]:
    call = {"path": "/refunds", "definition": "/paths/~1refunds/post", "operation": "/operation"}
    word = {"success": {"pointer": "/ok", "equals": True}}
    read = {"method": "GET", "definition": "/paths/~1refunds/get"}
    tools = {
        "refund": {**call, **word, "poll": {"method": "GET", "path": "/operations/{operation}"}},
        "refund_plain": call,
        "get_order": {**read, "path": "/orders/{order_id}"},
        "list_refunds": {**read, "path": "/refunds"},
        "find_refund": {**read, "path": "/lookup"},
    }
    return {"tools": tools, "document": {"path": "/openapi.json"}, "request_ids": {"request": "X-Request-Id"}}


REST: Final = _rest()


def configure(site: Site, lanes: Sequence[Lane]) -> None:
    """Writes everything; the keys are made before there is much to read."""
    site.configure(UNUSED)
    (site.config.parent / "actions" / "payment.refund.create.yaml").unlink()
    for name, (token, _) in CREDENTIALS.items():
        file = site.folder / name
        file.touch(mode=0o600)
        file.write_text(f"Bearer {token}\n")
    documents = {lane.name: lane.upstream(site.folder) for lane in lanes}
    pins = asyncio.run(_pins(lanes, documents))
    for lane in lanes:
        file = site.config.parent / "upstreams" / f"{lane.name}.yaml"
        file.write_text(json.dumps({**documents[lane.name], "tools": pins[lane.adapter, lane.tool]}))
    limits = {"pending_approvals_per_agent": 1000}
    contracts = {lane.name: lane.contract() for lane in lanes}
    site.configure(UNUSED, contracts=contracts, daemon={"clocks": CLOCKS, "limits": limits})


async def _pins(lanes: Sequence[Lane], documents: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """What a person would have reviewed; all upstreams of one adapter say the same of their tools."""
    kinds = {(lane.adapter, lane.tool): lane.name for lane in lanes}
    configs = {name: UpstreamConfig.model_validate(documents[name]) for name in kinds.values()}
    found: dict[tuple[str, str], Any] = {}
    async with open_upstreams(configs, load_plugins(["http", "mcp"]), max_response_bytes=1 << 20) as upstreams:
        for kind, name in kinds.items():
            described = await describe_all(upstreams[name].read, [kind[1], *READS], time.monotonic() + 30)
            found[kind] = {tool: {"definition_sha256": _digest(one)} for tool, one in described.items()}
    return found


def _digest(described: object) -> str:
    assert isinstance(described, ToolDescription), described
    return definition_sha256(described)
