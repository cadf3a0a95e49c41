"""The same upstream as an MCP server of revision 2026-07-28: JSON answers over Streamable HTTP, no sessions.

Every result says whose it is, as the revision wants it and the SDK's servers do.
"""

from __future__ import annotations

from typing import Any, Final

from tests.bench.effects import Effects

_ITEM: Final = {"item": {"type": "string"}, "note": {"type": "string"}}
_DONE: Final = {"done": {"type": "integer"}}
_TOOLS: Final[list[dict[str, Any]]] = [
    {
        "name": "effect",
        "description": "Acts on an item.",
        "inputSchema": {"type": "object", "required": ["item"], "properties": _ITEM},
        "outputSchema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, **_DONE}},
    },
    {
        "name": "state",
        "description": "How often an item was acted on.",
        "inputSchema": {"type": "object", "required": ["item"], "properties": _ITEM},
        "outputSchema": {"type": "object", "required": ["done"], "properties": _DONE},
        "annotations": {"readOnlyHint": True},
    },
]
_FRESH: Final = {"ttlMs": 0, "cacheScope": "public"}
_DISCOVERED: Final = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **_FRESH}
_COMMON_HEADERS: Final = {
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1.0.0"}},
}


def answer(effects: Effects, request: dict[str, Any]) -> dict[str, Any]:
    """The JSON-RPC response to one request."""
    found = _result(effects, request["method"], request.get("params", {}))
    if found is None:
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": {**_COMMON_HEADERS, **found}}


def _result(effects: Effects, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "server/discover":
        return _DISCOVERED
    if method == "tools/list":
        return {"tools": _TOOLS, **_FRESH}
    if method != "tools/call":
        return None
    act = effects.act if params["name"] == "effect" else effects.state
    structured = act(params["arguments"]["item"])
    return {"content": [{"type": "text", "text": "done"}], "structuredContent": structured, "isError": False}
