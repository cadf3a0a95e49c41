"""The guarded transport: what it refuses, what it counts, and that the environment has no say."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import h11
import httpx2
import pytest

from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.body import Gzip
from kblockd.upstream.exchange import ExchangeCut, Guard, GuardedExchange, HttpOrigin
from kblockd.upstream.scope import Scope, entered

Serve = Callable[[bytes, asyncio.StreamWriter], object]
LIMIT = 64 * 1024


class Wire:
    """One asyncio server; ``answers`` are raw bytes by path."""

    def __init__(self, answers: dict[bytes, list[bytes]]) -> None:
        self.answers = answers
        self.heads: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                for piece in self.answers[head.split()[1]]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"connection: close" in self.answers[head.split()[1]][0]:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def exchange(self, seconds: float = 20.0) -> GuardedExchange:
        guard = AddressGuard([ipaddress.ip_network("127.0.0.0/8")])
        return Guard(HttpOrigin("http", "127.0.0.1", self.port), guard.connect, None, LIMIT).exchange(
            time.monotonic() + seconds
        )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def wire(answers: dict[bytes, list[bytes]]) -> AsyncIterator[Wire]:
    made = Wire(answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    rows = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, rows, len(body), body)


async def get(exchange: GuardedExchange, url: str) -> bytes:
    response = await exchange.transport.handle_async_request(httpx2.Request("GET", url))
    try:
        return await response.aread()
    finally:
        await response.aclose()


async def test_streams_come_piece_by_piece() -> None:
    """Server-sent events: each event is there before the next one is sent."""
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await writer.drain()
        await go.wait()
        writer.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Wire({})
    made.port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(20):
        exchange = made.exchange()
        async with (
            httpx2.AsyncClient(transport=exchange.transport) as client,
            client.stream("POST", made.url("/"), json={}) as response,
        ):
            pieces = response.aiter_bytes()
            assert await anext(pieces) == b"data: 1\n\n"
            go.set()
            assert await anext(pieces) == b"data: 2\n\n"


BOMBS = {
    "gzip": [answer(gzip.compress(b"0" * (64 << 20)), b"content-encoding: gzip")],
    "gzip members": [answer(gzip.compress(b"0" * 40_000) * 3, b"content-encoding: gzip")],
    "plain": [answer(b"x" * (LIMIT + 1))],
    "chunked": [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", *[b"1000\r\n" + b"x" * 4096 + b"\r\n"] * 40],
}


@pytest.mark.parametrize("name", BOMBS)
async def test_r181_decoded_bytes_are_capped(name: str) -> None:
    """R181, R201: whatever the coding or framing."""
    async with wire({b"/": BOMBS[name]}) as made:
        exchange = made.exchange()
        with pytest.raises(ExchangeCut):
            await get(exchange, made.url("/"))
        assert exchange.tampered == "RESPONSE_TOO_LARGE"
        assert exchange.bytes_written > 0
        await exchange.close()


def test_r181_a_bomb_is_never_unfolded_beyond_the_bound() -> None:
    """Not unfolded and then refused: one byte more than may be taken, from however little input."""
    bomb = gzip.compress(b"0" * (64 << 20))
    assert len(Gzip().feed(bomb, 1000)) == 1001
    assert len(Gzip().feed(gzip.compress(b"0" * 600) * 50, 1000)) == 1001


async def test_r181_the_cap_is_for_the_whole_exchange() -> None:
    """Two answers that fit alone do not fit together."""
    async with wire({b"/": [answer(b"x" * 40_000)]}) as made:
        exchange = made.exchange()
        assert len(await get(exchange, made.url("/"))) == 40_000
        with pytest.raises(ExchangeCut):
            await get(exchange, made.url("/"))
        assert exchange.tampered == "RESPONSE_TOO_LARGE"
        await exchange.close()


async def test_framing_is_bounded_too() -> None:
    """Interim answers without end are no way around the cap."""
    flood = [b"HTTP/1.1 102 Processing\r\nx: " + b"y" * 8000 + b"\r\n\r\n"] * 200
    async with wire({b"/": flood}) as made:
        exchange = made.exchange()
        with pytest.raises(httpx2.TransportError):
            await get(exchange, made.url("/"))
        assert exchange.tampered == "RESPONSE_TOO_LARGE"
        await exchange.close()


@asynccontextmanager
async def turns(
    patch: pytest.MonkeyPatch, owner: type, name: str, cost: Callable[..., int]
) -> AsyncIterator[list[int]]:
    """What was done in each turn of the loop: the sum of ``cost`` over the calls of one method."""
    real, spent = getattr(owner, name), [0]

    def counted(*arguments: object) -> object:
        spent[-1] += cost(*arguments)
        return real(*arguments)

    async def beat() -> None:
        while True:
            await asyncio.sleep(0)
            spent.append(0)

    patch.setattr(owner, name, counted)
    beating = asyncio.create_task(beat())
    try:
        yield spent
    finally:
        beating.cancel()


EVENTS = {
    "chunks": [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 20_000, b"0\r\n\r\n"],
    "interim answers": [b"HTTP/1.1 100\r\n\r\n" * 10_000, answer(b"x" * 20_000)],
}


@pytest.mark.parametrize("name", EVENTS)
async def test_tiny_pieces_leave_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Megabytes of them take minutes: everybody else's calls and leases go on meanwhile."""
    async with (
        wire({b"/": EVENTS[name]}) as made,
        turns(monkeypatch, h11.Connection, "next_event", lambda _: 1) as events,
    ):
        exchange = made.exchange()
        assert (await exchange.send("GET", b"/", [], b"")).body == b"x" * 20_000
        await exchange.close()
    assert sum(events) > 10_000
    assert max(events) <= 100


