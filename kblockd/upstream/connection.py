"""HTTP/1.1 over one wire, one request at a time, and the pool of idle connections.

A connection is reused only after a complete exchange with no bytes left over: an unsolicited answer must never be read
as the answer to the next request. Nothing is ever repeated on another connection.
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

# Well below the idle time-out of servers (2 s and more): a request that crosses a server's close is lost, and nobody
# may repeat it.
IDLE_SECONDS: Final = 1.0
MAX_IDLE: Final = 128
_HEAD_BYTES: Final = 100 * 1024
_EVENTS_PER_TURN: Final = 32  # one-byte chunks take a hundred times as long as one large chunk
_LENGTHS: Final = (b"content-length", b"transfer-encoding")

Headers = Sequence[tuple[bytes, bytes]]


class Connection:
    """A wire and the state of its HTTP conversation."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._framed = True  # the last answer's length was unambiguous, so the connection may be reused
        self._events = 0  # heads and chunks of the current answer

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
            pass  # a server may answer and close before it has read the whole request
        while True:
            event = await self._next(meter)
            if isinstance(event, h11.Response):
                self._framed = _framed(method, event)
                return event
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                return event  # the caller refuses it

    async def body(self, meter: Meter) -> AsyncIterator[bytes]:
        """The answer's body as it arrives, without its framing."""
        while True:
            event = await self._next(meter)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    def reusable(self) -> bool:
        """Both messages are complete and nothing more has been read; ``quiet`` also asks the kernel."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return done and self._framed and self._http.trailing_data == (b"", False) and self._wire.open()

    def renew(self) -> None:
        """Prepares for the next request."""
        self._http.start_next_cycle()

    def quiet(self) -> bool:
        """Whether nothing has arrived while it was idle."""
        return self._wire.quiet()

    def quench(self) -> None:
        """Keeps unsent request bytes from leaving; an answer to bytes that have arrived can still come."""
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
        """Yields to the loop every ``_EVENTS_PER_TURN`` events: an answer may come in tiny chunks."""
        self._events += 1
        if self._events % _EVENTS_PER_TURN == 0:
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


class IdleConnections:
    """The idle connections of one upstream, the most recent first.

    ``clock`` also counts while the machine sleeps: the server was awake and may have closed the connection meanwhile.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: list[tuple[float, Connection]] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> Connection | None:
        """A connection that can carry a request now, or None."""
        while self._idle:
            until, connection = self._idle.pop()
            if until > self._clock() and connection.quiet():
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keeps it for ``IDLE_SECONDS``, or closes it if it cannot be reused."""
        if not connection.reusable() or len(self._idle) >= MAX_IDLE:
            connection.close()
            return
        connection.renew()
        self._idle.append((self._clock() + IDLE_SECONDS, connection))
        self._watch()

    def close(self) -> None:
        """Closes all idle connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire)

    def _expire(self) -> None:
        now, self._timer = self._clock(), None
        for until, connection in self._idle:
            if until <= now:
                connection.close()
        self._idle = [(until, connection) for until, connection in self._idle if until > now]
        self._watch()


def _framed(method: str, head: h11.Response) -> bool:
    """False for two lengths, or a length where no body belongs: late bytes would be read as the next answer."""
    announced = {name for name, value in head.headers if name in _LENGTHS and value != b"0"}
    bodiless = method.upper() == "HEAD" or head.status_code in (204, 304)
    return len(announced) <= (0 if bodiless else 1)
