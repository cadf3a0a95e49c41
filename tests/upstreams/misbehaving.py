"""An HTTP server on raw sockets that misbehaves on demand and keeps its own record of effects.

What is served is an ``App`` (REST, MCP, anything over HTTP/1.1); how the answer to *the call* goes wrong is the
``Mode``. Requests that are not the call (handshakes, listings) are always answered well. Threads, so that it also
serves clients that block; a connection ends after a misbehaviour and is kept alive otherwise.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import gzip
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import quote


class Mode(enum.Enum):
    """How the answer to the call goes wrong. "After the effect" includes everything that is not said to be before."""

    OK = "ok"
    REFUSE = "refuse"  # nobody listens
    DROP_ON_ACCEPT = "drop_on_accept"  # every connection is closed before anything is read
    DROP_BEFORE_EFFECT = "drop_before_effect"  # the call is read, nothing is done, the connection ends
    DROP_AFTER_EFFECT = "drop_after_effect"
    STALL_BEFORE_EFFECT = "stall_before_effect"  # the call is read, nothing is done, nothing is answered
    STALL_AFTER_EFFECT = "stall_after_effect"
    LATE = "late"  # acts, and answers when ``release`` is called
    ERROR_AFTER_EFFECT = "error_after_effect"  # 500 with a JSON body
    GATEWAY_TIMEOUT = "gateway_timeout"  # 504
    HALF_BODY = "half_body"
    REDIRECT_SAME = "redirect_same"
    REDIRECT_OTHER = "redirect_other"
    TOO_LARGE = "too_large"  # 5 MiB
    GZIP_BOMB = "gzip_bomb"  # 64 MiB in 64 KiB
    GARBAGE = "garbage"  # 200, but no JSON
    ECHO_CREDENTIAL = "echo_credential"
    HEADER_FLOOD = "header_flood"
    DRIP = "drip"  # a byte now and then, without end


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; Content-Length is added."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    body: bytes = b""


class App(Protocol):
    """What stands behind the misbehaving front."""

    def is_call(self, request: Request) -> bool:
        """Whether this request carries the one side effect."""
        ...

    def answer(self, request: Request, note: str) -> Reply:
        """The good answer; ``note`` must appear somewhere in the output of a call."""
        ...


class MisbehavingServer:
    """``calls``: requests that carried the call. ``effects``: those that were acted upon. ``requests``: all."""

    def __init__(self, app: App, tls: ssl.SSLContext | None = None) -> None:
        self.app = app
        self.mode = Mode.OK
        self.requests: list[Request] = []
        self.calls: list[Request] = []
        self.effects: list[Request] = []
        self.accepted = 0
        self._tls = tls
        self._released = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return listener

    def misbehave(self, mode: Mode) -> None:
        """From the next connection or call on; who is away also hangs up."""
        self.mode = mode
        if mode is Mode.REFUSE:
            self._stop_listening()
        if mode in (Mode.REFUSE, Mode.DROP_ON_ACCEPT):
            self._hang_up()

    def release(self) -> None:
        """Lets the answers of ``Mode.LATE`` go."""
        self._released.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._released.set()
        self._stop_listening()
        self._hang_up()
        for thread in self._threads:
            thread.join(10)

    def _hang_up(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            if self.mode is Mode.DROP_ON_ACCEPT:
                _reset(connection)
                return
            stream = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            with self._lock:
                self._open.add(stream)
            try:
                with stream, stream.makefile("rb") as reader:
                    while (request := _read(reader)) is not None:
                        if not self._handle(stream, request):
                            return
            finally:
                with self._lock:
                    self._open.discard(stream)

    def _handle(self, stream: socket.socket, request: Request) -> bool:
        """Whether the connection goes on."""
        self.requests.append(request)
        if not self.app.is_call(request):
            stream.sendall(_head(reply := self.app.answer(request, "")) + reply.body)
            return True
        self.calls.append(request)
        if self.mode in (Mode.DROP_BEFORE_EFFECT, Mode.STALL_BEFORE_EFFECT):
            if self.mode is Mode.STALL_BEFORE_EFFECT:
                self._closing.wait(60)
            return False
        self.effects.append(request)
        return self._answer(stream, request)

    def _answer(self, stream: socket.socket, request: Request) -> bool:
        mode = self.mode
        if mode is Mode.DROP_AFTER_EFFECT:
            _reset(stream)
            return False
        if mode is Mode.STALL_AFTER_EFFECT:
            self._closing.wait(60)
            return False
        if mode is Mode.LATE:
            self._released.wait(60)
        for piece in self._pieces(mode, request):
            stream.sendall(piece)
        return mode in (Mode.OK, Mode.ECHO_CREDENTIAL, Mode.LATE)

    def _pieces(self, mode: Mode, request: Request) -> Iterator[bytes]:
        good = self.app.answer(request, _echo(request) if mode is Mode.ECHO_CREDENTIAL else "")
        kind = good.headers
        if mode is Mode.ERROR_AFTER_EFFECT:
            yield _whole(Reply(500, body=b'{"error":"boom"}'))
        elif mode is Mode.GATEWAY_TIMEOUT:
            yield _whole(Reply(504, {"content-type": "text/html"}, b"<h1>Gateway Timeout</h1>"))
        elif mode is Mode.HALF_BODY:
            yield _head(good) + good.body[: len(good.body) // 2]
        elif mode is Mode.REDIRECT_SAME:
            yield _whole(Reply(307, {"location": "/redirected"}))
        elif mode is Mode.REDIRECT_OTHER:
            yield _whole(Reply(303, {"location": f"http://localhost:{self.port}/redirected"}))
        elif mode is Mode.TOO_LARGE:
            yield _whole(self.app.answer(request, "x" * (5 << 20)))
        elif mode is Mode.GZIP_BOMB:
            yield _whole(Reply(200, {**kind, "content-encoding": "gzip"}, gzip.compress(b" " * (64 << 20))))
        elif mode is Mode.GARBAGE:
            yield _whole(Reply(200, kind, b'{"ok": tru'))
        elif mode is Mode.HEADER_FLOOD:
            yield b"HTTP/1.1 200 OK\r\n" + b"x-flood: " + b"y" * 4000 + b"\r\n"
            for _ in range(2000):
                yield b"x-flood: " + b"y" * 4000 + b"\r\n"
        elif mode is Mode.DRIP:
            yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"
            while not self._closing.wait(0.05):
                yield b" "
        else:
            yield _whole(good)


def _read(reader: object) -> Request | None:
    """The next request, or None at the end; raises ValueError for what is no HTTP."""
    readline, read = reader.readline, reader.read  # type: ignore[attr-defined]  # a buffered reader
    line = readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (row := readline().decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = row.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding", "") == "chunked":
        body = b""
        while size := int(readline(), 16):
            body += read(size)
            readline()
        readline()
        return Request(method, target, headers, body)
    return Request(method, target, headers, read(int(headers.get("content-length", "0"))))


def _head(reply: Reply) -> bytes:
    rows = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    length = "" if reply.status in (204, 304) else f"content-length: {len(reply.body)}\r\n"
    return f"HTTP/1.1 {reply.status} X\r\n{rows}{length}\r\n".encode("latin-1")


def _whole(reply: Reply) -> bytes:
    return _head(reply) + reply.body


def _reset(connection: socket.socket) -> None:
    """Ends with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _echo(request: Request) -> str:
    """The Authorization header in every form in which a careless server might repeat it."""
    value = request.headers.get("authorization", "")
    token = value.rpartition(" ")[2]
    with contextlib.suppress(ValueError):
        token += " " + base64.b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
    return " | ".join(
        (value, token, quote(value, safe=""), base64.b64encode(value.encode()).decode(), json.dumps({"a": value}))
    )
