"""The MCP plugin in front of a small server of either revision; ``open_subject`` is the stateless one of 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kblockd.upstream.adapter import Sent
from kblockd.upstream.catalog import load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from tests.contract.adapters.subject import CREDENTIAL, Subject
from tests.upstreams.misbehaving import MisbehavingServer, Mode, Reply, Request

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
EFFECT_KEY = "dev.kblockd/effect-key"
OUTCOMES = {
    Mode.ERROR_AFTER_EFFECT: (Sent.LOST, "HTTP_500"),
    Mode.GATEWAY_TIMEOUT: (Sent.LOST, "HTTP_504"),
    Mode.GARBAGE: (Sent.LOST, "RPC_ERROR_32700"),
    Mode.DROP_ON_ACCEPT: (Sent.NOT_SENT, "CONNECTION_LOST"),  # the session could not be opened
}


class McpApp:
    """One tool, ``refund``; answers are JSON."""

    def __init__(self, protocol: str) -> None:
        self.modern = protocol == MODERN
        self.definition: dict[str, Any] = {
            "name": "refund",
            "description": "Pays money back.",
            "inputSchema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
            "outputSchema": {"type": "object", "required": ["refund_id"]},
            "x-vendor": {"kept": True},
        }

    def is_call(self, request: Request) -> bool:
        return _message(request).get("method") == "tools/call"

    def answer(self, request: Request, note: str) -> Reply:
        message = _message(request)
        if "id" not in message:
            return Reply(200 if request.method == "DELETE" else 202, {})
        result = self._result(message, note)
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            return Reply(404, body=json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        headers = {"content-type": "application/json"}
        if message["method"] == "initialize":
            headers["mcp-session-id"] = "s-1"
        return Reply(200, headers, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def _result(self, message: dict[str, Any], note: str) -> dict[str, Any] | None:
        """None for a method that this revision does not have."""
        modern = {"resultType": "complete"} if self.modern else {}
        cached = {"ttlMs": 0, "cacheScope": "public"} if self.modern else {}
        method = message["method"]
        if method == "tools/call":
            output = {"refund_id": "re_1", "note": note}
            return {"content": [], "structuredContent": output, **modern}
        if method == "tools/list":
            return {"tools": [self.definition], **modern, **cached}
        if method == "server/discover" and self.modern:
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, **modern, **cached}
        if method == "initialize" and not self.modern:
            server = {"name": "refunds", "version": "7"}
            return {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": server}
        return None

    def turn_keys(self) -> None:
        self.definition = dict(reversed(self.definition.items()))

    def change(self) -> None:
        self.definition = {**self.definition, "description": "Pays money back, and tells everybody."}


def _message(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.body) if request.body else {}
    return found


def _meta(request: Request) -> dict[str, str]:
    found: dict[str, str] = _message(request)["params"]["_meta"]
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
