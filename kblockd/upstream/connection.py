"""HTTP/1.1 over one wire, one request at a time, and the connections that wait for the next call.

A connection is kept only after a complete exchange of messages with nothing left over: an answer that nobody asked for
must not be read as the answer to the next request. Nothing is ever repeated on another connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import h11
import httpx2

from kblockd.upstream.meter import Meter
from kblockd.upstream.wire import Wire

# Well below what servers wait before they close an idle connection (2 s and more): a request that crosses such a close
# is lost, and nobody may repeat it.
KEPT_SECONDS: Final = 1.0
KEPT_MOST: Final = 128
_HEAD_BYTES: Final = 100 * 1024
# Of a byte each they take a hundred times as long as in one piece.
_EVENTS_A_TURN: Final = 32
_LENGTHS: Final = (b"content-length", b"transfer-encoding")

Headers = Sequence[tuple[bytes, bytes]]


class Connection:
    """A wire and where its conversation stands."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._clear = True  # where the last answer ends
        self._events = 0  # of the answer that is read, chunks as well as heads

    async def ask(
        self, meter: Meter, method: str, target: bytes, headers: Headers, content: bytes
    ) -> h11.Response | h11.InformationalResponse:
        """Sends one request and reads the head of its answer.

        Raises ``LocalProtocolError`` before a byte has left, and every other ``httpx2.TransportError``.
        """
        self._events = 0
        data = self._encoded(method, target, headers, content)
        try:
            await self._wire.write(data, meter.may_write(len(data)))
        except httpx2.WriteTimeout:
            meter.cut("UPSTREAM_TIMEOUT")
            raise
        except httpx2.WriteError:
            pass  # a server may refuse before it has read everything: its answer may be here
        while True:
            event = await self._next(meter)
            if isinstance(event, h11.Response):
                self._clear = _ends_clearly(method, event)
                return event
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                return event  # the caller refuses it

    async def body(self, meter: Meter) -> AsyncIterator[bytes]:
        """The answer's body as it comes, without its framing."""
        while True:
            event = await self._next(meter)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    def reusable(self) -> bool:
        """Both sides have said all, and nothing was said beyond, as far as is known: ``quiet`` looks again."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return done and self._clear and self._http.trailing_data == (b"", False) and self._wire.open()

    def renew(self) -> None:
        """Ready for the next request."""
        self._http.start_next_cycle()

    def quiet(self) -> bool:
        """Nothing has come since it was kept."""
        return self._wire.quiet()

    def quench(self) -> None:
        """Nothing of what was asked leaves any more; an answer to what has arrived can still come."""
        self._wire.quench()

    def close(self) -> None:
        """Closes the wire."""
        self._wire.close()

    def _encoded(self, method: str, target: bytes, headers: Headers, content: bytes) -> bytes:
        try:
            head = self._http.send(h11.Request(method=method, target=target, headers=list(headers)))
            body = self._http.send(h11.Data(data=content)) if content else b""
            return (head or b"") + (body or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as error:
            raise httpx2.LocalProtocolError(str(error)) from None

    async def _next(self, meter: Meter) -> h11.Event:
        """Between so many of them, such as the smallest of chunks, the loop has its turn."""
        self._events += 1
        if self._events % _EVENTS_A_TURN == 0:
            await asyncio.sleep(0)
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._received(meter))
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from None
        if isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed):
            return event
        raise httpx2.RemoteProtocolError("the server ended the conversation or changed its protocol")

    async def _received(self, meter: Meter) -> bytes:
        try:
            data = await self._wire.read(meter.may_read())
        except httpx2.ReadTimeout:
            meter.cut("UPSTREAM_TIMEOUT")
            raise
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise httpx2.RemoteProtocolError("the server closed the connection without an answer")
        meter.took(len(data))
        return data


class Kept:
    """The connections of one upstream that are between two calls, the youngest first.

    ``clock`` goes on while the machine sleeps: the server has not slept, and its farewell may have met nobody.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, Connection]] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> Connection | None:
        """One that can carry a request now, or None."""
        while self._waiting:
            until, connection = self._waiting.pop()
            if until > self._clock() and connection.quiet():
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """For the next call, for a while; closed if it cannot carry one."""
        if not connection.reusable() or len(self._waiting) >= KEPT_MOST:
            connection.close()
            return
        connection.renew()
        self._waiting.append((self._clock() + KEPT_SECONDS, connection))
        self._watch()

    def close(self) -> None:
        """Closes them all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _watch(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._expire)

    def _expire(self) -> None:
        now, self._timer = self._clock(), None
        for until, connection in self._waiting:
            if until <= now:
                connection.close()
        self._waiting = [one for one in self._waiting if one[0] > now]
        self._watch()


def _ends_clearly(method: str, head: h11.Response) -> bool:
    """Not one that announces a body where none belongs, or two lengths: what comes late would be the next answer."""
    announced = {name for name, value in head.headers if name in _LENGTHS and value != b"0"}
    bodiless = method.upper() == "HEAD" or head.status_code in (204, 304)
    return len(announced) <= (0 if bodiless else 1)
