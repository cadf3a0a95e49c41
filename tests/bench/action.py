"""What is measured: one action of about 1 KB of arguments, over HTTP or MCP, with or without a verification read."""

from __future__ import annotations

from typing import Any, Final

from kblockd.client import Call
from tests.harness import refund_contract

OPERATION: Final = "bench.effect"
ENVIRONMENT: Final = "bench"
NOTE: Final = "n" * 900
EFFECT_KEYS: Final = {
    "http": {"in": "header", "name": "Idempotency-Key"},
    "mcp": {"in": "meta", "name": "dev.kblockd/effect-key"},
}


def contract(adapter: str, *, verified: bool) -> dict[str, Any]:
    """In an environment in which the shipped policy asks nobody for approval."""
    document = refund_contract()
    document.update(
        action={"type": OPERATION, "risk_tier": "low", "environment": ENVIRONMENT},
        tool={
            "upstream": "payments",
            "name": "effect",
            "kind": "write",
            "errors_are_effect_free": False,
            "effect_key": EFFECT_KEYS[adapter],
            "arguments_schema": {
                "type": "object",
                "additionalProperties": False,
                "required": ["item"],
                "properties": {"item": {"type": "string", "maxLength": 64}, "note": {"type": "string"}},
            },
        },
        target={"type": "item", "id": "/args/item"},
        intent={"item": "/args/item"},
        summary="Act on {intent.item}",
        preconditions={},
        lookup=[],
        reveal=["/output/id"],
        reads={
            "snapshot": None,
            "verify": {"tool": "state", "arguments": {"item": "/args/item"}} if verified else None,
        },
    )
    document["preflight"]["require_current_resource_version"] = False
    document["execution"]["maximum_concurrent_actions"] = 1000
    document["verification"].update(
        required=verified,
        authoritative_read_tool="state" if verified else None,
        expected={"done": 1} if verified else {},
        prohibited={},
    )
    return document


def upstream(adapter: str) -> dict[str, Any]:
    """The upstream's file, but for its address."""
    settings: dict[str, Any] = {"protocol": "auto"}
    if adapter == "http":
        settings = {
            "tools": {
                "effect": {"path": "/effects"},
                "state": {"method": "GET", "path": "/effects/{item}"},
            }
        }
    return {"adapter": adapter, "maximum_concurrent_calls": 128, "settings": settings}


def call(item: str) -> Call:
    """The call whose effect is ``item``."""
    return Call.of(OPERATION, ENVIRONMENT, target=item, arguments={"item": item, "note": NOTE}, key=f"key-{item}")
