"""The guarded HTTP exchange under every HTTP adapter: HTTP/1.1 to one origin, with no implicit behaviour.

It follows no redirect, ignores proxies and netrc, repeats no request, bounds the decoded bytes of all answers together,
and ends at one deadline. The adapter sees plain httpx2 errors; ``tampered`` says why the guard cut the exchange.
Source: R176 to R201, kblockd/upstream/decisions/own-http-exchange.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final

import h11
import httpx2

from kblockd.upstream.adapter import Reply
from kblockd.upstream.address_guard import AddressRefused
from kblockd.upstream.body import BodyRefused, Gzip, Plain, decoder
from kblockd.upstream.connection import Connection, Headers, IdleConnections
from kblockd.upstream.meter import Meter
from kblockd.upstream.scope import Scope, current
from kblockd.upstream.tls import PinMismatch, check_pin
from kblockd.upstream.wire import NoResources, Wire

Connect = Callable[[str, int, float], Awaitable[Wire]]

# Room for headers and chunk framing beside the decoded bytes.
_OVERHEAD_BYTES: Final = 256 * 1024
_FRAMING_FACTOR: Final = 8
_CONNECTIONS: Final = 4
_LONGEST_SECONDS: Final = 600.0
_BODILESS: Final = ("GET", "HEAD", "DELETE")
_OF_CODING: Final = (b"content-encoding", b"content-length")


class ExchangeCut(httpx2.TransportError):
    """The guard ended the exchange; ``code`` is the value of ``Exchange.tampered``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class HttpOrigin:
    """Scheme, host and port that an upstream's requests go to; part of the action digest."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx2.URL | str) -> HttpOrigin:
        """Raises ValueError for anything but http and https with a host."""
        parsed = httpx2.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("must be http://HOST… or https://HOST…")
        return cls(parsed.scheme, parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Guard:
    """Shared by all exchanges of one upstream."""

    origin: HttpOrigin
    connect: Connect
    ssl: SSLContext | None
    max_response_bytes: int
    pins: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic
    idle: IdleConnections = field(default_factory=IdleConnections)

    def exchange(self, deadline: float) -> GuardedExchange:
        """A new exchange that ends at ``deadline`` (monotonic seconds), at the latest with its call."""
        scope = current() or Scope(self.clock() + _LONGEST_SECONDS)
        ends = min(deadline, scope.deadline)
        read_limit = self.max_response_bytes * _FRAMING_FACTOR + _OVERHEAD_BYTES
        meter = Meter(ends, ends + scope.late_seconds, read_limit, self.clock, scope.permit)
        scope.add(meter)
        return GuardedExchange(self, meter, scope.credential)

    async def raw_connection(self, host: str, port: int, deadline: float) -> Wire:
        """A guarded connection without HTTP; a call that uses it can no longer prove that nothing was sent.

        Raises ``ConnectTimeout`` after the call's answer, which may already have said that nothing was sent.
        """
        scope = current()
        if scope is not None:
            scope.raw_connections += 1
            if scope.sealed:
                raise httpx2.ConnectTimeout("the call has its answer")
        return await self.connect(host, port, deadline)

    async def connection(self, meter: Meter) -> Connection:
        """An idle connection, or a new one within the exchange's deadline.

        Raises ``ConnectError`` or ``ConnectTimeout``, and records the reason in the meter.
        """
        meter.may_connect()
        return self.idle.take() or Connection(await self._connected(meter))

    def close(self) -> None:
        """Closes the idle connections."""
        self.idle.close()

    async def _connected(self, meter: Meter) -> Wire:
        try:
            wire = await self.connect(self.origin.host, self.origin.port, meter.deadline)
            if self.ssl is not None and self.origin.scheme == "https":
                await self._secured(wire, self.ssl, meter)
        except (AddressRefused, NoResources, PinMismatch) as refused:
            meter.cut(refused.code)
            raise
        except httpx2.ConnectTimeout:
            meter.cut("UPSTREAM_TIMEOUT")
            raise
        return wire

    async def _secured(self, wire: Wire, context: SSLContext, meter: Meter) -> None:
        try:
            await wire.start_tls(context, self.origin.host, meter.may_connect())
            check_pin(wire.certificate(), self.pins)
        except BaseException:
            wire.close()
            raise


class GuardedExchange:
    """One exchange; implements ``kblockd.upstream.adapter.Exchange``.

    ``transport`` is for stacks built on httpx2, ``send`` for single requests.
    """

    def __init__(self, guard: Guard, meter: Meter, authorization: bytes | None) -> None:
        self._meter = meter
        self._requests = _Requests(guard, meter, authorization)
        self.transport: httpx2.AsyncBaseTransport = GuardedTransport(self._requests)

    @property
    def bytes_written(self) -> int:
        """Bytes of requests since the start or the last ``mark``."""
        return self._meter.since_mark()

    def mark(self) -> None:
        """See ``Exchange.mark``."""
        self._meter.mark()

    @property
    def tampered(self) -> str:
        """The code of the first cut, or empty."""
        return self._meter.code

    async def send(self, method: str, target: bytes, headers: Headers, content: bytes) -> Reply:
        """One request to the origin and its complete answer; raises ``ExchangeCut``, ``httpx2.TransportError``."""
        length = [(b"Content-Length", str(len(content)).encode())] if content or method not in _BODILESS else []
        answer = await self._requests.begin(method, target, [*headers, *length], content)
        try:
            body = bytearray()  # a list of small parts would take many times the memory
            async for part in answer.pieces():
                body += part
        finally:
            answer.release()
        return Reply(answer.status, answer.headers, bytes(body))

    async def close(self) -> None:
        """Ends all requests in flight and forgets the credential (R632)."""
        self._requests.close()


class _Requests:
    """The requests of one exchange: at most ``_CONNECTIONS`` at a time, bounded together."""

    def __init__(self, guard: Guard, meter: Meter, authorization: bytes | None) -> None:
        self._host = _host(guard.origin)
        self._authorization = authorization
        self._guard = guard
        self._meter = meter
        self._left = guard.max_response_bytes
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._busy: set[Connection] = set()
        self._closed = False
        meter.on_seal = self.quench

    async def begin(self, method: str, target: bytes, headers: Headers, content: bytes) -> Response:
        """Returns once the answer's head has arrived; the caller releases it. Raises as ``GuardedExchange.send``."""
        if not target.startswith(b"/"):  # a forwarding server would take an absolute target for another origin
            raise self.cut("ORIGIN_REFUSED", "the target of a request must be a path")
        self._meter.ask()
        connection = await self._connection()
        try:
            head = await connection.ask(self._meter, method, target, self._outgoing(headers), content)
            return Response(self, connection, head, self._checked(head))
        except BaseException:
            self.end(connection)
            raise

    async def _connection(self) -> Connection:
        """Takes a slot. The exchange may be closed while this waits for the slot or the connection; then nothing is
        sent."""
        await self._slots.acquire()
        try:
            self._check_open()
            connection = await self._guard.connection(self._meter)
            self._busy.add(connection)
        except BaseException:
            self._slots.release()
            raise
        try:
            self._check_open()
        except BaseException:
            self.end(connection)
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise self.cut("EXCHANGE_CLOSED", "the exchange was closed before the request could leave")

    def body(self, connection: Connection) -> AsyncIterator[bytes]:
        """The body's bytes as they arrive."""
        return connection.body(self._meter)

    def take(self, coding: Plain | Gzip, data: bytes) -> bytes:
        """Decodes one piece within the remaining limit."""
        try:
            part = coding.feed(data, self._left)
        except BodyRefused as refused:
            raise self.cut(refused.code, str(refused)) from None
        self._left -= len(part)
        if self._left < 0:
            raise self.cut("RESPONSE_TOO_LARGE", "the answers exceed the size limit")
        return part

    def cut(self, code: str, message: str) -> ExchangeCut:
        """The exception for a cut; the meter keeps the first code."""
        self._meter.cut(code)
        return ExchangeCut(code, message)

    def end(self, connection: Connection) -> None:
        """Returns the connection to the pool, which closes it if it cannot be reused."""
        if connection in self._busy:
            self._busy.discard(connection)
            self._slots.release()
            self._guard.idle.keep(connection)

    def close(self) -> None:
        """Closes the busy connections and frees their slots, so that waiters see the exchange closed."""
        self._authorization = None
        self._closed = True
        for connection in self._busy:
            connection.close()
            self._slots.release()
        self._busy.clear()

    def quench(self) -> None:
        """Keeps unsent bytes of all requests in flight from leaving."""
        for connection in self._busy:
            connection.quench()

    def check_origin(self, url: httpx2.URL) -> None:
        """Raises ``ExchangeCut`` for a request that goes elsewhere."""
        try:
            same = HttpOrigin.of(url) == self._guard.origin
        except ValueError:
            same = False
        if not same:
            raise self.cut("ORIGIN_REFUSED", "the adapter asked for another origin than the upstream's")

    def _outgoing(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The adapter's headers with our Host and Accept-Encoding, and Authorization where it set none."""
        outgoing = [(b"Host", self._host)]
        outgoing += [(name, value) for name, value in headers if name.lower() not in (b"host", b"accept-encoding")]
        if self._authorization is not None and all(name.lower() != b"authorization" for name, _ in outgoing):
            outgoing.append((b"Authorization", self._authorization))
        outgoing.append((b"Accept-Encoding", b"identity"))
        return outgoing

    def _checked(self, head: h11.Response | h11.InformationalResponse) -> Plain | Gzip:
        """The body's decoder; raises ``ExchangeCut`` for anything but a final answer."""
        if 300 <= head.status_code < 400:
            raise self.cut("REDIRECT_REFUSED", f"status {head.status_code}: redirects are not followed")
        if head.status_code < 200:
            raise self.cut("UPGRADE_REFUSED", f"status {head.status_code}: protocol upgrades are not accepted")
        codings = [value for name, value in head.headers if name == b"content-encoding"]
        try:
            return decoder(b", ".join(codings).decode("latin-1"))
        except BodyRefused as refused:
            raise self.cut(refused.code, str(refused)) from None


class Response:
    """The answer to one request: the head has arrived, the body arrives as it is read."""

    def __init__(
        self,
        requests: _Requests,
        connection: Connection,
        head: h11.Response | h11.InformationalResponse,
        coding: Plain | Gzip,
    ) -> None:
        self.status = head.status_code
        self.reason = bytes(head.reason)
        self.headers: Sequence[tuple[bytes, bytes]] = [
            (name, value) for name, value in head.headers if isinstance(coding, Plain) or name not in _OF_CODING
        ]
        self._requests = requests
        self._connection = connection
        self._coding = coding

    async def pieces(self) -> AsyncIterator[bytes]:
        """The decoded body, so that event streams work."""
        async for data in self._requests.body(self._connection):
            if part := self._requests.take(self._coding, data):
                yield part
        try:
            self._coding.finish()
        except BodyRefused as refused:
            raise self._requests.cut(refused.code, str(refused)) from None

    def release(self) -> None:
        """Gives the connection back; the answer has been read or is abandoned."""
        self._requests.end(self._connection)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The exchange as an httpx2 transport, for stacks with their own client."""

    def __init__(self, requests: _Requests) -> None:
        self._requests = requests

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises ``ExchangeCut`` or another ``httpx2.TransportError``."""
        self._requests.check_origin(request.url)
        content = await request.aread()
        answer = await self._requests.begin(request.method, request.url.raw_path, request.headers.raw, content)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_ResponseStream(answer),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": answer.reason},
        )

    async def aclose(self) -> None:
        """Closes all connections, including busy ones."""
        self._requests.close()


class _ResponseStream(httpx2.AsyncByteStream):
    """Decoded pieces as they arrive."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.pieces():
            yield piece

    async def aclose(self) -> None:
        self._answer.release()


def _host(origin: HttpOrigin) -> bytes:
    """The Host header, without the scheme's default port."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    usual = 443 if origin.scheme == "https" else 80
    return (host if origin.port == usual else f"{host}:{origin.port}").encode("ascii")
