"""The HTTP requests of one session, and notes about their fate.

Every error of the exchange is noted under a stable word; ``classify`` derives from the notes what a call's end proves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx2

from kblockd.upstream.adapter import Exchange

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_COMMON_HEADERS: Final = {"accept": f"{JSON}, {EVENTS}", "content-type": JSON, "user-agent": "kblockd"}
_PIECE: Final = 16 * 1024
_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (httpx2.TimeoutException, "UPSTREAM_TIMEOUT"),
    (httpx2.ConnectError, "CONNECT_FAILED"),
    (httpx2.NetworkError, "CONNECTION_LOST"),
    (httpx2.ProtocolError, "CONNECTION_LOST"),
)


class Broken(Exception):
    """The exchange failed before the answer was complete; ``code`` is an upper-case word."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class CallNotes:
    """Notes about one POST of ``tools/call``, taken while it runs. ``failure`` is an upper-case word or empty."""

    status: int | None = None
    content_type: str = ""
    http_request_id: str = ""
    failure: str = ""
    sha256: Any = field(default_factory=hashlib.sha256)


class SessionWire:
    """Requests to one endpoint over one exchange, each sent once, all with ``headers``.

    ``called`` is set when ``tools/call`` is about to be sent; ``call`` holds the notes about it. ``left`` returns the
    seconds until the exchange ends. ``ids`` number the requests of all sessions.
    """

    def __init__(
        self,
        exchange: Exchange,
        url: httpx2.URL,
        headers: Mapping[str, str],
        left: Callable[[], float],
        ids: Iterator[int],
    ) -> None:
        self._exchange = exchange
        self._url = url
        self._left = left
        self._cookies = httpx2.Cookies()
        self.headers = {**_COMMON_HEADERS, **headers}
        self.ids = ids
        self.called = False
        self.call = CallNotes()

    def left(self) -> float:
        """Seconds during which another request may still be sent."""
        return 0.0 if self._exchange.tampered else self._left()

    async def post(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        """Returns once the answer's head has arrived; the caller closes it. Reading its body may raise ``Broken``."""
        return await self._sent(self._request("POST", headers, _encoded(message)), None)

    async def post_call(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        """The POST of ``tools/call``; a second one raises RuntimeError before any byte is sent (C28, MCP-12)."""
        request = self._request("POST", headers, _encoded(message))
        if self.called:
            raise RuntimeError("a session carries one tools/call")
        self.called = True
        self._exchange.mark()
        response = await self._sent(request, self.call)
        self.call.status = response.status_code
        self.call.content_type = media_type(response)
        self.call.http_request_id = response.headers.get("x-request-id", "")[:128]
        return response

    async def resume(self, headers: Mapping[str, str]) -> httpx2.Response:
        """A GET for the remainder of a stream: not a second call, but part of the call's answer."""
        return await self._sent(self._request("GET", headers), self.call if self.called else None)

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a message without an answer: a notification, or our reply to a server request. Raises ``Broken``."""
        await _read(await self.post(message, {}))

    async def delete(self) -> None:
        """Ends the server's session; raises ``Broken``."""
        await _read(await self._sent(self._request("DELETE", {}), None))

    def _request(self, method: str, headers: Mapping[str, str], content: bytes = b"") -> httpx2.Request:
        request = httpx2.Request(method, self._url, headers={**self.headers, **headers}, content=content)
        if self._cookies:
            self._cookies.set_cookie_header(request)
        return request

    async def _sent(self, request: httpx2.Request, call: CallNotes | None) -> httpx2.Response:
        try:
            response: httpx2.Response = await self._exchange.transport.handle_async_request(request)
        except httpx2.TransportError as error:
            raise self.noted(error, call) from None
        response.request = request
        if "set-cookie" in response.headers:  # from a load balancer, to route the session to its server
            self._cookies.extract_cookies(response)
        response.stream = _Body(cast("httpx2.AsyncByteStream", response.stream), self, call)
        return response

    def noted(self, error: httpx2.TransportError, call: CallNotes | None) -> Broken:
        """Notes the error; a call keeps its first failure."""
        code = self._exchange.tampered or next((word for kind, word in _CODES if isinstance(error, kind)), "")
        broken = Broken(code or "TRANSPORT_FAILED")
        if call is not None:
            call.failure = call.failure or broken.code
        return broken


class _Body(httpx2.AsyncByteStream):
    """An answer's body; a call's body is hashed as it arrives.

    Yields pieces and lets the loop run between them, because processing a piece, such as a flood of events, takes
    longer than receiving it.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, wire: SessionWire, call: CallNotes | None) -> None:
        self._stream = stream
        self._wire = wire
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                if self._call is not None:
                    self._call.sha256.update(part)
                for start in range(0, len(part), _PIECE):
                    yield part[start : start + _PIECE]
                    await asyncio.sleep(0)
        except httpx2.TransportError as error:
            raise self._wire.noted(error, self._call) from None

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _read(response: httpx2.Response) -> None:
    """Reads the body to its end, so that the connection can be reused."""
    try:
        await response.aread()
    finally:
        await response.aclose()


def _encoded(message: Mapping[str, Any]) -> bytes:
    text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def repeatable(value: str) -> bool:
    """Whether a value from the server, such as a session id, can be sent back unchanged in a header."""
    return bool(value) and value.isascii() and value.isprintable() and value == value.strip()


def media_type(response: httpx2.Response) -> str:
    """The Content-Type in lower case, without parameters."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()
