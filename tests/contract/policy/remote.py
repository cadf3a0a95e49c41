"""A real OPA that kblockd does not start: for the tests of the remote engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.faults import BundleRefused
from kblockd.policy.opa import revisions
from kblockd.policy.opa.access import RemoteAccess
from kblockd.policy.opa.remote import RemoteEngine
from kblockd.policy.opa.remote_watch import RemoteWatch
from kblockd.policy.opa.revisions import Passed
from kblockd.policy.opa.tarball import build
from tests.contract.policy.support import HANG_SECONDS, CountingIds, RealClock, opa_binary

AT = "2026-11-29T10:00:00.000000Z"


def free_port() -> int:
    """Of the loopback interface, free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def put(file: Path, bundle: Bundle) -> None:
    """The bundle as OPA takes it, replaced whole."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(build(bundle))
    os.replace(fresh, file)


class Server:
    """``opa run --server`` in a process of its own; started and stopped at will on the same port."""

    def __init__(self, folder: Path, *arguments: str, scheme: str = "http", polled: bool = False) -> None:
        self.file = folder / "bundle.tar.gz"
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._bundles = _BundleHost(self.file) if polled else None
        self._arguments = [*arguments, *(self._bundles.polling() if self._bundles else ("--bundle", str(self.file)))]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Does not wait: until it listens, questions find nobody."""
        quiet = ("--skip-version-check", "--log-level=error")
        self._process = subprocess.Popen(
            [opa_binary(), "run", "--server", "--addr", self.url, *quiet, *self._arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd=self.file.parent,
        )

    def stop(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """``stop``, and no bundle is served any more."""
        self.stop()
        if self._bundles:
            self._bundles.shutdown()
            self._bundles.server_close()


class _BundleHost(ThreadingHTTPServer):
    """Serves one file to OPA; 404 until it is there."""

    def __init__(self, file: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = file.read_bytes() if file.exists() else b""
                self.send_response(200 if content else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """No."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def polling(self) -> Iterator[str]:
        """Arguments for an OPA that looks every second."""
        for setting in (
            f"services.host.url=http://127.0.0.1:{self.server_address[1]}",
            "bundles.kblock.service=host",
            "bundles.kblock.resource=bundle.tar.gz",
            "bundles.kblock.polling.min_delay_seconds=1",
            "bundles.kblock.polling.max_delay_seconds=1",
        ):
            yield from ("--set", setting)


class Watched:
    """A remote engine, its watch, and what the callbacks saw."""

    def __init__(self, access: RemoteAccess, file: Path, evaluate_seconds: float = 20.0) -> None:
        self.file = file
        self.engine = RemoteEngine(access, evaluate_seconds, RealClock(), CountingIds())
        self.activated: list[str] = []
        self.refused: list[BundleRefused] = []
        self.failures: list[Exception] = []
        self.watch = RemoteWatch(
            self.engine,
            file,
            RealClock(),
            interval_seconds=0.05,
            on_activated=self._activate,
            on_in_force=self._decides,
            on_refused=self._refuse,
        )

    def passes(self, *bundles: Bundle) -> None:
        """Notes them, as ``kblockd policy check`` does."""
        for bundle in bundles:
            revisions.note(self.file, bundle, AT)

    async def settles(self) -> None:
        """Looks until OPA serves what is in force."""
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.watch.reload():
                await asyncio.sleep(0.02)

    async def _activate(self, revision: Passed) -> None:
        if self.failures:
            raise self.failures.pop()
        self.activated.append(revision.revision)

    async def _decides(self, revision: Passed) -> None:
        assert self.activated[-1] == self.engine.status().revision == revision.revision

    async def _refuse(self, error: BundleRefused) -> None:
        self.refused.append(error)


@contextlib.asynccontextmanager
async def remote_running(
    folder: Path, texts: Mapping[str, str], evaluate_seconds: float
) -> AsyncIterator[RemoteEngine]:
    """A remote engine over a real OPA with that policy in force."""
    folder.mkdir(exist_ok=True)
    server = Server(folder)
    bundle = Bundle.of(texts)
    put(server.file, bundle)
    watched = Watched(RemoteAccess(server.url), folder / "revisions.jsonl", evaluate_seconds)
    watched.passes(bundle)
    server.start()
    try:
        await watched.settles()
        yield watched.engine
    finally:
        await watched.engine.close()
        server.stop()