async def test_what_is_decoded_at_a_time_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much came at once: of empty members a few hundred kilobytes would take as long as a bomb."""
    body = gzip.compress(b"") * 20_000 + gzip.compress(b"end")
    async with (
        wire({b"/": [answer(body, b"content-encoding: gzip")]}) as made,
        turns(monkeypatch, Gzip, "feed", lambda _, data, __: len(data)) as decoded,
    ):
        exchange = made.exchange()
        assert (await exchange.send("GET", b"/", [], b"")).body == b"end"
        await exchange.close()
    assert sum(decoded) == len(body)
    assert max(decoded) <= 32 * 1024


async def test_gzip_that_fits_is_decoded_and_broken_gzip_is_cut() -> None:
    """A proxy may compress although nobody asked; half a body is no body."""
    body = gzip.compress(b'{"ok":true}')
    answers = {
        b"/good": [answer(body, b"content-encoding: gzip")],
        b"/half": [answer(body[:-4], b"content-encoding: gzip")],
        b"/junk": [answer(b"not gzip", b"content-encoding: gzip")],
        b"/br": [answer(b"x", b"content-encoding: br")],
    }
    async with wire(answers) as made:
        exchange = made.exchange()
        assert await get(exchange, made.url("/good")) == b'{"ok":true}'
        await exchange.close()
        for path, code in (("/half", "BROKEN"), ("/junk", "BROKEN"), ("/br", "REFUSED")):
            exchange = made.exchange()
            with pytest.raises(ExchangeCut):
                await get(exchange, made.url(path))
            assert exchange.tampered == f"CONTENT_ENCODING_{code}"
            await exchange.close()
        assert all(b"Accept-Encoding: identity" in head for head in made.heads)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_htp_06_no_redirect_is_followed_even_if_the_client_would(status: int) -> None:
    """HTP-06: one request on the wire."""
    head = b"HTTP/1.1 %d X\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n" % status
    async with wire({b"/": [head], b"/next": [answer(b"{}")]}) as made:
        exchange = made.exchange()
        async with httpx2.AsyncClient(transport=exchange.transport, follow_redirects=True) as client:
            with pytest.raises(ExchangeCut):
                await client.post(made.url("/"), json={})
        assert exchange.tampered == "REDIRECT_REFUSED"
        assert len(made.heads) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "https://127.0.0.1:{port}/", "http://localhost:{port}/"])
async def test_r627_only_the_origin_of_the_upstream(url: str) -> None:
    """R627: the origin is in the action digest, so nothing may go elsewhere; refused before a byte."""
    async with wire({b"/": [answer(b"{}")]}) as made:
        exchange = made.exchange()
        with pytest.raises(ExchangeCut):
            await get(exchange, url.format(port=made.port))
        assert (exchange.tampered, exchange.bytes_written) == ("ORIGIN_REFUSED", 0)
        await exchange.close()


async def test_r624_proxies_and_netrc_of_the_environment_have_no_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R624: no inherited credentials, no detour."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password developer-secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with wire({b"/": [answer(b"{}")]}) as made:
        exchange = made.exchange()
        async with httpx2.AsyncClient(transport=exchange.transport) as client:
            assert (await client.get(made.url("/"))).status_code == 200
        assert b"authorization" not in made.heads[0].lower()
        assert made.heads[0].startswith(b"GET / HTTP/1.1")
        # The client's own wish for compression is replaced, not doubled.
        assert made.heads[0].lower().count(b"accept-encoding") == 1


async def test_upgrades_are_refused() -> None:
    """No other protocol behind the guard's back."""
    head = b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    async with wire({b"/": [head]}) as made:
        exchange = made.exchange()
        request = httpx2.Request("GET", made.url("/"), headers={"connection": "upgrade", "upgrade": "x"})
        with pytest.raises(ExchangeCut):
            await exchange.transport.handle_async_request(request)
        assert exchange.tampered == "UPGRADE_REFUSED"
        await exchange.close()


