"""The processes beside the daemon: each a module of this folder that writes its port into a file."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens on 127.0.0.1."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        """As HTTP."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Counterparts:
    """What every variant talks to, and how long by how many callers it is measured."""

    upstream: Server
    rpc: Server
    callers: tuple[int, ...]
    seconds: float


@contextlib.contextmanager
def running(module: str, package: str = "tests.bench") -> Iterator[Server]:
    """``python -m PACKAGE.MODULE PORT_FILE``, ended afterwards; raises RuntimeError when it does not start."""
    with tempfile.TemporaryDirectory(prefix="kb-") as folder:
        port_file = Path(folder) / "port"
        process = subprocess.Popen([sys.executable, "-m", f"{package}.{module}", str(port_file)])
        try:
            limit = time.monotonic() + _START_SECONDS
            while not port_file.exists() or not port_file.read_text():
                if process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"{package}.{module} did not start")
                time.sleep(0.02)
            yield Server(process.pid, int(port_file.read_text()))
        finally:
            process.kill()
            process.wait()


def serve(start: Callable[[], Awaitable[int]]) -> None:
    """The main of such a process: ``start`` answers the port; serves until it is killed."""

    async def forever() -> None:
        port = await start()
        Path(sys.argv[1]).write_text(str(port))
        await asyncio.Event().wait()

    uvloop.run(forever())
