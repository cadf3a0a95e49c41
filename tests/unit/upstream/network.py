"""A server on loopback whose network can be away: what comes for it is dropped, as by a cable that is out.

A filter on its socket drops each packet before TCP sees it, so the other side's kernel keeps what nobody acknowledged
and sends it again and again, for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER of Linux
_DETACH_FILTER: Final = 27
_NOTHING: Final = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes of each packet
_PROGRAM: Final = struct.pack("HL", 1, ctypes.addressof(_NOTHING))


class DistantPeer:
    """Serves one connection. The first request on it is answered at once; what comes afterwards is ``received``, and is
    answered by ``answer``."""

    def __init__(self) -> None:
        self.port = 0
        self.received = bytearray()
        self.connected = 0
        self._writer: asyncio.StreamWriter
        self._socket: socket.socket  # the same one again: a transport that is lost has forgotten it
        self._client = 0  # the port at the other end
        self._ended = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, context: ssl.SSLContext | None) -> AsyncIterator[DistantPeer]:
        """On a free port of 127.0.0.1."""
        made = cls()
        server = await asyncio.start_server(made._connected, "127.0.0.1", 0, ssl=context)
        made.port = server.sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            server.close()
            if made.connected:
                made._socket.close()
                made._writer.transport.abort()
                await made._ended.wait()

    def answer(self) -> None:
        """To the request that was received last."""
        self._writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def away(self) -> None:
        """From now on nothing arrives; skips the test where that cannot be had."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _PROGRAM)
        except OSError as refused:
            pytest.skip(f"SO_ATTACH_FILTER is not available: {refused}")

    def back(self) -> None:
        """What is sent again arrives."""
        self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def held(self) -> bool:
        """Whether the kernel still has something for this peer that was not acknowledged, of an open socket or not."""
        return any(row.local == self._client and row.unacknowledged for row in _connections())

    async def until_held(self, held: bool = True) -> None:
        """Waits for it."""
        while self.held() is not held:
            await asyncio.sleep(0.01)

    async def until_settled(self) -> None:
        """Something has arrived, or nothing can any more."""
        while not self.received and (self.held() or self._unread()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # the reader has its turn with what the loop has read

    def _unread(self) -> bool:
        return any(row.remote == self._client and row.unread for row in _connections())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        self._writer = writer
        self._socket = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        self._client = self._socket.getpeername()[1]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            self.answer()
            while data := await reader.read(1 << 16):
                self.received += data
        self._ended.set()


@dataclass(frozen=True)
class _Row:
    """Of ``/proc/net/tcp``: ports, and bytes in the queues."""

    local: int
    remote: int
    unacknowledged: int
    unread: int


def _connections() -> Iterator[_Row]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ports = (int(end.partition(":")[2], 16) for end in (local, remote))
        yield _Row(*ports, *(int(queue, 16) for queue in queues.split(":")))
