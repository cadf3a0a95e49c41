"""The MCP plugin in front of a small server of either revision; ``open_subject`` is the stateless one of 2026-07-28."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kblockd.upstream.adapter import Sent
from kblockd.upstream.catalog import load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from tests.contract.adapters.subject import CREDENTIAL, Subject
from tests.upstreams.mcp_app import EFFECT_KEY, MODERN, McpApp
from tests.upstreams.misbehaving import MisbehavingServer, Mode, Request

OUTCOMES = {
    Mode.ERROR_AFTER_EFFECT: (Sent.LOST, "HTTP_500"),
    Mode.GATEWAY_TIMEOUT: (Sent.LOST, "HTTP_504"),
    Mode.GARBAGE: (Sent.LOST, "RPC_ERROR_32700"),
    Mode.DROP_ON_ACCEPT: (Sent.NOT_SENT, "CONNECTION_LOST"),  # the session could not be opened
}


def _meta(request: Request) -> dict[str, str]:
    found: dict[str, str] = request.document["params"]["_meta"]
    return found


def open_subject(tmp_path: Path) -> Any:
    """2026-07-28, found by ``auto``."""
    return open_revision(tmp_path, MODERN)


@asynccontextmanager
async def open_revision(tmp_path: Path, protocol: str) -> AsyncIterator[Subject]:
    """Through the installed entry point and the catalog, as the daemon does."""
    secret = tmp_path / "credential"
    secret.touch(mode=0o600)
    secret.write_text(CREDENTIAL + "\n")
    app = McpApp(protocol)
    with MisbehavingServer(app) as server:
        config = UpstreamConfig.model_validate(
            {
                "adapter": "mcp",
                "url": f"http://127.0.0.1:{server.port}/mcp",
                "allow_addresses": ["127.0.0.0/8"],
                "credentials": {"write": f"file:{secret}", "read": "none"},
                "settings": {"protocol": "auto"},
            }
        )
        async with open_upstreams({"shop": config}, load_plugins(["mcp"]), max_response_bytes=1 << 20) as upstreams:
            yield Subject(
                server=server,
                upstream=upstreams["shop"],
                tool="refund",
                arguments={"order_id": "o/1", "amount": "10.00", "currency": "EUR"},
                describe_otherwise=app.turn_keys,
                change_description=app.change,
                effect_key_of=lambda request: _meta(request)[EFFECT_KEY],
                traceparent_of=lambda request: _meta(request)["traceparent"],
                outcomes=OUTCOMES,
                late_evidence=True,
                effect_key_in="meta",
                effect_key_name=EFFECT_KEY,
            )
