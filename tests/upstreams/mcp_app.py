"""The provider of refunds as an MCP server; what goes wrong with its answers is its front's doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.upstreams.messages import Reply, Request, said
from tests.upstreams.refunds import LONG, Refunds

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
EFFECT_KEY = "dev.kblockd/effect-key"


UNKNOWN = {"code": -32602, "message": "Unknown tool: refund"}


class McpApp:
    """Streamable HTTP without streams, in one revision: ``MODERN`` or ``HANDSHAKE``."""

    def __init__(self, protocol: str) -> None:
        self.modern = protocol == MODERN
        self.refunds = Refunds()
        self.definition: dict[str, Any] = {
            "name": "refund",
            "description": "Pays money back.",
            "inputSchema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
            "outputSchema": {"type": "object", "required": ["refund_id"]},
            "annotations": {"readOnlyHint": False, "idempotentHint": True},  # not true, and nobody may believe it
            "x-vendor": {"kept": True},
        }
        self._reads: dict[str, Callable[[Mapping[str, str]], Any]] = {
            "get_order": lambda given: self.refunds.order(given["order_id"]),
            "list_refunds": lambda given: self.refunds.listed(given["order_id"]),
            "find_refund": lambda given: self.refunds.found(given["key"]),
        }

    def is_call(self, request: Request) -> bool:
        return _tool(request) == "refund"

    def is_snapshot(self, request: Request) -> bool:
        return _tool(request) == "get_order"

    def is_lookup(self, request: Request) -> bool:
        return _tool(request) == "find_refund"

    def act(self, request: Request) -> None:
        params = request.document["params"]
        self.refunds.add(params["arguments"], params.get("_meta", {}).get(EFFECT_KEY, ""))

    def answer(self, request: Request, note: str) -> Reply:
        message = request.document
        if "id" not in message:
            return Reply(200 if request.method == "DELETE" else 202, {})
        result = self._result(message, note)
        if result is None:
            return self._error(request, -32601, "Method not found", 404)
        headers = {"mcp-session-id": "s-1"} if message["method"] == "initialize" else {}
        return self.rpc(request, {"result": result}, **headers)

    def say(self, word: str, request: Request, note: str = "") -> Reply:
        """What a provider may say instead of the good answer; KeyError for what this protocol cannot say."""
        if word in (errors := {"error": note or "the bank failed", "long error": LONG, "refused": "it is closed"}):
            content = [{"type": "text", "text": errors[word]}]
            return self.rpc(request, {"result": {"content": content, "isError": True, **self._complete}})
        return {
            "not run": lambda: self._refusal(request, "later"),
            "still busy": lambda: self._refusal(request, "busy"),
            "unknown tool": lambda: self._error(request, -32602, "Unknown tool: refund"),
            "null id": lambda: said(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "no"}}),
            "both": lambda: self.rpc(request, {"result": self.made(request.document), "error": UNKNOWN}),
            "crash": lambda: self._error(request, -32603, note or "boom", 500),
            "internal error": lambda: self._error(request, -32603, "internal"),
            "session lost": lambda: self._error(request, -32001, "Session not found", 404),
            "wrong id": lambda: said(200, {"jsonrpc": "2.0", "id": 4711, "result": self.made(request.document)}),
            "wrong schema": lambda: self.rpc(request, {"result": self._output({"refund": 1})}),
            "unstorable": lambda: self.rpc(request, {"result": self._output({"refund_id": 2**60})}),
            "input required": lambda: self._other(request, "input_required", requestState="opaque"),
            "task": lambda: self._other(request, "task", taskId="t-77", status="working"),
            "other type": lambda: self._other(request, "surprise", content=[]),
            "nothing": lambda: Reply(202, {}),
        }[word]()

    def made(self, message: Mapping[str, Any], note: str = "") -> dict[str, Any]:
        """The result of the tool that acts."""
        refund_id = self.refunds.last(message["params"]["arguments"]["order_id"])
        return self._output({"refund_id": refund_id, "status": "succeeded", "note": note})

    def rpc(self, request: Request, answer: Mapping[str, Any], status: int = 200, **headers: str) -> Reply:
        """A JSON-RPC message under the request's id."""
        return said(status, {"jsonrpc": "2.0", "id": request.document["id"], **answer}, **headers)

    def turn_keys(self) -> None:
        """The same definition, with its keys in another order."""
        self.definition = dict(reversed(self.definition.items()))

    def change(self) -> None:
        """Another definition of the tool that acts."""
        self.definition = {**self.definition, "description": "Pays money back, and tells everybody."}

    @property
    def _complete(self) -> dict[str, Any]:
        return {"resultType": "complete"} if self.modern else {}

    def _output(self, output: Any) -> dict[str, Any]:
        return {"content": [], "structuredContent": output, **self._complete}

    def _other(self, request: Request, kind: str, **members: Any) -> Reply:
        return self.rpc(request, {"result": {"resultType": kind, **members}})

    def _error(self, request: Request, code: int, message: str, status: int = 200) -> Reply:
        return self.rpc(request, {"error": {"code": code, "message": message}}, status)

    def _refusal(self, request: Request, code: str) -> Reply:
        """An error in the tool's own shape."""
        return self.rpc(request, {"result": {**self._output({"code": code}), "isError": True}})

    def _result(self, message: Mapping[str, Any], note: str) -> dict[str, Any] | None:
        """None for a method that this revision does not have."""
        cached = {"ttlMs": 0, "cacheScope": "public", **self._complete} if self.modern else {}
        method = message["method"]
        if method == "tools/call":
            params = message["params"]
            if params["name"] in self._reads:
                return self._output(self._reads[params["name"]](params["arguments"]))
            return self.made(message, note)
        if method == "tools/list":
            reads = [{"name": name, "inputSchema": {"type": "object"}} for name in self._reads]
            return {"tools": [self.definition, *reads], **cached}
        if method == "server/discover" and self.modern:
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, **cached}
        if method == "initialize" and not self.modern:
            server = {"name": "refunds", "version": "7"}
            return {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": server}
        return None


def _tool(request: Request) -> str:
    """The tool that a request calls, or empty."""
    message = request.document
    return str(message["params"]["name"]) if message.get("method") == "tools/call" else ""
