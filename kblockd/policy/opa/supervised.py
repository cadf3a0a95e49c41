"""OPA as a child of the daemon: one process per revision, supervised, restarted, and replaced as a whole.

A reload starts a second OPA with the new bundle beside the first, waits until it serves the new revision, and swaps
(``LoadingEngine``): at no time does one process hold two revisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason
from kblockd.domain.ids import Ids
from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.bundles.bundle import Bundle, Reader, read
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.evaluator import CLOSED, Evaluator
from kblockd.policy.opa.check import check
from kblockd.policy.opa.process import OpaLimits, OpaProcess
from kblockd.policy.opa.running import fresh, make_private
from kblockd.policy.opa.tarball import build
from kblockd.policy.threads import completed

ENGINE: Final = "opa"
SOCKET_ROOM: Final = 32
"""Bytes that the path of a socket has below ``run_dir``."""

_LOOK_SECONDS: Final = 1.0
_LIVE_SECONDS: Final = 2.0
_SILENCES: Final = 2
_SETTLED_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


class SupervisedEngine(LoadingEngine):
    """``program`` is the OPA binary; ``run_dir`` belongs to the daemon alone and is made with mode 0700."""

    def __init__(
        self, program: Path, run_dir: Path, limits: OpaLimits, clock: Clock, ids: Ids, reader: Reader = read
    ) -> None:
        super().__init__(
            Evaluator(ENGINE, clock, ids),
            lambda bundle: check(bundle, program, run_dir, limits),
            lambda bundle: OpaServer(bundle, program, run_dir, limits, clock),
            reader,
        )


class OpaServer:
    """One revision, and the process that serves it now."""

    def __init__(self, bundle: Bundle, program: Path, run_dir: Path, limits: OpaLimits, clock: Clock) -> None:
        self._bundle = bundle
        self._program = program
        self._run_dir = run_dir
        self._limits = limits
        self._clock = clock
        self._folder = Path()
        self._numbers = itertools.count(1)
        self._processes: set[OpaProcess] = set()
        self._current: OpaProcess | None = None
        self._serving = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @property
    def bundle(self) -> Bundle:
        """What it serves."""
        return self._bundle

    async def start(self) -> None:
        """Returns once OPA serves the revision; raises ``LoadFailed`` or ``OSError`` and cleans up."""
        try:
            self._folder = fresh(self._run_dir, f"opa-{os.getpid()}-")
            await completed(_furnish, self._folder, build(self._bundle))
            process = await self._spawn()
        except BaseException:
            await self._end()
            raise
        self._set(process)
        self._keeper = asyncio.create_task(self._keep(process))

    async def ask(self, entrypoint: str, document: bytes) -> Mapping[str, Any]:
        """Within the deadline, which includes the wait for an OPA that is restarting."""
        seconds = self._limits.evaluate_seconds
        self._open += 1
        self._idle.clear()
        try:
            if not self._serving.is_set():
                seconds = await self._wait(seconds)
            if self._closed or self._current is None:
                raise PolicyFailure(Reason.POLICY_DOWN, CLOSED)
            return await self._current.opa.ask(entrypoint, document, self._bundle.revision, seconds)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def drain(self) -> None:
        """``close`` once open queries have ended; for a retired revision."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * self._limits.evaluate_seconds):
                    await self._idle.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """At once: open queries fail, and no process or file remains. Idempotent."""
        self._closed = True
        self._set(None)
        self._serving.set()
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._end()

    def _set(self, process: OpaProcess | None) -> None:
        self._current = process
        if process:
            self._serving.set()
        else:
            self._serving.clear()

    async def _wait(self, seconds: float) -> float:
        """Waits for a process; returns the remaining seconds."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(seconds):
                await self._serving.wait()
        except TimeoutError:
            raise PolicyFailure(Reason.POLICY_DOWN, "OPA is being started again") from None
        return max(0.0, seconds - (self._clock.monotonic() - started))

    async def _keep(self, process: OpaProcess) -> None:
        """Until cancelled: replaces a process that ends or stops answering, with growing pauses if none stays up."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            started = self._clock.monotonic()
            await self._attend(process)
            self._set(None)
            with contextlib.suppress(Exception):  # a thread that cannot be had: the group is killed, the end reaps it
                await self._kill(process)
            settled = self._clock.monotonic() - started >= _SETTLED_SECONDS
            pause = _FIRST_PAUSE_SECONDS if settled else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            process = await self._again(pause)
            self._set(process)

    async def _attend(self, process: OpaProcess) -> None:
        """Returns when the process has ended, or twice in a row did not say which revision it serves."""
        silences = 0
        while silences < _SILENCES:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await process.ended()
                return
            silences = 0 if await self._speaks(process) else silences + 1

    async def _speaks(self, process: OpaProcess) -> bool:
        try:
            return await process.opa.revision(_LIVE_SECONDS) == self._bundle.revision
        except PolicyFailure:
            return False

    async def _again(self, pause: float) -> OpaProcess:
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._spawn()
            except Exception:  # whatever it was: who keeps OPA alive must not end
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _spawn(self) -> OpaProcess:
        socket = self._folder / f"{next(self._numbers)}.sock"
        process = await OpaProcess.spawn(self._program, self._folder / "bundle.tar.gz", socket, self._limits.memory_mib)
        self._processes.add(process)
        try:
            await process.ready(self._bundle.revision, self._limits.load_seconds)
        except BaseException:
            await self._kill(process)
            raise
        return process

    async def _kill(self, process: OpaProcess) -> None:
        await process.kill()
        self._processes.discard(process)

    async def _end(self) -> None:
        for process in tuple(self._processes):
            await self._kill(process)
        if self._folder != Path():
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def _furnish(folder: Path, bundle: bytes) -> None:
    make_private(folder)
    _sweep(folder.parent)
    (folder / "bundle.tar.gz").write_bytes(bundle)


def _sweep(run_dir: Path) -> None:
    """Removes what killed daemons left behind."""
    for folder in (*run_dir.glob("opa-*-*"), *run_dir.glob("check-*-*")):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and _gone(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
