"""An answer that comes as an event stream, and what a server of the handshake era does beside it (MCP-12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, JSONRPCRequest

from kblockd.domain.answer import Numbers
from kblockd_mcp import answers
from kblockd_mcp.answers import Answer
from kblockd_mcp.wire import EVENTS, Broken, Wire, media_type, repeatable

RESUME_SECONDS: Final = 1.0
"""Until a broken stream is asked for again, when the server says nothing else."""
SHORTEST_MILLISECONDS: Final = 100
FOREVER_MILLISECONDS: Final = 10**9
MAX_FAILURES: Final = 2
MAX_DECLINED: Final = 64


class Stream:
    """The events that answer one request.

    ``handshake``: of that era's servers a broken stream can be resumed, by a GET, which is no second call; and they may
    ask something themselves, which is declined.
    """

    def __init__(self, wire: Wire, request_id: int, numbers: Numbers | None, *, handshake: bool) -> None:
        self._wire = wire
        self._numbers = numbers
        self._request_id = request_id
        self._handshake = handshake
        self._last_event = ""
        self._pause = RESUME_SECONDS
        self._declining: set[asyncio.Task[None]] = set()

    async def answer(self, response: httpx2.Response) -> Answer:
        """Raises ``Broken`` when the stream broke and nothing brought its rest."""
        try:
            return await self._followed(response)
        finally:
            await self._decline_no_more()

    async def _followed(self, response: httpx2.Response) -> Answer:
        try:
            found = await self._read(response)
        except Broken:
            if (rest := await self._resumed()) is None:
                raise
            return rest
        found = found or await self._resumed()
        return found or answers.failed(CONNECTION_CLOSED, "the event stream ended without an answer")

    async def _read(self, response: httpx2.Response) -> Answer | None:
        """Until the answer or the end. One event is no larger than the exchange lets all answers be."""
        response.encoding = "utf-8"  # a stream has no other, and a charset may name a codec of quadratic time
        try:
            async for event in httpx2.EventSource(response, max_event_size=None):
                self._last_event = event.id or self._last_event
                if event.retry is not None:
                    self._pause = min(max(event.retry, SHORTEST_MILLISECONDS), FOREVER_MILLISECONDS) / 1000
                if event.event != "message" or not event.data:
                    continue
                found = answers.read(event.data, self._request_id, self._numbers)
                if isinstance(found, Answer):
                    return found
                if found is not None:
                    self._decline(found)
        finally:
            await response.aclose()
        return None

    async def _resumed(self) -> Answer | None:
        """By GET after the server's own pause, as long as a request can still leave."""
        failures = 0
        while self._resumable() and failures < MAX_FAILURES and self._pause < self._wire.left():
            await asyncio.sleep(self._pause)
            try:
                found = await self._rest()
            except Broken:
                failures += 1
                continue
            if found is not None:
                return found
            failures = 0
        return None

    def _resumable(self) -> bool:
        """A server of that era has given a token, and a header can carry it."""
        return self._handshake and repeatable(self._last_event)

    async def _rest(self) -> Answer | None:
        response = await self._wire.resume({"last-event-id": self._last_event})
        if response.status_code < 400 and media_type(response) == EVENTS:
            return await self._read(response)
        await response.aclose()
        raise Broken("NO_STREAM")

    def _decline(self, asked: JSONRPCRequest) -> None:
        """Beside the stream, whose answer waits for it in the server."""
        if self._handshake and len(self._declining) < MAX_DECLINED:
            error = {"code": METHOD_NOT_FOUND, "message": f"{asked.method} is not offered"}
            said: Mapping[str, Any] = {"result": {}} if asked.method == "ping" else {"error": error}
            self._declining.add(asyncio.create_task(self._say({"id": asked.id, **said})))

    async def _say(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(Broken):
            await self._wire.say(message)

    async def _decline_no_more(self) -> None:
        for task in self._declining:
            task.cancel()
        await asyncio.gather(*self._declining, return_exceptions=True)
