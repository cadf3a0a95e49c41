"""A hostile MCP server on raw sockets: it misbehaves byte by byte, and counts what really came over the wire.

It speaks one revision (``modern`` 2026-07-28 or the handshake of 2025-11-25) correctly until a behaviour in ``on``
takes over a method. A behaviour gets the ``Peer`` (one HTTP request on one connection) and may write anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

TOOL: dict[str, Any] = {
    "name": "act",
    "description": "Acts once.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "outputSchema": {"type": "object", "required": ["done"], "properties": {"done": {"type": "boolean"}}},
    "annotations": {"readOnlyHint": False, "idempotentHint": True},
    "x-vendor": {"unknown": ["to", "any", "model"]},
}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"done": True}}
STATUS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 400: "Bad Request", 404: "Not Found", 500: "Oops"}


@dataclass
class Seen:
    """One HTTP request as it came."""

    verb: str
    path: str
    headers: dict[str, str]
    message: Any

    @property
    def method(self) -> str:
        """The JSON-RPC method, or empty."""
        return str(self.message.get("method", "")) if isinstance(self.message, dict) else ""


class Peer:
    """The answering side of one request."""

    def __init__(self, server: RawMcp, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.seen = seen
        self._writer = writer

    @property
    def id(self) -> Any:
        """The JSON-RPC id of the request."""
        return self.seen.message.get("id")

    def act(self) -> None:
        """The effect."""
        self.server.effects += 1

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def http(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        """A whole HTTP answer."""
        lines = [f"HTTP/1.1 {status} {STATUS.get(status, 'Status')}", f"Content-Length: {len(body)}"]
        lines += [f"Content-Type: {content_type}"] if content_type else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def json(self, message: Any, status: int = 200, **headers: str) -> None:
        """A whole JSON answer."""
        await self.http(status, json.dumps(message).encode(), **headers)

    async def result(self, result: dict[str, Any], **headers: str) -> None:
        """A JSON-RPC result under the request's id, with what the modern revision requires."""
        extra = {"resultType": "complete"} if self.server.modern and "resultType" not in result else {}
        await self.json({"jsonrpc": "2.0", "id": self.id, "result": {**extra, **result}}, **headers)

    async def error(self, code: int, message: str, status: int = 200) -> None:
        """A JSON-RPC error under the request's id."""
        await self.json({"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message}}, status)

    async def open_stream(self) -> None:
        """Begins an event stream."""
        await self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def event(self, message: Any, event_id: str = "", retry: int | None = None) -> None:
        """One event; ``message`` None is a priming event without data."""
        text = f"id: {event_id}\n" if event_id else ""
        text += f"retry: {retry}\n" if retry is not None else ""
        text += f"data: {json.dumps(message) if message is not None else ''}\n\n"
        data = text.encode()
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def hang_up(self) -> None:
        """Ends the connection properly after what was written."""
        self._writer.close()

    def drop(self) -> None:
        """Ends the connection without a farewell."""
        self._writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


class RawMcp:
    """The server; ``serve`` is a context manager."""

    def __init__(self, *, modern: bool) -> None:
        self.modern = modern
        self.on: dict[str, Behaviour] = {}
        self.seen: list[Seen] = []
        self.effects = 0
        self.tools: list[dict[str, Any]] = [TOOL]
        self.port = 0
        self._sessions = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, *, modern: bool) -> AsyncIterator[RawMcp]:
        """Listens on a free port of 127.0.0.1."""
        server = cls(modern=modern)
        server._server = await asyncio.start_server(server._connected, "127.0.0.1", 0)
        server.port = server._server.sockets[0].getsockname()[1]
        try:
            yield server
        finally:
            await server.stop()

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def calls(self) -> list[Seen]:
        """POSTs of tools/call that arrived."""
        return [seen for seen in self.seen if seen.method == "tools/call"]

    def count(self, method: str) -> int:
        """How often a method arrived."""
        return sum(seen.method == method for seen in self.seen)

    def stop_listening(self) -> None:
        """New connections are refused; open ones go on."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Nobody listens afterwards."""
        if self._server is not None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while not writer.is_closing():
                seen = await _request(reader)
                self.seen.append(seen)
                await self._answer(Peer(self, seen, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, peer: Peer) -> None:
        key = peer.seen.method or peer.seen.verb
        await self.on.get(key, _DEFAULT.get(key, _unknown))(peer)


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    verb, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(verb, path, headers, json.loads(body) if body else None)


async def _initialize(peer: Peer) -> None:
    if peer.server.modern:
        await peer.error(-32601, "Method not found", 404)
        return
    peer.server._sessions += 1
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "raw", "version": "0.7.1"},
    }
    await peer.result(result, Mcp_Session_Id=f"session-{peer.server._sessions}")


async def _discover(peer: Peer) -> None:
    if not peer.server.modern:
        await peer.error(-32600, "Bad Request: no valid session id", 400)
        return
    await peer.result(
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "public",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "0.7.1"}},
        }
    )


async def _list(peer: Peer) -> None:
    extra = {"ttlMs": 0, "cacheScope": "public"} if peer.server.modern else {}
    await peer.result({"tools": peer.server.tools, **extra})


async def _call(peer: Peer) -> None:
    peer.act()
    await peer.result(DONE)


async def _accepted(peer: Peer) -> None:
    await peer.http(202, b"", "")


async def _deleted(peer: Peer) -> None:
    await peer.http(200, b"", "")


async def _unknown(peer: Peer) -> None:
    await peer.http(405, b"", "")


_DEFAULT: dict[str, Behaviour] = {
    "initialize": _initialize,
    "server/discover": _discover,
    "notifications/initialized": _accepted,
    "notifications/cancelled": _accepted,
    "tools/list": _list,
    "tools/call": _call,
    "POST": _accepted,
    "DELETE": _deleted,
}
