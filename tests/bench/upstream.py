"""A fast upstream for measurements: one asyncio process, JSON over HTTP/1.1 with keep-alive, effects in memory.

    POST /effects          acts, answers {"id": …}
    GET  /effects/{item}   what a verification reads
    POST /mcp              the same two as tools of an MCP server (``tests.bench.mcp``)
    GET  /count            how many effects there are in all, and the most of one item

``python -m tests.bench.upstream PORT_FILE``
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from tests.bench import mcp, servers
from tests.bench.effects import Effects


class Connection(asyncio.Protocol):
    """One connection; requests may come in pieces."""

    effects: ClassVar[Effects] = Effects()

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = transport  # uvloop's is no subclass of asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """Answers every request that is whole."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            body_ends = end + 4 + content_length(head)
            if len(self._buffer) < body_ends:
                return
            body, self._buffer = self._buffer[end + 4 : body_ends], self._buffer[body_ends:]
            verb, path, _ = head.split(b" ", 2)
            self._send(self._answer(verb, path.decode(), body))

    def _answer(self, verb: bytes, path: str, body: bytes) -> Any:
        if path == "/mcp":
            return mcp.answer(self.effects, json.loads(body))
        if verb == b"POST":
            return self.effects.act(json.loads(body)["item"])
        if path == "/count":
            return self.effects.count()
        return self.effects.state(path.rpartition("/")[2])

    def _send(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self._transport.write(head.encode() + data)


def content_length(head: bytes) -> int:
    """0 without such a header."""
    for line in head.split(b"\r\n"):
        if line[:15].lower() == b"content-length:":
            return int(line[15:])
    return 0


async def start() -> int:
    """Listens; answers the port."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    servers.serve(start)
