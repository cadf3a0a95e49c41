"""A server that answers like an OPA, or not: each connection gets the bytes that the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.contract.policy.support import ALLOW

REVISION = "a" * 64
ANSWER = {"provenance": {"bundles": {"kblock": {"revision": REVISION}}}, "result": json.loads(ALLOW)}

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Request:
    """One question as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Stub:
    """``requests`` are those that came; ``respond`` writes what goes back."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    respond: Respond | None = None

    @property
    def url(self) -> str:
        """Plain HTTP on the loopback interface."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, any number of questions."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in head[1:] if row)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(Request(head[0], headers, body))
                assert self.respond is not None
                await self.respond(writer)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def stub(respond: Respond | None = None) -> AsyncIterator[Stub]:
    """On a port of its own."""
    it = Stub(respond=respond)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()


def http(body: bytes | dict[str, Any], status: int = 200, *headers: str) -> Respond:
    """A whole answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(content)}", *headers]
    return raw("\r\n".join(head).encode() + b"\r\n\r\n" + content)


def raw(content: bytes, *, close: bool = False) -> Respond:
    """These bytes, and the end of the connection when ``close``."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        if close:
            await writer.drain()
            writer.close()

    return respond


async def silence(_: asyncio.StreamWriter) -> None:
    """Never."""
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte now and then, so that no time-out between two bytes ever ends it."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)
