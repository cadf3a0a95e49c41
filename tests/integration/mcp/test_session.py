"""What a session keeps of a server, how long its end may take, and that a large answer leaves the loop its turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import kblockd_mcp.session
import pytest
from kblockd_mcp.session import Session
from kblockd_mcp.wire import SessionWire

from kblockd.upstream.adapter import AdapterFault, Sent
from tests.integration.mcp.rig import HANDSHAKE, adapter, call
from tests.upstreams.raw_mcp import Peer, RawMcp

URL = httpx2.URL("http://127.0.0.1:1/mcp")
SERVER = {"protocolVersion": HANDSHAKE, "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}


async def test_a_session_id_that_no_header_can_carry_is_a_fault_of_the_server() -> None:
    """Before the call, so nothing was sent; it is not put down to the adapter."""
    async with RawMcp.serve(modern=False) as server:

        async def accented(peer: Peer) -> None:
            await peer.result(SERVER, Mcp_Session_Id="sé")

        server.on["initialize"] = accented
        opened = adapter(server.url, HANDSHAKE)
        with pytest.raises(AdapterFault) as caught:
            await opened.describe("act")
        assert caught.value.code == "PROTOCOL_FAULT"
        outcome = await opened.invoke(call())
        assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "PROTOCOL_FAULT")
        assert [seen.method for seen in server.seen] == ["initialize", "initialize"]


class Exchange:
    """Answers every request with the same body, in one piece, or never."""

    tampered = ""

    def __init__(self, body: bytes | None) -> None:
        self._body = body
        self.transport = self

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See ``httpx2.AsyncBaseTransport``."""
        if self._body is None:
            await asyncio.Event().wait()
        return httpx2.Response(200, stream=_Whole(self._body or b""))


class _Whole(httpx2.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


def wire(body: bytes | None, left: float) -> SessionWire:
    exchange: Any = Exchange(body)
    return SessionWire(exchange, URL, {}, lambda: left, itertools.count(1))


async def test_a_large_answer_leaves_the_loop_its_turns() -> None:
    """R201: a megabyte that arrives at once can be a hundred thousand events, and other calls have deadlines."""
    seen = SimpleNamespace(turns=0)

    async def turning() -> None:
        while True:
            seen.turns += 1
            await asyncio.sleep(0)

    body = b"id\n\n" * 262_144
    response = await wire(body, 1.0).post({"id": 1, "method": "tools/list"}, {})
    other = asyncio.create_task(turning())
    assert await response.aread() == body
    other.cancel()
    assert seen.turns >= 32


async def test_the_end_of_a_session_does_not_make_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent about the end of its session has only what is left of the action's time."""
    monkeypatch.setattr(kblockd_mcp.session, "END_SECONDS", 3600.0)
    opened = Session(wire(None, 0.02), modern=False)
    opened.session_id, opened._answered = "s-1", True
    async with asyncio.timeout(30):
        await opened.close()
