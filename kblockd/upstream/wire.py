"""One TCP connection, with or without TLS: reads and writes that end in time, and nothing that leaves afterwards.

``write`` returns when the kernel has taken every byte. One that did not end in time aborts the connection, so that no
byte of it can leave later; nor can one that the kernel still holds when nobody waits for the answer (``quench``).
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

# More than an answer may have: a TLS transport that is paused drops what it holds when the peer closes without a word.
_MOST_BUFFERED: Final = 2 * 1024 * 1024
_MOST_READ: Final = 16 * 1024
_LOOK_SECONDS: Final = 0.002
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EADDRNOTAVAIL})
_FAREWELL_SECONDS: Final = 1.0
"""How long a peer may take to answer the end of TLS before its connection is dropped."""


class NoResources(httpx2.ConnectError):
    """This machine has no descriptor, memory or port left for a connection: no fault of the upstream."""

    code = "LOCAL_RESOURCES"


class Wire(asyncio.Protocol):
    """Made by ``connect``; one reader and one writer at a time. Times are seconds that are left."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None  # an asyncio.Transport once connected
        self._below: Any = None  # what TLS writes to
        self._received = bytearray()
        self._ended = False  # no more bytes will come
        self._lost = False
        self._error: Exception | None = None
        self._full = False  # the kernel has not taken all bytes
        self._held = False  # reading is paused: too much is waiting here
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def read(self, left: float) -> bytes:
        """Some of what came, or empty at the end. Raises ``ReadTimeout`` and ``ReadError``.

        The loop has its turn each time: what is made of these bytes takes longer than to receive them.
        """
        if self._received:
            await asyncio.sleep(0)
        while not self._received:
            if self._error is not None:
                raise httpx2.ReadError(_said(self._error))
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._within(self._reader, left, httpx2.ReadTimeout("no answer in time"))
            finally:
                self._reader = None
        data = bytes(self._received[:_MOST_READ])
        del self._received[:_MOST_READ]
        if self._held and len(self._received) <= _MOST_BUFFERED:
            self._held = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def write(self, data: bytes, left: float) -> None:
        """Raises ``WriteTimeout`` and ``WriteError``."""
        if self._lost:
            raise httpx2.WriteError(_said(self._error))
        self._transport.write(data)
        try:
            await self._drained(left)
        except BaseException:
            self._transport.abort()
            raise
        if self._lost:
            raise httpx2.WriteError(_said(self._error))

    async def start_tls(self, context: ssl.SSLContext, name: str, left: float) -> None:
        """Handshake as a client of ``name``; raises ``ConnectError`` or ``ConnectTimeout``."""
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
            raise httpx2.ConnectError(f"TLS: {_said(error)}") from None
        if transport is None:
            raise httpx2.ConnectError("TLS: the connection was closed in the handshake")
        self._below, self._transport = self._transport, transport

    def open(self) -> bool:
        """As far as the loop has seen: nobody has closed it, and nothing came that nobody has read."""
        return not (self._lost or self._ended or self._received or self._transport.is_closing())

    def quiet(self) -> bool:
        """Open, and the kernel holds nothing either: what a connection must be to carry another request."""
        if not self.open():
            return False
        try:
            polled = select.poll()
            polled.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
            return not polled.poll(0)
        except (AttributeError, OSError, ValueError):  # reset at once: the loop has forgotten the socket
            return False

    def peer(self) -> str:
        """The literal address that this goes to."""
        return str(self._transport.get_extra_info("peername")[0])

    def certificate(self) -> bytes | None:
        """The peer's certificate (DER), or None without TLS."""
        secured = self._transport.get_extra_info("ssl_object")
        found: bytes | None = secured.getpeercert(binary_form=True) if secured is not None else None
        return found

    def close(self) -> None:
        """Closes the socket; nothing is waiting to leave."""
        self.quench()
        if not self._transport.is_closing():
            self._linger(False)  # a farewell may take its time
            self._transport.close()

    def quench(self) -> None:
        """Drops the connection if the peer has not acknowledged every byte: the kernel would send the rest for minutes,
        even of a closed socket, whenever the network is back."""
        if self._unsent() or self._unacknowledged():
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """``write`` must know when every byte has left. And none may outlive the socket: not an abort, and not this
        process, whose next life looks for the effect of what it may have sent."""
        self._transport = transport
        self._transport.set_write_buffer_limits(0)
        self._linger(True)

    def data_received(self, data: bytes) -> None:
        """Kept until it is read, but not without bound."""
        self._received += data
        if len(self._received) > _MOST_BUFFERED and not self._held:
            self._held = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """The peer may close its half early and still read what we send; TLS knows no halves."""
        self._ended = True
        _wake(self._reader)
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits learns it."""
        self._lost = self._ended = True
        self._error = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """Some bytes are still here."""
        self._full = True

    def resume_writing(self) -> None:
        """The kernel has them all."""
        self._full = False
        _wake(self._writer)

    def _unsent(self) -> bool:
        """Whether the kernel has not taken all bytes. What TLS has handed on counts for it as sent."""
        if self._below is None:
            return self._full
        return bool(self._transport.get_write_buffer_size() or self._below.get_write_buffer_size())

    def _unacknowledged(self) -> bool:
        """As Linux counts it; other systems count what has not left, which is the larger part of it."""
        try:
            counted = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except (AttributeError, OSError, ValueError):
            return False  # the socket is gone
        return int.from_bytes(counted, sys.byteorder) > 0

    def _linger(self, resets: bool) -> None:
        """Whether the end of the socket is a reset, for which the kernel forgets what it holds."""
        with contextlib.suppress(AttributeError, OSError, ValueError):
            # No descriptor of its own: the connection may have taken the last one.
            same = socket.socket(fileno=self._transport.get_extra_info("socket").fileno())
            try:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))
            finally:
                same.detach()

    async def _drained(self, left: float) -> None:
        ends = self._loop.time() + left
        while self._unsent() and not self._lost:
            self._writer = self._loop.create_future()
            if self._below is not None:  # nobody tells when that one is empty
                self._loop.call_later(_LOOK_SECONDS, _wake, self._writer)
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
    """To a literal address; raises ``ConnectError``, also as ``NoResources``, or ``ConnectTimeout``."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(left):
            _, wire = await loop.create_connection(lambda: Wire(loop), address, port)
    except TimeoutError:
        raise httpx2.ConnectTimeout(f"no connection to {address} in time") from None
    except OSError as error:
        kind = NoResources if error.errno in _OURS else httpx2.ConnectError
        raise kind(_said(error)) from None
    return wire


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _fail(waiter: asyncio.Future[None], late: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(late)


def _said(error: Exception | None) -> str:
    return str(error) or type(error).__name__ if error is not None else "the connection was closed"
