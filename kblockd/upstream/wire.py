"""One TCP connection, with or without TLS: reads and writes end in time, and no byte leaves afterwards.

``write`` returns when the kernel has taken every byte. A write that times out aborts the connection, so that no byte of
it can leave later; ``quench`` does the same for bytes that the kernel still holds once nobody waits for the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import select
import socket
import ssl
import struct
import sys
import termios
from typing import Any, Final

import httpx2

# More than an answer may have: a paused TLS transport drops its buffer when the peer closes without notice.
_MAX_BUFFERED: Final = 2 * 1024 * 1024
_MAX_READ: Final = 16 * 1024
_POLL_SECONDS: Final = 0.002
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EADDRNOTAVAIL})
_FAREWELL_SECONDS: Final = 1.0
"""How long a peer may take to answer the TLS close_notify before its connection is dropped."""


class NoResources(httpx2.ConnectError):
    """This machine has no descriptor, memory or port left for a connection: not the upstream's fault."""

    code = "LOCAL_RESOURCES"


class Wire(asyncio.Protocol):
    """Created by ``connect``; one reader and one writer at a time. ``left`` is the time remaining in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None  # an asyncio.Transport once connected
        self._below: Any = None  # the TCP transport under TLS
        self._received = bytearray()
        self._ended = False  # no more bytes will come
        self._lost = False
        self._error: Exception | None = None
        self._full = False  # the kernel has not taken all bytes
        self._paused = False  # reading is paused: the buffer is full
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def read(self, left: float) -> bytes:
        """Some received bytes, or empty at the end of the stream. Raises ``ReadTimeout`` and ``ReadError``.

        Yields to the loop each time, because processing the bytes takes longer than receiving them.
        """
        if self._received:
            await asyncio.sleep(0)
        while not self._received:
            if self._error is not None:
                raise httpx2.ReadError(_text(self._error))
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._within(self._reader, left, httpx2.ReadTimeout("no answer in time"))
            finally:
                self._reader = None
        data = bytes(self._received[:_MAX_READ])
        del self._received[:_MAX_READ]
        if self._paused and len(self._received) <= _MAX_BUFFERED:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def write(self, data: bytes, left: float) -> None:
        """Raises ``WriteTimeout`` and ``WriteError``."""
        if self._lost:
            raise httpx2.WriteError(_text(self._error))
        self._transport.write(data)
        try:
            await self._drained(left)
        except BaseException:
            self._transport.abort()
            raise
        if self._lost:
            raise httpx2.WriteError(_text(self._error))

    async def start_tls(self, context: ssl.SSLContext, name: str, left: float) -> None:
        """TLS handshake with ``name``; raises ``ConnectError`` or ``ConnectTimeout``."""
        try:
            async with asyncio.timeout(left):
                transport = await self._loop.start_tls(
                    self._transport, self, context, server_hostname=name, ssl_shutdown_timeout=_FAREWELL_SECONDS
                )
        except TimeoutError:
            self._transport.abort()
            raise httpx2.ConnectTimeout("the TLS handshake did not end in time") from None
        except (OSError, ssl.CertificateError) as error:
            self._transport.abort()
            raise httpx2.ConnectError(f"TLS: {_text(error)}") from None
        if transport is None:
            raise httpx2.ConnectError("TLS: the connection was closed during the handshake")
        self._below, self._transport = self._transport, transport

    def open(self) -> bool:
        """As far as the loop knows, neither side has closed it and there are no unread bytes."""
        return not (self._lost or self._ended or self._received or self._transport.is_closing())

    def quiet(self) -> bool:
        """Open, with nothing unread in the kernel either: fit to carry another request."""
        if not self.open():
            return False
        try:
            polled = select.poll()
            polled.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
            return not polled.poll(0)
        except (AttributeError, OSError, ValueError):  # already reset: the loop has dropped the socket
            return False

    def peer(self) -> str:
        """The peer's literal address."""
        return str(self._transport.get_extra_info("peername")[0])

    def certificate(self) -> bytes | None:
        """The peer's certificate (DER), or None without TLS."""
        secured = self._transport.get_extra_info("ssl_object")
        certificate: bytes | None = secured.getpeercert(binary_form=True) if secured is not None else None
        return certificate

    def close(self) -> None:
        """Closes the socket; unacknowledged bytes are dropped first."""
        self.quench()
        if not self._transport.is_closing():
            self._linger(False)  # an orderly close may take its time
            self._transport.close()

    def quench(self) -> None:
        """Aborts the connection if the peer has not acknowledged every byte: otherwise the kernel would retry for
        minutes, even for a closed socket, and deliver once the network is back."""
        if self._unsent() or self._unacknowledged():
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sets the buffer limit to 0, so that ``write`` knows when every byte has left, and makes the socket reset when
        it ends: no byte may survive an abort or this process, whose successor looks for the call's effect."""
        self._transport = transport
        self._transport.set_write_buffer_limits(0)
        self._linger(True)

    def data_received(self, data: bytes) -> None:
        """Buffers up to ``_MAX_BUFFERED`` bytes, then pauses reading."""
        self._received += data
        if len(self._received) > _MAX_BUFFERED and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """The peer may half-close early and still read; TLS has no half-close."""
        self._ended = True
        _wake(self._reader)
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Wakes the reader and the writer."""
        self._lost = self._ended = True
        self._error = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """The kernel has not taken all bytes."""
        self._full = True

    def resume_writing(self) -> None:
        """The kernel has taken all bytes."""
        self._full = False
        _wake(self._writer)

    def _unsent(self) -> bool:
        """Whether bytes remain outside the kernel; checks both transports, as TLS counts bytes passed down as sent."""
        if self._below is None:
            return self._full
        return bool(self._transport.get_write_buffer_size() or self._below.get_write_buffer_size())

    def _unacknowledged(self) -> bool:
        """By TIOCOUTQ, which counts unacknowledged bytes on Linux and only unsent ones elsewhere."""
        try:
            counted = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except (AttributeError, OSError, ValueError):
            return False  # the socket no longer exists
        return int.from_bytes(counted, sys.byteorder) > 0

    def _linger(self, resets: bool) -> None:
        """Whether closing the socket resets it, which makes the kernel drop its send buffer."""
        with contextlib.suppress(AttributeError, OSError, ValueError):
            # Wraps the same descriptor: the connection may have taken the last one.
            same = socket.socket(fileno=self._transport.get_extra_info("socket").fileno())
            try:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))
            finally:
                same.detach()

    async def _drained(self, left: float) -> None:
        ends = self._loop.time() + left
        while self._unsent() and not self._lost:
            self._writer = self._loop.create_future()
            if self._below is not None:  # there is no callback when the TCP transport is drained
                self._loop.call_later(_POLL_SECONDS, _wake, self._writer)
            late = httpx2.WriteTimeout("the request did not leave in time")
            try:
                await self._within(self._writer, ends - self._loop.time(), late)
            finally:
                self._writer = None

    async def _within(self, waiter: asyncio.Future[None], left: float, late: Exception) -> None:
        timer = self._loop.call_later(max(0.0, left), _fail, waiter, late)
        try:
            await waiter
        finally:
            timer.cancel()


async def connect(address: str, port: int, left: float) -> Wire:
    """Connects to a literal address; raises ``NoResources`` or another ``ConnectError``, or ``ConnectTimeout``."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(left):
            _, wire = await loop.create_connection(lambda: Wire(loop), address, port)
    except TimeoutError:
        raise httpx2.ConnectTimeout(f"no connection to {address} in time") from None
    except OSError as error:
        kind = NoResources if error.errno in _OURS else httpx2.ConnectError
        raise kind(_text(error)) from None
    return wire


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _fail(waiter: asyncio.Future[None], late: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(late)


def _text(error: Exception | None) -> str:
    return str(error) or type(error).__name__ if error is not None else "the connection was closed"