async def test_marks_count_anew() -> None:
    """Handshake bytes before the mark do not spoil the proof."""
    async with wire({b"/": [answer(b"{}")]}) as made:
        exchange = made.exchange()
        assert exchange.bytes_written == 0
        await get(exchange, made.url("/"))
        first = exchange.bytes_written
        assert first == len(made.heads[0])
        exchange.mark()
        assert exchange.bytes_written == 0
        await get(exchange, made.url("/"))
        assert exchange.bytes_written == first
        await exchange.close()


async def test_mcp_11_no_hidden_time_out_of_the_client() -> None:
    """MCP-11: the client's own 0.01 s read time-out does not fire; the exchange's deadline decides."""
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await go.wait()
        writer.write(answer(b"{}"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Wire({})
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        exchange = made.exchange()
        async with httpx2.AsyncClient(transport=exchange.transport, timeout=0.01) as client:
            waiting = asyncio.create_task(client.get(made.url("/")))
            done, _ = await asyncio.wait({waiting}, timeout=0.3)
            assert not done
            go.set()
            assert (await waiting).status_code == 200


async def test_the_call_s_own_deadline_is_the_latest() -> None:
    """An adapter cannot give itself more time than the call has, nor write late, while late answers may be read."""
    async with wire({b"/": [answer(b"{}")]}) as made:
        with entered(Scope(time.monotonic() - 1, late_seconds=60)):
            exchange = made.exchange(seconds=1000)
        with pytest.raises(httpx2.TimeoutException):
            await get(exchange, made.url("/"))
        assert (exchange.tampered, exchange.bytes_written) == ("UPSTREAM_TIMEOUT", 0)
        await exchange.close()


async def test_r177_the_identity_s_authorization_is_added_and_not_doubled() -> None:
    """R177: also for requests of a plugin that has no Call (describe); a header of the plugin's own stays."""
    async with wire({b"/": [answer(b"{}")]}) as made:
        with entered(Scope(time.monotonic() + 20, credential=b"Bearer injected-value")):
            exchange = made.exchange()
        await get(exchange, made.url("/"))
        request = httpx2.Request("GET", made.url("/"), headers={"authorization": "Bearer own"})
        await (await exchange.transport.handle_async_request(request)).aread()
        assert b"Authorization: Bearer injected-value" in made.heads[0]
        assert made.heads[1].lower().count(b"authorization") == 1
        assert b"injected" not in made.heads[1]
        await exchange.close()


async def test_closing_ends_a_request_that_is_under_way() -> None:
    """Nothing is left behind."""
    started = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        started.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Wire({})
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        exchange = made.exchange()
        waiting = asyncio.create_task(get(exchange, made.url("/")))
        await asyncio.wait_for(started.wait(), 10)
        await exchange.close()
        with pytest.raises(httpx2.TransportError):
            await asyncio.wait_for(waiting, 10)
