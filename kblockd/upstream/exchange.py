"""The guarded HTTP exchange under every HTTP adapter: HTTP/1.1 to one origin, and nothing that was not asked for.

No redirect is followed, no proxy or netrc of the environment is honoured, no request is repeated, the decoded bytes of
all answers together are bounded, and everything ends at one deadline. The adapter sees plain httpx2 errors; why the
guard cut the exchange stands in ``tampered``. Source: R176 to R201, mcp.md section 2.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import httpcore2
import httpx2

from kblockd.upstream.body import BodyRefused, Gzip, Plain, decoder
from kblockd.upstream.scope import Scope, current
from kblockd.upstream.wire import Connect, GuardedBackend, Meter

# Room for headers and chunk framing beside the decoded bytes.
_OVERHEAD_BYTES: Final = 256 * 1024
_FRAMING_FACTOR: Final = 8
_CONNECTIONS: Final = 4
_LONGEST_SECONDS: Final = 600.0

_ERRORS: Final[tuple[tuple[type[Exception], type[httpx2.TransportError]], ...]] = (
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.ReadTimeout, httpx2.ReadTimeout),
    (httpcore2.WriteTimeout, httpx2.WriteTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.ReadError, httpx2.ReadError),
    (httpcore2.WriteError, httpx2.WriteError),
    (httpcore2.LocalProtocolError, httpx2.LocalProtocolError),
    (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
    (Exception, httpx2.NetworkError),  # whatever else the stack below raises
)


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
    ssl: ssl.SSLContext | None
    max_response_bytes: int
    pins: Collection[str] = ()
    clock: Callable[[], float] = time.monotonic

    def exchange(self, deadline: float) -> GuardedExchange:
        """A fresh exchange that ends at ``deadline`` (monotonic seconds), and with its call at the latest."""
        scope = current() or Scope(self.clock() + _LONGEST_SECONDS)
        ends = min(deadline, scope.deadline)
        read_limit = self.max_response_bytes * _FRAMING_FACTOR + _OVERHEAD_BYTES
        meter = Meter(ends, ends + scope.late_seconds, read_limit, self.clock)
        scope.add(meter)
        return GuardedExchange(self, meter, scope.credential)

    async def raw_connection(self, host: str, port: int, deadline: float) -> httpcore2.AsyncNetworkStream:
        """A guarded connection without HTTP; a call that uses one can no longer prove that nothing was sent."""
        scope = current()
        if scope is not None:
            scope.raw_connections += 1
        return await self.connect(host, port, deadline)


class GuardedExchange:
    """One exchange; implements ``kblockd.upstream.adapter.Exchange``."""

    def __init__(self, guard: Guard, meter: Meter, authorization: bytes | None) -> None:
        self._meter = meter
        self.transport: httpx2.AsyncBaseTransport = GuardedTransport(guard, meter, authorization)

    @property
    def bytes_written(self) -> int:
        """Bytes of requests since the start or the last ``mark``."""
        return self._meter.since_mark()

    def mark(self) -> None:
        """Starts counting anew."""
        self._meter.marked = self._meter.written

    @property
    def tampered(self) -> str:
        """The code of the first cut, or empty."""
        return self._meter.code

    async def close(self) -> None:
        """Closes the connections."""
        await self.transport.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Requests to the upstream's origin only; answers bounded and decoded."""

    def __init__(self, guard: Guard, meter: Meter, authorization: bytes | None) -> None:
        self._authorization = authorization
        self._origin = guard.origin
        self._meter = meter
        self._left = guard.max_response_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=guard.ssl,
            max_connections=_CONNECTIONS,
            retries=0,
            network_backend=GuardedBackend(guard.connect, meter, guard.pins),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises ``ExchangeCut`` or another ``httpx2.TransportError``."""
        self._check_origin(request.url)
        with _translated():
            answer = await self._pool.handle_async_request(self._outgoing(request))
        body = _Body(answer, self._meter, self._take)
        try:
            headers = self._checked(answer, body)
        except BaseException:
            await body.aclose()
            raise
        return httpx2.Response(answer.status, headers=headers, stream=body, extensions=_extensions(answer))

    async def aclose(self) -> None:
        """Closes all connections, also those that are busy, and forgets the credential (R632)."""
        self._authorization = None
        await self._pool.aclose()

    def _check_origin(self, url: httpx2.URL) -> None:
        try:
            same = Origin.of(url) == self._origin
        except ValueError:
            same = False
        if not same:
            raise self._cut("ORIGIN_REFUSED", "the adapter asked for another origin than the upstream's")

    def _outgoing(self, request: httpx2.Request) -> httpcore2.Request:
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
        if self._authorization is not None and "authorization" not in request.headers:
            headers.append((b"Authorization", self._authorization))
        url = request.url
        return httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=[*headers, (b"Accept-Encoding", b"identity")],
            content=request.stream,
            extensions={"timeout": {"pool": self._meter.may_connect()}},
        )

    def _checked(self, answer: httpcore2.Response, body: _Body) -> httpx2.Headers:
        """The headers that the adapter sees; refuses what is no final answer of this origin."""
        if 300 <= answer.status < 400:
            raise self._cut("REDIRECT_REFUSED", f"status {answer.status}: redirects are not followed")
        if answer.status < 200:
            raise self._cut("UPGRADE_REFUSED", f"status {answer.status}: no other protocol")
        headers = httpx2.Headers(answer.headers)
        try:
            body.coding = decoder(headers.get("content-encoding", ""))
        except BodyRefused as refused:
            raise self._cut(refused.code, str(refused)) from None
        if isinstance(body.coding, Gzip):
            del headers["content-encoding"]
            headers.pop("content-length", None)
        return headers

    def _take(self, coding: Plain | Gzip, data: bytes) -> bytes:
        """Decodes one piece against what may still come."""
        try:
            part = coding.feed(data, self._left)
        except BodyRefused as refused:
            raise self._cut(refused.code, str(refused)) from None
        self._left -= len(part)
        if self._left < 0:
            raise self._cut("RESPONSE_TOO_LARGE", "the answers are larger than the limit")
        return part

    def _cut(self, code: str, message: str) -> ExchangeCut:
        self._meter.cut(code)
        return ExchangeCut(code, message)


class _Body(httpx2.AsyncByteStream):
    """Decoded pieces as they come, so that event streams work."""

    def __init__(self, answer: httpcore2.Response, meter: Meter, take: Callable[[Plain | Gzip, bytes], bytes]) -> None:
        self.coding: Plain | Gzip = Plain()
        self._answer = answer
        self._meter = meter
        self._take = take

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for data in self._answer.aiter_stream():
                if part := self._take(self.coding, data):
                    yield part
            try:
                self.coding.finish()
            except BodyRefused as refused:
                self._meter.cut(refused.code)
                raise ExchangeCut(refused.code, str(refused)) from None

    async def aclose(self) -> None:
        await self._answer.aclose()


def _extensions(answer: httpcore2.Response) -> dict[str, object]:
    """Without the network stream: an adapter reads what the guard has counted."""
    return {name: value for name, value in answer.extensions.items() if name in ("http_version", "reason_phrase")}


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """httpcore2's errors as httpx2's; the message stays, the chain goes."""
    try:
        yield
    except httpx2.TransportError:
        raise
    except Exception as error:
        translated = next(to for known, to in _ERRORS if isinstance(error, known))
        raise translated(str(error) or type(error).__name__) from error
