"""What really happened on the wire: a watcher between the SDK and the guarded exchange.

The SDK turns transport errors into the cancellation of its caller, so a refused connection, a lost answer and a real
cancellation look alike (mcp.md section 2). Here every error is written down and the SDK gets an HTTP status instead;
what a call's end proves is read from these notes, never from the SDK's exception.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx2

from kblockd.upstream.adapter import Exchange

CALL: Final = "tools/call"
SESSION_HEADER: Final = "mcp-session-id"
_TIMEOUT: Final = "UPSTREAM_TIMEOUT"
_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (httpx2.TimeoutException, _TIMEOUT),
    (httpx2.ConnectError, "CONNECT_FAILED"),
    (httpx2.NetworkError, "CONNECTION_LOST"),
    (httpx2.ProtocolError, "CONNECTION_LOST"),
)


@dataclass(slots=True)
class CallNotes:
    """One POST of ``tools/call``: filled while it runs. ``failure`` is an upper-case word or empty."""

    status: int | None = None
    content_type: str = ""
    http_request_id: str = ""
    failure: str = ""
    sha256: Any = field(default_factory=hashlib.sha256)


class Wire(httpx2.AsyncBaseTransport):
    """A transport for one session with at most one ``tools/call``; a second one is refused here (C28, MCP-12).

    ``failure`` is why a request before the call failed; after one, no call goes out. ``on_stalled`` is called when
    the SDK may be left waiting: with True when the answer's stream is over for good, with False when it broke.
    """

    def __init__(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        self._exchange = exchange
        self._headers = dict(headers)
        self.call_headers: dict[str, str] = {}
        self.resumable = False  # only the handshake era resumes a broken stream, by a GET, which is no second call
        self.on_stalled: Callable[[bool], None] = lambda over: None
        self.failure = ""
        self.status: int | None = None
        self.session_id = ""
        self.call: CallNotes | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Never raises a transport error: the SDK would cancel its caller."""
        request.headers.update(self._headers)
        if request.method == "GET" and not (self.resumable and "last-event-id" in request.headers):
            return httpx2.Response(405)  # the standing stream of the handshake era carries nothing that is used
        if _method(request) == CALL:
            return await self._send_call(request)
        return await self._send(request, None)

    async def _send_call(self, request: httpx2.Request) -> httpx2.Response:
        if self.call is not None or self.failure:
            return httpx2.Response(503)
        self.call = CallNotes()
        request.headers.update(self.call_headers)
        self._exchange.mark()
        return await self._send(request, self.call)

    async def _send(self, request: httpx2.Request, call: CallNotes | None) -> httpx2.Response:
        try:
            response = await self._exchange.transport.handle_async_request(request)
        except httpx2.TransportError as error:
            self._note(error, call)
            return httpx2.Response(503)
        self.session_id = response.headers.get(SESSION_HEADER, "") or self.session_id
        if call is None:
            self.status = response.status_code
        else:
            call.status = response.status_code
            call.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            call.http_request_id = response.headers.get("x-request-id", "")[:128]
        body = _Watched(cast("httpx2.AsyncByteStream", response.stream), self, call)
        if self.call is not None and (call is not None or request.method == "GET"):
            body.digest = self.call.sha256  # the call's answer, and what a resumption brings of it
        return httpx2.Response(response.status_code, headers=response.headers, stream=body, request=request)

    def _note(self, error: Exception, call: CallNotes | None) -> None:
        code = self._exchange.tampered or next((word for kind, word in _CODES if isinstance(error, kind)), "")
        code = code or "TRANSPORT_FAILED"
        if call is not None:
            call.failure = call.failure or code
            self.on_stalled(False)
        elif self.call is None:
            self.failure = self.failure or code

    async def aclose(self) -> None:
        """The exchange belongs to the caller, who closes it."""


class _Watched(httpx2.AsyncByteStream):
    """An answer's body: hashed, and ended instead of raising."""

    def __init__(self, stream: httpx2.AsyncByteStream, wire: Wire, call: CallNotes | None) -> None:
        self._stream = stream
        self._wire = wire
        self._call = call
        self.digest: Any = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                if self.digest is not None:
                    self.digest.update(part)
                yield part
        except httpx2.TransportError as error:
            self._wire._note(error, self._call)
        if self._call is not None:
            self._wire.on_stalled(False)

    async def aclose(self) -> None:
        with contextlib.suppress(httpx2.TransportError):
            await self._stream.aclose()
        if self._call is not None:
            self._wire.on_stalled(True)


def _method(request: httpx2.Request) -> str:
    """The JSON-RPC method of a POST, or empty."""
    if request.method != "POST":
        return ""
    try:
        message = json.loads(request.content)
    except ValueError:
        return ""
    method = message.get("method", "") if isinstance(message, dict) else ""
    return method if isinstance(method, str) else ""
