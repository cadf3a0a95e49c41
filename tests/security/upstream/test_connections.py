"""Connections that are kept between calls: one is used again only when nothing can be confused or lost by it."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from kblockd.upstream.adapter import Reply
from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.connection import IDLE_SECONDS, IdleConnections
from kblockd.upstream.exchange import ExchangeCut, Guard, HttpOrigin
from kblockd.upstream.tls import make_context
from kblockd.upstream.wire import Wire
from tests.security.upstream.certificates import Certificate

Behaviour = Callable[["Peer", bytes, asyncio.StreamWriter], Awaitable[bool]]


def whole(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (lines, len(body), body)


class Peer:
    """A server that says which connection and which request an answer belongs to."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.requests = 0
        self.now = 0.0
        self.guard: Guard

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                if not await self.behaviour(self, head, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def ask(self, seconds: float = 20.0) -> Reply:
        exchange = self.guard.exchange(time.monotonic() + seconds)
        try:
            return await exchange.send("GET", b"/", [], b"")
        finally:
            await exchange.close()


@asynccontextmanager
async def peer(behaviour: Behaviour) -> AsyncIterator[Peer]:
    made = Peer(behaviour)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    origin = HttpOrigin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    connect = AddressGuard([ipaddress.ip_network("127.0.0.0/8")]).connect
    made.guard = Guard(origin, connect, None, 64 * 1024, idle=IdleConnections(lambda: made.now))
    async with server:
        try:
            yield made
        finally:
            made.guard.close()


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def good(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(whole(b"%d" % made.requests))
    return True


async def test_a_connection_carries_one_call_after_the_other() -> None:
    async with peer(good) as made, asyncio.timeout(20):
        assert [(await made.ask()).body for _ in range(3)] == [b"1", b"2", b"3"]
        assert made.connections == 1


async def test_calls_at_the_same_time_never_share_one() -> None:
    gate = asyncio.Event()

    async def together(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        if made.requests == 3:
            gate.set()
        await gate.wait()
        return await good(made, head, writer)

    async with peer(together) as made, asyncio.timeout(20):
        await asyncio.gather(*(made.ask() for _ in range(3)))
        assert made.connections == 3


async def test_an_answer_that_nobody_asked_for_is_not_the_answer_to_the_next_call() -> None:
    """Answered twice: the second answer, in the same segment or a later one, dies with its connection."""

    async def twice(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(whole(b"%d" % made.requests) + whole(b"stale"))
        return True

    async with peer(twice) as made, asyncio.timeout(20):
        assert [(await made.ask()).body for _ in range(3)] == [b"1", b"2", b"3"]
        assert made.connections == 3


async def test_an_answer_that_comes_while_the_connection_waits_is_not_taken_either() -> None:
    sent = asyncio.Event()

    async def afterwards(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(whole(b"%d" % made.requests))
        await writer.drain()
        asked.set()
        await go.wait()
        writer.write(whole(b"stale"))
        await writer.drain()
        sent.set()
        return True

    asked, go = asyncio.Event(), asyncio.Event()
    async with peer(afterwards) as made, asyncio.timeout(20):
        assert (await made.ask()).body == b"1"
        await asked.wait()
        go.set()
        await sent.wait()
        assert (await made.ask()).body == b"2"
        assert made.connections == 2


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    """Idle connections are closed by servers when they like: the next call must not be lost in one."""

    async def once(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        await good(made, head, writer)
        await writer.drain()
        return False

    async with peer(once) as made, asyncio.timeout(20):
        for number in (b"1", b"2"):
            assert (await made.ask()).body == number
            await asyncio.sleep(0.05)  # the end of the stream is on its way; were it not, the call would say LOST
        assert made.connections == 2


async def test_connection_close_is_honoured() -> None:
    async def closing(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(whole(b"%d" % made.requests, b"connection: close"))
        return True

    async with peer(closing) as made, asyncio.timeout(20):
        assert [(await made.ask()).body for _ in range(2)] == [b"1", b"2"]
        assert made.connections == 2


async def test_an_old_connection_is_not_used() -> None:
    """Servers give up idle connections after some seconds; a call that crosses the close could not be repeated."""
    async with peer(good) as made, asyncio.timeout(20):
        await made.ask()
        made.now += IDLE_SECONDS
        await made.ask()
        assert made.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=["redirect", "coding", "large", "upgrade"],
)
async def test_what_the_guard_cut_short_leaves_no_connection(answer: bytes) -> None:
    async def cut_then_good(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer if made.requests == 1 else whole(b"good"))
        return True

    async with peer(cut_then_good) as made, asyncio.timeout(20):
        with pytest.raises((ExchangeCut, httpx2.RemoteProtocolError)):
            await made.ask()
        assert (await made.ask()).body == b"good"
        assert made.connections == 2


async def test_a_call_that_was_given_up_leaves_no_connection() -> None:
    """Its answer may still come, and would be the next call's."""
    asked = asyncio.Event()

    async def slow_then_good(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        if made.requests == 1:
            asked.set()
            await asyncio.sleep(0.1)
        return await good(made, head, writer)

    async with peer(slow_then_good) as made, asyncio.timeout(20):
        first = asyncio.create_task(made.ask())
        await asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await made.ask()).body == b"2"
        assert made.connections == 2


@pytest.mark.parametrize(
    "announced",
    [
        b"204 No Content\r\ncontent-length: 42",
        b"204 No Content\r\ntransfer-encoding: chunked",
        b"200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked",
    ],
    ids=["no content with length", "no content in chunks", "two lengths"],
)
async def test_an_answer_whose_end_is_not_clear_is_the_last_of_its_connection(announced: bytes) -> None:
    """The body that does not belong there comes late, and would be the answer to the next call."""
    asked = asyncio.Event()

    async def late(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        if made.requests > 1:
            return await good(made, head, writer)
        body = b"0\r\n\r\n" if b"200" in announced else b""
        writer.write(b"HTTP/1.1 %s\r\n\r\n%s" % (announced, body))
        await writer.drain()
        await asked.wait()
        return True

    async with peer(late) as made, asyncio.timeout(20):
        assert (await made.ask()).body == b""
        assert (await made.ask()).body == b"2"
        assert made.connections == 2
        asked.set()


async def test_no_content_without_a_body_keeps_its_connection() -> None:
    async def nothing(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")
        return True

    async with peer(nothing) as made, asyncio.timeout(20):
        assert [(await made.ask()).status for _ in range(2)] == [204, 204]
        assert made.connections == 1


async def test_a_closed_exchange_lets_nobody_wait_for_a_slot() -> None:
    """The requests under way end, those that wait for their end are never begun."""

    async def silent(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        if made.requests == 4:
            busy.set()
        await over.wait()
        return False

    busy, over = asyncio.Event(), asyncio.Event()
    async with peer(silent) as made, asyncio.timeout(20):
        exchange = made.guard.exchange(time.monotonic() + 60)
        tasks = [asyncio.create_task(exchange.send("GET", b"/", [], b"")) for _ in range(6)]
        await busy.wait()
        await exchange.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, httpx2.TransportError) for error in ended)
        assert (made.requests, made.connections) == (4, 4)
        over.set()


async def test_a_request_whose_exchange_is_closed_while_it_connects_never_leaves() -> None:
    """Nor does it go out without the credential that was forgotten at the close (R632)."""
    async with peer(good) as made, asyncio.timeout(20):
        connected, closed = asyncio.Event(), asyncio.Event()
        direct = made.guard.connect

        async def slow(host: str, port: int, deadline: float) -> Wire:
            wire = await direct(host, port, deadline)
            connected.set()
            await closed.wait()
            return wire

        exchange = replace(made.guard, connect=slow).exchange(time.monotonic() + 60)
        task = asyncio.create_task(exchange.send("POST", b"/", [], b"x"))
        await connected.wait()
        await exchange.close()
        closed.set()
        with pytest.raises(ExchangeCut):
            await task
        assert (exchange.bytes_written, exchange.tampered, made.requests) == (0, "EXCHANGE_CLOSED", 0)


@pytest.mark.parametrize("target", [b"http://elsewhere.example/", b"elsewhere.example:80", b"*", b""])
async def test_a_target_is_a_path_of_the_origin(target: bytes) -> None:
    """An absolute one has precedence over Host: a server that forwards would send it elsewhere."""
    async with peer(good) as made, asyncio.timeout(20):
        exchange = made.guard.exchange(time.monotonic() + 20)
        with pytest.raises(ExchangeCut):
            await exchange.send("POST", target, [], b"x")
        assert (exchange.tampered, exchange.bytes_written, made.connections) == ("ORIGIN_REFUSED", 0, 0)
        await exchange.close()


async def test_host_is_the_origin_whatever_the_adapter_says() -> None:
    """Behind one address there may be several servers."""
    seen: list[bytes] = []

    async def noting(made: Peer, head: bytes, writer: asyncio.StreamWriter) -> bool:
        seen.extend(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
        return await good(made, head, writer)

    async with peer(noting) as made, asyncio.timeout(20):
        exchange = made.guard.exchange(time.monotonic() + 20)
        elsewhere = {"Host": "elsewhere.example"}
        async with httpx2.AsyncClient(transport=exchange.transport) as client:
            await client.get(f"{made.guard.origin}/", headers=elsewhere)
        assert seen == [b"Host: 127.0.0.1:%d" % made.guard.origin.port]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_request_that_does_not_leave_in_time_never_leaves(scheme: str, tmp_path: Path) -> None:
    """The kernel takes a part, the deadline comes: the rest is thrown away with the connection (R176).

    What TLS has encrypted and handed to the socket is part of that rest.
    """
    received = bytearray()
    ended = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        try:
            while data := await reader.read(1 << 16):
                received.extend(data)
        except ConnectionError:
            pass
        writer.close()
        ended.set()

    go = asyncio.Event()
    shown = Certificate(tmp_path, "localhost")
    context = shown.context if scheme == "https" else None
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024, ssl=context)
    origin = HttpOrigin(scheme, "localhost", server.sockets[0].getsockname()[1])
    connect = AddressGuard([ipaddress.ip_network("127.0.0.0/8")], resolve=here).connect
    # The clock stands still, so that a slow machine spends the second where it is meant: in the write.
    now = time.monotonic()
    guard = Guard(origin, connect, make_context(str(shown.ca_file)), 64 * 1024, clock=lambda: now)
    size = 64 << 20  # more than any socket buffer
    async with server, asyncio.timeout(60):
        exchange = guard.exchange(now + 1.0)
        with pytest.raises(httpx2.WriteTimeout):
            await exchange.send("POST", b"/", [], b"x" * size)
        assert exchange.tampered == "UPSTREAM_TIMEOUT"
        assert exchange.bytes_written > size  # counted before the kernel saw it: never proof of nothing
        await exchange.close()
        go.set()
        await ended.wait()
        assert len(received) < size
