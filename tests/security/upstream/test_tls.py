"""TLS towards an upstream: authorities, names and pinned keys, with real handshakes."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path

import httpx2
import pytest
import uvloop

from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.exchange import Guard, GuardedExchange, HttpOrigin
from kblockd.upstream.tls import make_context
from tests.security.upstream.certificates import Certificate
from tests.upstreams.misbehaving import MisbehavingServer
from tests.upstreams.rest_app import RestApp


class Server:
    """A server that shows a certificate of its own."""

    def __init__(self, folder: Path, name: str = "upstream.example") -> None:
        shown = Certificate(folder, name)
        self.ca_file, self.pin = shown.ca_file, shown.pin
        self.http = MisbehavingServer(RestApp(), tls=shown.context)

    def exchange(
        self, trusted: str | None, pins: Collection[str] = (), host: str = "upstream.example"
    ) -> GuardedExchange:
        return _exchange(self.http.port, trusted, pins, host)

    def request(self, host: str = "upstream.example") -> httpx2.Request:
        return httpx2.Request("POST", f"https://{host}:{self.http.port}/", content=b"{}")


class AbruptServer:
    """Answers each connection with ``body`` and closes the socket beneath TLS."""

    def __init__(self, context: ssl.SSLContext, body: bytes) -> None:
        self._context = context
        self._answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._listening.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            with self._context.wrap_socket(plain, server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(self._answer)
                # Leaving closes the socket; close_notify would come from unwrap alone.


def _exchange(
    port: int, trusted: str | None, pins: Collection[str] = (), host: str = "upstream.example"
) -> GuardedExchange:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    address_guard = AddressGuard([ipaddress.ip_network("127.0.0.0/8")], resolve=resolve)
    guard = Guard(HttpOrigin("https", host, port), address_guard.connect, make_context(trusted), 1 << 20, pins)
    return guard.exchange(time.monotonic() + 20)


async def test_the_name_is_verified_although_the_address_is_connected_to(tmp_path: Path) -> None:
    """SNI and host stay the name."""
    server = Server(tmp_path)
    with server.http:
        exchange = server.exchange(str(server.ca_file), [server.pin])
        response = await exchange.transport.handle_async_request(server.request())
        await response.aread()
        assert response.status_code == 201
        assert server.http.calls[0].headers["host"] == f"upstream.example:{server.http.port}"
        assert exchange.bytes_written > 0
        await exchange.close()


@pytest.mark.parametrize("case", ["unknown authority", "other name", "other key"])
async def test_a_handshake_that_fails_sends_nothing(tmp_path: Path, case: str) -> None:
    """Before any byte of the request: provably not sent."""
    server = Server(tmp_path)
    other = Server(tmp_path, "other.example")
    with server.http, other.http:
        host = "elsewhere.example" if case == "other name" else "upstream.example"
        trusted = other.ca_file if case == "unknown authority" else server.ca_file
        pins = [other.pin] if case == "other key" else []
        exchange = server.exchange(str(trusted), pins, host)
        with pytest.raises(httpx2.ConnectError):
            await exchange.transport.handle_async_request(server.request(host))
        assert exchange.bytes_written == 0
        assert exchange.tampered == ("TLS_PIN_MISMATCH" if case == "other key" else "")
        assert server.http.requests == []
        await exchange.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_keeps_its_end_when_the_peer_closes_without_a_word(
    tmp_path: Path, run: Callable[[Coroutine[None, None, list[int]]], list[int]]
) -> None:
    """A TLS transport of uvloop that is paused drops what it holds when the connection ends without close_notify: an
    answer within its bounds is never paused."""
    shown = Certificate(tmp_path)
    body = b"x" * 900_000

    async def received(port: int) -> list[int]:
        lengths = []
        for _ in range(3):
            exchange = _exchange(port, str(shown.ca_file))
            request = httpx2.Request("POST", f"https://upstream.example:{port}/", content=b"{}")
            response = await exchange.transport.handle_async_request(request)
            lengths.append(len(await response.aread()))
            await exchange.close()
        return lengths

    with AbruptServer(shown.context, body) as port:
        assert run(received(port)) == [len(body)] * 3


def test_system_authorities_by_default_and_no_key_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Verification is on, old versions are off, and the environment cannot have session keys written down."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    context = make_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.keylog_filename is None


def test_an_unreadable_ca_file_is_an_os_error(tmp_path: Path) -> None:
    """The catalog turns it into a refused start."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "absent.pem"):
        with pytest.raises(OSError, match=r".+"):
            make_context(str(path))
