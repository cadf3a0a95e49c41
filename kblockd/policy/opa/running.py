"""A program in a process group of its own, tied to the daemon's life, with its output as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

from kblockd.policy.faults import LoadFailed
from kblockd.policy.threads import completed


class Running:
    """Made by ``start``; must be killed, also when it has ended by itself."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, end: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._end = end

    @classmethod
    async def start(cls, program: Path, memory_mib: int, *arguments: str, folder: Path) -> Running:
        """With an empty environment, in ``folder``; raises ``OSError``. A cancelled start leaves no process.

        Not by the loop: uvloop forks a process with threads and runs Python in the fork before it executes. Its output
        is a socket, which a transport takes over: of a pipe uvloop closes the descriptor twice, and whoever has been
        given the same number in between, RocksDB perhaps, loses a file.
        """
        launcher = (sys.executable, "-I", "-m", "kblockd.policy.opa.launch")
        command = [*launcher, str(os.getpid()), str(memory_mib), str(program), *arguments]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            starting = asyncio.ensure_future(asyncio.to_thread(_start, command, folder, theirs))
            try:
                process = await asyncio.shield(starting)
                reader, end = await asyncio.open_connection(sock=ours.dup())
            except BaseException:
                with contextlib.suppress(OSError):
                    await _killed(await starting)
                raise
        return cls(process, reader, end)

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
        """Its exit code; call it once the output has ended."""
        return await asyncio.to_thread(self._process.wait)

    async def kill(self) -> None:
        """SIGKILL to the whole group, and it is reaped. Idempotent."""
        await _killed(self._process)
        self._end.close()


def _start(command: list[str], folder: Path, output: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # the program that the configuration names
        command,
        stdin=subprocess.DEVNULL,
        stdout=output.fileno(),
        stderr=subprocess.STDOUT,
        env={},
        cwd=folder,
        start_new_session=True,
    )


async def _killed(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    await completed(process.wait)


def fresh(run_dir: Path, prefix: str) -> Path:
    """An unused path in ``run_dir``."""
    return run_dir / f"{prefix}{os.urandom(6).hex()}"


def make_private(folder: Path) -> None:
    """Makes it, and the folder that it is in if need be; raises ``LoadFailed`` or ``OSError``. Blocks.

    Anyone who could write to the parent folder could replace our socket, and decide.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.parent.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LoadFailed(f"{folder.parent} can be written by others; it must belong to the daemon, with mode 0700")
    folder.mkdir(mode=0o700)
