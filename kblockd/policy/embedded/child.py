"""One killable process behind a socket: requests in, replies in the same order, or one failure; never a hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from kblockd.policy.embedded import frames
from kblockd.policy.faults import LoadFailed
from kblockd.policy.threads import completed

# The engine's allocator would reserve 1 GiB of address space at once, beyond what RLIMIT_AS is there to bound.
_ENVIRONMENT: Final = {"MIMALLOC_ARENA_RESERVE": "32MiB"}
_PIECE: Final = 64 * 1024
_WORKER: Final = "kblockd.policy.embedded.worker"


class ChildFailed(LoadFailed):
    """The process ended, or sent something that is not a reply. The child must be killed."""


Reply = dict[str, Any]
Replied = Callable[[Reply | ChildFailed], None]


class Child(asyncio.Protocol):
    """The process answers one request after the other; more may wait in its socket.

    After the first failure nothing is asked of it any more: every request that waits fails with it.
    """

    def __init__(self, process: subprocess.Popen[bytes], ours: socket.socket) -> None:
        self._process = process
        self._socket = ours
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[Replied] = deque()
        self._failure: ChildFailed | None = None

    @classmethod
    async def spawn(cls, memory_mib: int, worker: str = _WORKER) -> Child:
        """A fresh interpreter with one descriptor, a clean environment and a session of its own, which runs the module
        ``worker``."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = start(theirs.fileno(), memory_mib, worker)
            except BaseException:
                ours.close()
                raise
        return await cls.over(process, ours)

    @classmethod
    async def over(cls, process: subprocess.Popen[bytes], ours: socket.socket) -> Child:
        """A process that has the other end of the socket."""
        child = cls(process, ours)
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().create_connection(lambda: child, sock=ours)
        except BaseException:
            ours.close()
            await child.kill()
            raise
        return child

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether its socket says that it has ended; the loop may notice later."""
        return self._failure is not None or self._ended()

    def ask(self, header: Mapping[str, Any], body: bytes, replied: Replied) -> None:
        """``replied`` gets the header of the reply, or the failure; at once when the child has failed already."""
        if self._failure is not None or self._transport is None:
            replied(self._failure or ChildFailed("the policy process ended"))
            return
        self._waiting.append(replied)
        self._transport.write(frames.pack(header, body))

    async def request(self, header: Mapping[str, Any], body: bytes = b"") -> Reply:
        """``ask``, awaited; raises ``ChildFailed``."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def replied(reply: Reply | ChildFailed) -> None:
            if answer.done():
                return
            if isinstance(reply, ChildFailed):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)

        self.ask(header, body, replied)
        return await answer

    def catch_up(self) -> None:
        """Reads what the loop has not read yet: a stalled loop runs its timers first. Leaves the stream's end to the
        loop."""
        while self._failure is None:
            try:
                data = self._socket.recv(_PIECE, socket.MSG_DONTWAIT)
            except OSError:
                return
            if not data:
                return
            self.data_received(data)

    async def kill(self) -> None:
        """Sends SIGKILL and reaps the process; open requests fail. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._fail("the policy process was killed")
        await completed(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Passes complete replies to their callers, in order."""
        self._received += data
        try:
            while self._failure is None and (payload := frames.taken(self._received)) is not None:
                reply, _ = frames.unpack(payload)
                self._waiting.popleft()(reply)
        except (ValueError, RecursionError, IndexError):  # the last: a reply that nobody asked for
            self._fail("the policy process sent something that is not a reply")

    def connection_lost(self, error: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._fail("the policy process ended")

    def _fail(self, why: str) -> None:
        if self._failure is None:
            self._failure = ChildFailed(why)
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for replied in waiting:
            replied(self._failure)

    def _ended(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


def start(descriptor: int, memory_mib: int, worker: str = _WORKER) -> subprocess.Popen[bytes]:
    """A worker at the other end of a socket; raises ``OSError``.

    Not by the loop: uvloop runs Python between fork and exec, which a process with threads must not. In the loop's
    thread all the same, for a moment: the child ends with the thread that started it (PDEATHSIG)."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-I", "-m", worker, str(memory_mib), str(os.getpid())],
        stdin=descriptor,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
