"""An answer as an event stream, with resumption and server requests in the handshake revision (MCP-12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, JSONRPCRequest

from kblockd.domain.answer import Numbers
from kblockd_mcp import answers
from kblockd_mcp.answers import RpcAnswer
from kblockd_mcp.wire import EVENTS, Broken, SessionWire, media_type, repeatable

RESUME_SECONDS: Final = 1.0
"""Default pause before a broken stream is resumed."""
SHORTEST_MILLISECONDS: Final = 100
FOREVER_MILLISECONDS: Final = 10**9
MAX_FAILURES: Final = 2
MAX_DECLINED: Final = 64


class Stream:
    """The events that answer one request.

    ``handshake``: in that revision a broken stream can be resumed by a GET, which is not a second call, and the server
    may send requests, which are declined.
    """

    def __init__(self, wire: SessionWire, request_id: int, numbers: Numbers | None, *, handshake: bool) -> None:
        self._wire = wire
        self._numbers = numbers
        self._request_id = request_id
        self._handshake = handshake
        self._last_event = ""
        self._pause = RESUME_SECONDS
        self._declining: set[asyncio.Task[None]] = set()

    async def answer(self, response: httpx2.Response) -> RpcAnswer:
        """Raises ``Broken`` when the stream broke and could not be resumed."""
        try:
            return await self._followed(response)
        finally:
            for task in self._declining:
                task.cancel()
            await asyncio.gather(*self._declining, return_exceptions=True)

    async def _followed(self, response: httpx2.Response) -> RpcAnswer:
        try:
            answer = await self._read(response)
        except Broken:
            if (resumed := await self._resumed()) is None:
                raise
            return resumed
        answer = answer or await self._resumed()
        return answer or answers.failed(CONNECTION_CLOSED, "the event stream ended without an answer")

    async def _read(self, response: httpx2.Response) -> RpcAnswer | None:
        """Reads up to the answer or the end. The exchange's limit for all answers also bounds each event."""
        response.encoding = "utf-8"  # event streams are UTF-8, and a charset could select a codec of quadratic time
        try:
            async for event in httpx2.EventSource(response, max_event_size=None):
                self._last_event = event.id or self._last_event
                if event.retry is not None:
                    self._pause = min(max(event.retry, SHORTEST_MILLISECONDS), FOREVER_MILLISECONDS) / 1000
                if event.event != "message" or not event.data:
                    continue
                message = answers.read(event.data, self._request_id, self._numbers)
                if isinstance(message, RpcAnswer):
                    return message
                if message is not None:
                    self._decline(message)
        finally:
            await response.aclose()
        return None

    async def _resumed(self) -> RpcAnswer | None:
        """Resumes by GET after the server's pause, as long as a request can still leave.

        Only a handshake server's stream, and only if it sent an event id that a header can carry.
        """
        failures = 0
        while (
            self._handshake
            and repeatable(self._last_event)
            and failures < MAX_FAILURES
            and self._pause < self._wire.left()
        ):
            await asyncio.sleep(self._pause)
            try:
                answer = await self._resume()
            except Broken:
                failures += 1
                continue
            if answer is not None:
                return answer
            failures = 0
        return None

    async def _resume(self) -> RpcAnswer | None:
        response = await self._wire.resume({"last-event-id": self._last_event})
        if response.status_code < 400 and media_type(response) == EVENTS:
            return await self._read(response)
        await response.aclose()
        raise Broken("NO_STREAM")

    def _decline(self, request: JSONRPCRequest) -> None:
        """Concurrently with the stream, because the server may wait for this before it answers."""
        if self._handshake and len(self._declining) < MAX_DECLINED:
            error = {"code": METHOD_NOT_FOUND, "message": f"{request.method} is not offered"}
            reply: Mapping[str, Any] = {"result": {}} if request.method == "ping" else {"error": error}
            self._declining.add(asyncio.create_task(self._notify({"id": request.id, **reply})))

    async def _notify(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(Broken):
            await self._wire.notify(message)
