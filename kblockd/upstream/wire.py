"""What one exchange puts on the wire: a stream that counts, ends at the deadline, and stops when told.

A byte counts before it is handed to the kernel, so that zero is proof and anything else is a guess on the safe side.
TLS handshakes do not count: they carry no request.
"""

# ruff: noqa: ASYNC109  (the signatures are httpcore2's)

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

import httpcore2

from kblockd.upstream.address_guard import AddressRefused
from kblockd.upstream.tls import PinMismatch, check_pin

Connect = Callable[[str, int, float], Awaitable[httpcore2.AsyncNetworkStream]]


class Meter:
    """The counters and bounds that all connections of one exchange share.

    Requests may be written until ``deadline`` and answers read until ``read_until`` (monotonic seconds): an answer
    that comes a little late is evidence, a request that leaves late is not allowed.
    """

    def __init__(
        self, deadline: float, read_until: float, read_limit: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.deadline = deadline
        self.read_until = read_until
        self.written = 0
        self.marked: int | None = None
        self.code = ""
        self._sealed = False
        self._read = 0
        self._read_limit = read_limit
        self._clock = clock

    def since_mark(self) -> int:
        """Bytes since the last mark, or all."""
        return self.written - (self.marked or 0)

    def cut(self, code: str) -> None:
        """Remembers why the exchange was cut; the first reason stays."""
        self.code = self.code or code

    def seal(self) -> None:
        """From here on nothing leaves, so that ``written`` is final."""
        self._sealed = True

    def may_connect(self) -> float:
        """Seconds left for a connection or a handshake; raises ``ConnectTimeout``."""
        left = self.deadline - self._clock()
        if self._sealed or left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpcore2.ConnectTimeout("the deadline has passed")
        return left

    def may_write(self, size: int) -> float:
        """Counts ``size`` bytes and answers the seconds left; raises ``WriteTimeout`` and counts nothing."""
        left = self.deadline - self._clock()
        if self._sealed or left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpcore2.WriteTimeout("the deadline has passed")
        self.written += size
        return left

    def may_read(self) -> float:
        """Seconds left for an answer; raises ``ReadTimeout``."""
        left = self.read_until - self._clock()
        if left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpcore2.ReadTimeout("the deadline has passed")
        return left

    def took(self, size: int) -> None:
        """Bounds what is read raw, headers and framing included; raises ``ReadError``."""
        self._read += size
        if self._read > self._read_limit:
            self.cut("RESPONSE_TOO_LARGE")
            raise httpcore2.ReadError(f"more than {self._read_limit} bytes came back")


class MeteredStream(httpcore2.AsyncNetworkStream):
    """A connection under a meter; the time-outs that come with a call are replaced by the exchange's deadline."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, meter: Meter, pins: Collection[str]) -> None:
        self._stream = stream
        self._meter = meter
        self._pins = pins

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Raises ``ReadTimeout`` when the deadline passes and ``ReadError`` when too much came."""
        try:
            data = await self._stream.read(max_bytes, timeout=self._meter.may_read())
        except httpcore2.ReadTimeout:
            self._meter.cut("UPSTREAM_TIMEOUT")
            raise
        self._meter.took(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Raises ``WriteTimeout`` when the deadline passes."""
        if buffer:
            await self._stream.write(buffer, timeout=self._meter.may_write(len(buffer)))

    async def aclose(self) -> None:
        """Closes the socket."""
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Handshake within the deadline, then the pins; raises ``ConnectError`` or ``ConnectTimeout``."""
        secured = await self._stream.start_tls(ssl_context, server_hostname, timeout=self._meter.may_connect())
        try:
            check_pin(secured, self._pins)
        except PinMismatch as mismatch:
            self._meter.cut(mismatch.code)
            await secured.aclose()
            raise
        return MeteredStream(secured, self._meter, self._pins)

    def get_extra_info(self, info: str) -> object:
        """What the stream below knows; of a connection that is already dead, that it is.

        Under uvloop the socket of a connection that was reset at once is None, and asking raises AttributeError.
        """
        try:
            return self._stream.get_extra_info(info)
        except (AttributeError, OSError):
            return True if info == "is_readable" else None


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connections through the address guard only; no Unix sockets."""

    def __init__(self, connect: Connect, meter: Meter, pins: Collection[str]) -> None:
        self._connect = connect
        self._meter = meter
        self._pins = pins

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises ``ConnectError`` or ``ConnectTimeout``; the reason stays in the meter."""
        self._meter.may_connect()
        try:
            stream = await self._connect(host, port, self._meter.deadline)
        except AddressRefused as refused:
            self._meter.cut(refused.code)
            raise
        except httpcore2.ConnectTimeout:
            self._meter.cut("UPSTREAM_TIMEOUT")
            raise
        return MeteredStream(stream, self._meter, self._pins)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises ``ConnectError``: an upstream is an address that the guard can check."""
        raise httpcore2.ConnectError("no Unix sockets")

    async def sleep(self, seconds: float) -> None:
        """Never needed: nothing is retried."""
        raise httpcore2.ConnectError("nothing is retried")
