"""A program in a process group of its own, tied to the daemon's life, with its output as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO


class Running:
    """Made by ``start``; must be killed, also when it has ended by itself."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, end: asyncio.BaseTransport
    ) -> None:
        self._process = process
        self._reader = reader
        self._end = end

    @classmethod
    async def start(cls, program: Path, memory_mib: int, *arguments: str, folder: Path) -> Running:
        """With an empty environment, in ``folder``; raises ``OSError``. A cancelled start leaves no process.

        Not by the loop: uvloop forks a process with threads and runs Python in the fork before it executes.
        """
        launcher = (sys.executable, "-I", "-m", "kblockd.policy.opa.launch")
        command = [*launcher, str(os.getpid()), str(memory_mib), str(program), *arguments]
        starting = asyncio.ensure_future(asyncio.to_thread(_start, command, folder))
        try:
            process = await asyncio.shield(starting)
            return cls(process, *await _reading(process.stdout))
        except BaseException:
            with contextlib.suppress(OSError):
                await _killed(await starting)
            raise

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    async def read(self) -> bytes:
        """The next part of its output; empty when it has ended or closed it."""
        return await self._reader.read(1 << 16)

    async def wait(self) -> int:
        """Its exit code; for a process whose output has ended."""
        return await asyncio.to_thread(self._process.wait)

    async def kill(self) -> None:
        """SIGKILL to the whole group, and it is reaped. Idempotent."""
        await _killed(self._process)
        self._end.close()


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # the program that the configuration names
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={},
        cwd=folder,
        start_new_session=True,
    )


async def _reading(output: IO[bytes] | None) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    end, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
    return reader, end


async def _killed(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait)
