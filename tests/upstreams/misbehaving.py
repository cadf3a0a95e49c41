"""An HTTP server on raw sockets that misbehaves on demand and keeps its own record of effects.

What is served is an ``App`` (REST, MCP, anything over HTTP/1.1); how the answer to *the call* goes wrong is the
``Mode``. What is not the call (handshakes, listings, reads) is answered well, but where a mode says otherwise.
Threads, so that it also serves clients that block; a connection ends after a misbehaviour and is kept alive otherwise.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Final, Protocol, Self

from tests.upstreams.messages import Reply, Request, echo, read, reset, said, waiting, whole
from tests.upstreams.modes import Behaviour, Mode, behaviour

__all__ = ["IDLE", "App", "MisbehavingServer", "Mode", "Reply", "Request", "Turn"]

IDLE: Final = {
    Mode.CLOSES_IDLE: socket.SHUT_RDWR,
    Mode.RESETS_IDLE: socket.SHUT_RD,  # wakes the thread that reads, which then resets
    Mode.HALF_CLOSES_IDLE: socket.SHUT_WR,
}
"""Modes that are done to the connections that are open when they are asked for."""


class App(Protocol):
    """What stands behind the misbehaving front. Only what a mode needs has to be there beside the first three."""

    def is_call(self, request: Request) -> bool:
        """Whether this request carries the one side effect."""
        ...

    def act(self, request: Request) -> None:
        """The effect."""
        ...

    def answer(self, request: Request, note: str) -> Reply:
        """The good answer; ``note`` must appear somewhere in the output of a call."""
        ...

    def say(self, word: str, request: Request, note: str = "") -> Reply:
        """Another answer that the protocol has, by a word."""
        ...

    def is_snapshot(self, request: Request) -> bool:
        """Whether this request reads the target."""
        ...

    def is_lookup(self, request: Request) -> bool:
        """Whether this request asks for the effect by its key."""
        ...

    def change(self) -> None:
        """From now on the tool that acts has another definition."""
        ...


class Turn:
    """One call, and all that can be done with it."""

    def __init__(self, server: MisbehavingServer, stream: socket.socket, request: Request) -> None:
        self.server = server
        self.stream = stream
        self.request = request

    def act(self) -> None:
        """The effect."""
        self.server.effects.append(self.request)
        self.server.app.act(self.request)

    def good(self, note: str = "") -> Reply:
        """The good answer."""
        return self.server.app.answer(self.request, note)

    def say(self, word: str, *, echo: bool = False) -> Reply:
        """Another answer of the protocol."""
        return self.server.app.say(word, self.request, self.echo() if echo else "")

    def echo(self) -> str:
        """The credential that came with the call."""
        return echo(self.request)

    def send(self, data: bytes) -> None:
        """As it is."""
        self.stream.sendall(data)

    def pause(self, seconds: float) -> bool:
        """Waits; true when the server ends meanwhile."""
        return self.server.closing.wait(seconds)

    def over(self) -> bool:
        """Whether the server ends."""
        return self.server.closing.is_set()

    def reset(self) -> None:
        """Ends the connection with RST."""
        reset(self.stream)


class MisbehavingServer:
    """``calls``: requests that carried the call. ``effects``: those that were acted upon. ``requests``: all."""

    def __init__(self, app: App, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.app = app
        self.mode = Mode.OK
        self.requests: list[Request] = []
        self.calls: list[Request] = []
        self.effects: list[Request] = []
        self.postponed: list[Turn] = []  # acted upon when the next call comes
        self.script: list[Behaviour] = []  # of Mode.SCRIPTED
        self.accepted = 0
        self.closing = threading.Event()
        self._left: int | None = None
        self._tls = tls
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = self._listen(port)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.port}"

    def misbehave(self, mode: Mode, calls: int | None = None) -> None:
        """From the next connection or call on, where ``calls`` is given for so many; who is away also hangs up."""
        self.mode, self._left = mode, calls
        if mode is Mode.REFUSE:
            self._stop_listening()
        if mode in (Mode.REFUSE, Mode.DROP_ON_ACCEPT):
            self._hang_up()
        if mode in IDLE:
            self._hang_up(IDLE[mode])
        limit = time.monotonic() + 5
        while mode is Mode.RESETS_IDLE and self._open and time.monotonic() < limit:
            time.sleep(0.001)
        if mode is Mode.CHANGED_AFTER_DECISION:
            self.app.change()

    def release(self) -> None:
        """Lets the answers of ``Mode.LATE`` go."""
        self._released.set()

    def wait_released(self, seconds: float) -> None:
        """Until ``release``."""
        self._released.wait(seconds)

    def leave(self) -> None:
        """Nobody listens any more, and every connection ends."""
        self._stop_listening()
        self._hang_up()

    def listen_again(self) -> None:
        """On the port that it had."""
        self._listener = self._listen(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._released.set()
        self.leave()
        for thread in self._threads:
            thread.join(10)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return listener

    def _hang_up(self, how: int = socket.SHUT_RDWR) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(how)

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, EOFError), connection:
            if self.mode is Mode.DROP_ON_ACCEPT:
                reset(connection)
                return
            stream = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            with self._lock:
                self._open.add(stream)
            try:
                with stream, stream.makefile("rb") as reader:
                    self._converse(stream, reader)
            finally:
                with self._lock:
                    self._open.discard(stream)

    def _converse(self, stream: socket.socket, reader: io.BufferedIOBase) -> None:
        while not self._drops_unread(stream) and (request := read(reader)) is not None:
            self.requests.append(request)
            if not self._handle(stream, request):
                return
        if self.mode is Mode.RESETS_IDLE:
            reset(stream)

    def _drops_unread(self, stream: socket.socket) -> bool:
        if self.mode is not Mode.DROP_UNREAD:
            return False
        request = waiting(stream)
        if request is None or not self.app.is_call(request):
            return request is None
        self._take()
        reset(stream)
        return True

    def _handle(self, stream: socket.socket, request: Request) -> bool:
        """Whether the connection goes on."""
        if not self.app.is_call(request):
            return self._answer(stream, request)
        self.calls.append(request)
        while self.postponed:
            self.postponed.pop().act()
        return behaviour(self._take())(Turn(self, stream, request))

    def _answer(self, stream: socket.socket, request: Request) -> bool:
        """A request without effect."""
        if self.mode is Mode.LOOKUP_FAILS and self.app.is_lookup(request):
            stream.sendall(whole(said(500, {"error": "the index is down"})))
            return True
        stream.sendall(whole(self.app.answer(request, "")))
        armed = self.mode in (Mode.REFUSE_CALL, Mode.CHANGED_BEFORE_CALL) and self.app.is_snapshot(request)
        if not armed:
            return True
        if self._take() is Mode.REFUSE_CALL:
            self.leave()
            return False
        self.app.change()
        return True

    def _take(self) -> Mode:
        """The mode of this call; after the last that it was meant for, all is well."""
        with self._lock:
            mode = self.mode
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self.mode, self._left = Mode.OK, None
            return mode
