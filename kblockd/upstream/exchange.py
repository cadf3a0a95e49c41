"""The guarded HTTP exchange under every HTTP adapter: HTTP/1.1 to one origin, and nothing that was not asked for.

No redirect is followed, no proxy or netrc of the environment is honoured, no request is repeated, the decoded bytes of
all answers together are bounded, and everything ends at one deadline. The adapter sees plain httpx2 errors; why the
guard cut the exchange stands in ``tampered``. Source: R176 to R201, mcp.md section 2.
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
from kblockd.upstream.connection import Connection, Headers, Kept
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
    """The guard ended the exchange; ``code`` is what ``Exchange.tampered`` says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port: where the requests of an upstream go, and part of the action digest."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx2.URL | str) -> Origin:
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
    """What all exchanges of one upstream share."""

    origin: Origin
    connect: Connect
    ssl: SSLContext | None
    max_response_bytes: int
    pins: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic
    kept: Kept = field(default_factory=Kept)

    def exchange(self, deadline: float) -> GuardedExchange:
        """A fresh exchange that ends at ``deadline`` (monotonic seconds), and with its call at the latest."""
        scope = current() or Scope(self.clock() + _LONGEST_SECONDS)
        ends = min(deadline, scope.deadline)
        read_limit = self.max_response_bytes * _FRAMING_FACTOR + _OVERHEAD_BYTES
        meter = Meter(ends, ends + scope.late_seconds, read_limit, self.clock, scope.permit)
        scope.add(meter)
        return GuardedExchange(self, meter, scope.credential)

    async def raw_connection(self, host: str, port: int, deadline: float) -> Wire:
        """A guarded connection without HTTP; a call that uses one can no longer prove that nothing was sent.

        Raises ``ConnectTimeout`` behind the call's answer: that nothing was sent may have been said by then.
        """
        scope = current()
        if scope is not None:
            scope.raw_connections += 1
            if scope.sealed:
                raise httpx2.ConnectTimeout("the call has its answer")
        return await self.connect(host, port, deadline)

    async def connection(self, meter: Meter) -> Connection:
        """One that was kept, or a new one within the exchange's deadline; raises ``ConnectError``, ``ConnectTimeout``.

        The reason stays in the meter.
        """
        meter.may_connect()
        return self.kept.take() or Connection(await self._connected(meter))

    def close(self) -> None:
        """Closes the connections that wait for another call."""
        self.kept.close()

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

    ``transport`` is for stacks that speak httpx2, ``send`` for a request that needs nothing of that.
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
        """The next request is the one that matters."""
        self._meter.mark()

    @property
    def tampered(self) -> str:
        """The code of the first cut, or empty."""
        return self._meter.code

    async def send(self, method: str, target: bytes, headers: Headers, content: bytes) -> Reply:
        """One request to the origin and its whole answer; raises ``ExchangeCut``, ``httpx2.TransportError``."""
        length = [(b"Content-Length", str(len(content)).encode())] if content or method not in _BODILESS else []
        answer = await self._requests.begin(method, target, [*headers, *length], content)
        try:
            body = bytearray()  # a list of small parts would take many times their bytes
            async for part in answer.pieces():
                body += part
        finally:
            answer.release()
        return Reply(answer.status, answer.headers, bytes(body))

    async def close(self) -> None:
        """Ends every request that is under way and forgets the credential (R632)."""
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

    async def begin(self, method: str, target: bytes, headers: Headers, content: bytes) -> Answer:
        """Until the head of the answer is here; the caller releases it. Raises as ``GuardedExchange.send``."""
        if not target.startswith(b"/"):  # an absolute one would name another origin to servers that forward
            raise self.cut("ORIGIN_REFUSED", "the target of a request is a path")
        self._meter.ask()
        connection = await self._connection()
        try:
            head = await connection.ask(self._meter, method, target, self._outgoing(headers), content)
            return Answer(self, connection, head, self._checked(head))
        except BaseException:
            self.end(connection)
            raise

    async def _connection(self) -> Connection:
        """In a slot of its own; the exchange may be closed while either is waited for, and then nothing is sent."""
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
        """The body's bytes as they come."""
        return connection.body(self._meter)

    def take(self, coding: Plain | Gzip, data: bytes) -> bytes:
        """Decodes one piece against what may still come."""
        try:
            part = coding.feed(data, self._left)
        except BodyRefused as refused:
            raise self.cut(refused.code, str(refused)) from None
        self._left -= len(part)
        if self._left < 0:
            raise self.cut("RESPONSE_TOO_LARGE", "the answers are larger than the limit")
        return part

    def cut(self, code: str, message: str) -> ExchangeCut:
        """The first reason stays."""
        self._meter.cut(code)
        return ExchangeCut(code, message)

    def end(self, connection: Connection) -> None:
        """The connection is kept for the next call or closed, by what was said on it."""
        if connection in self._busy:
            self._busy.discard(connection)
            self._slots.release()
            self._guard.kept.keep(connection)

    def close(self) -> None:
        """Closes what is busy, and lets nobody wait for a slot any longer."""
        self._authorization = None
        self._closed = True
        for connection in self._busy:
            connection.close()
            self._slots.release()
        self._busy.clear()

    def quench(self) -> None:
        """Nothing that was begun leaves any more."""
        for connection in self._busy:
            connection.quench()

    def check_origin(self, url: httpx2.URL) -> None:
        """Raises ``ExchangeCut`` for a request that goes elsewhere."""
        try:
            same = Origin.of(url) == self._guard.origin
        except ValueError:
            same = False
        if not same:
            raise self.cut("ORIGIN_REFUSED", "the adapter asked for another origin than the upstream's")

    def _outgoing(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Whatever the adapter calls the server, the origin is asked."""
        found = [(b"Host", self._host)]
        found += [(name, value) for name, value in headers if name.lower() not in (b"host", b"accept-encoding")]
        if self._authorization is not None and all(name.lower() != b"authorization" for name, _ in found):
            found.append((b"Authorization", self._authorization))
        found.append((b"Accept-Encoding", b"identity"))
        return found

    def _checked(self, head: h11.Response | h11.InformationalResponse) -> Plain | Gzip:
        """How the body is coded; refuses what is no final answer of this origin."""
        if 300 <= head.status_code < 400:
            raise self.cut("REDIRECT_REFUSED", f"status {head.status_code}: redirects are not followed")
        if head.status_code < 200:
            raise self.cut("UPGRADE_REFUSED", f"status {head.status_code}: no other protocol")
        codings = [value for name, value in head.headers if name == b"content-encoding"]
        try:
            return decoder(b", ".join(codings).decode("latin-1"))
        except BodyRefused as refused:
            raise self.cut(refused.code, str(refused)) from None


class Answer:
    """The answer to one request: its head is here, its body comes as it is read."""

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
        """The answer is read, or nobody reads it any more."""
        self._requests.end(self._connection)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The exchange as httpx2 knows transports, for stacks that bring their own client."""

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
            stream=_Stream(answer),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": answer.reason},
        )

    async def aclose(self) -> None:
        """Closes all connections, also those that are busy."""
        self._requests.close()


class _Stream(httpx2.AsyncByteStream):
    """Decoded pieces as they come."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.pieces():
            yield piece

    async def aclose(self) -> None:
        self._answer.release()


def _host(origin: Origin) -> bytes:
    """The Host header: without the scheme's own port."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    usual = 443 if origin.scheme == "https" else 80
    return (host if origin.port == usual else f"{host}:{origin.port}").encode("ascii")
