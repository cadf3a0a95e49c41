"""One killable process behind a socket: a request, a reply, or ``ChildFailed``; never a hang of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from kblockd.policy import frames
from kblockd.policy.faults import LoadFailed

# The engine's allocator would reserve 1 GiB of address space at once, beyond what RLIMIT_AS is there to bound.
_ENVIRONMENT: Final = {"MIMALLOC_ARENA_RESERVE": "32MiB"}


class ChildFailed(LoadFailed):
    """The process ended, or sent something that is not a reply. The child must be killed."""


class Child:
    """Not for concurrent requests: a cancelled or failed one leaves the stream out of step, so kill it then."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def spawn(cls, memory_mib: int) -> Child:
        """A fresh interpreter with one descriptor, an environment of our own and a session of its own."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                reader, writer = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                process = _start(theirs.fileno(), memory_mib)
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended."""
        return self._process.poll() is not None or self._reader.at_eof() or self._writer.is_closing()

    async def request(self, header: Mapping[str, Any], body: bytes = b"") -> dict[str, Any]:
        """The header of the reply; raises ``ChildFailed``."""
        try:
            self._writer.write(frames.pack(header, body))
            await self._writer.drain()
            (length,) = frames.LENGTH.unpack(await self._reader.readexactly(frames.LENGTH.size))
            if length > frames.MAX_REPLY:
                raise ChildFailed(f"a reply of {length} bytes, at most {frames.MAX_REPLY} are taken")
            reply, _ = frames.unpack(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ChildFailed("the policy process ended") from error
        except (ValueError, RecursionError, json.JSONDecodeError) as error:
            raise ChildFailed("the policy process sent something that is not a reply") from error
        return reply

    async def kill(self) -> None:
        """SIGKILL, and the process is reaped. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)


def _start(descriptor: int, memory_mib: int) -> subprocess.Popen[bytes]:
    """Not by the loop: uvloop runs Python between fork and exec, which a process with threads must not. In the loop's
    thread all the same, for a moment: the child ends with the thread that started it (PDEATHSIG)."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-I", "-m", "kblockd.policy.worker", str(memory_mib), str(os.getpid())],
        stdin=descriptor,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
