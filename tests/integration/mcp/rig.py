"""The plugin over the real guarded exchange, as the daemon wires it."""

from __future__ import annotations

import ipaddress
import time
from typing import Any, Literal

from kblockd_mcp import ADAPTER
from kblockd_mcp.adapter import McpAdapter

from kblockd.upstream.adapter import AdapterContext, ToolCall
from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.exchange import Guard, HttpOrigin

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"


def adapter(url: str, protocol: str = "auto", max_response_bytes: int = 1 << 20, **settings: Any) -> McpAdapter:
    """An opened adapter; nothing is connected yet."""
    guard = Guard(HttpOrigin.of(url), AddressGuard(LOOPBACK).connect, None, max_response_bytes)
    context = AdapterContext(
        upstream="upstream",
        url=url,
        settings=ADAPTER.settings_model(protocol=protocol, **settings),
        ssl=None,
        connect=guard.raw_connection,
        max_response_bytes=max_response_bytes,
        exchange=guard.exchange,
    )
    opened = ADAPTER.open(context)
    assert isinstance(opened, McpAdapter)
    return opened


def call(
    tool: str = "act",
    arguments: dict[str, Any] | None = None,
    *,
    seconds: float = 10.0,
    effect_key: str = "",
    effect_key_in: Literal["argument", "meta", "header", "none"] = "none",
    effect_key_name: str = "",
    credential: bytes | None = None,
    trace: dict[str, str] | None = None,
    numbers: Literal["refuse", "text"] = "refuse",
) -> ToolCall:
    """A call that ends ``seconds`` from now."""
    return ToolCall(
        tool=tool,
        arguments=arguments if arguments is not None else {"n": 1},
        effect_key=effect_key,
        effect_key_in=effect_key_in,
        effect_key_name=effect_key_name,
        deadline=time.monotonic() + seconds,
        credential=credential,
        trace=trace or {},
        numbers=numbers,
    )


def refund(order_id: str = "ORD-1", amount: str = "10.00", *, key: str = "k-1", seconds: float = 10.0) -> ToolCall:
    """The demo's write."""
    return call(
        "refund",
        {"order_id": order_id, "amount": amount, "currency": "EUR"},
        seconds=seconds,
        effect_key=key,
        effect_key_in="meta",
        effect_key_name="dev.kblockd/effect-key",
    )
