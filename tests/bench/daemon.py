"""The daemon that is measured: a site with the figures of its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from kblockd.client import AsyncClient
from tests.bench import load, processes
from tests.bench.action import contract, upstream
from tests.bench.figures import Figures, Measured, Meters, Stages, by_stage
from tests.bench.servers import Counterparts, Server
from tests.bench.syncs import Syncs
from tests.harness import Site

_WARMING_CALLS = 8


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process until it serves: wall time, and CPU time of the process itself."""

    seconds: float
    cpu_seconds: float


class BenchSite(Site):
    """``profile``: where the module ``profiler`` writes what it saw; None runs the daemon as it is."""

    profile: Path | None = None
    profiler = "tests.bench.profiled"

    @classmethod
    @contextmanager
    def make(cls) -> Iterator[BenchSite]:
        """See ``Site.make``."""
        with super().make() as site:
            assert isinstance(site, BenchSite)
            yield site

    def prepare(self, adapter: str, url: str, collector: Server, *, verified: bool, policy: Mapping[str, Any]) -> None:
        """Everything on: policy, pins, signatures, the head, and traces at the default ratio."""
        self.configure(
            url,
            contracts={"bench": contract(adapter, verified=verified)},
            upstream=upstream(adapter),
            daemon={
                "adapters": [adapter],
                "limits": {"executions": 256},
                "development": {"failpoints": False},
                "telemetry": {"otlp": collector.url},
                "policy": {"evaluate_timeout_seconds": 2.0, **policy},
            },
        )
        self.pin()

    @property
    def target(self) -> str:
        """Of the measured caller."""
        return f"unix:{self.socket('agent')}"

    @property
    def pid(self) -> int:
        """Of the daemon that runs."""
        assert self.process is not None
        return self.process.pid

    def start(self, failpoint: str = "", *, wait: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """As the harness does, under the profiler where one is wanted."""
        if self.profile is None:
            super().start(failpoint, wait=wait, environment=environment)
            return
        command = [sys.executable, "-m", self.profiler, str(self.profile), "serve", "--config"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.config)], stdout=log, stderr=log, env={**os.environ, **(environment or {})}
            )
        self.wait_serving()

    def start_measured(self, environment: Mapping[str, str] | None = None) -> Start:
        """Starts it, until health says SERVING; raises RuntimeError when it ends instead."""
        began = time.perf_counter()
        self.start(wait=False, environment=environment)
        while not self._healthy():
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended: {self.said()}")
            time.sleep(0.005)
        return Start(time.perf_counter() - began, processes.cpu(self.pid).total)

    @contextmanager
    def profiling(self) -> Iterator[None]:
        """What the loop does in the block is profiled, where a profile is wanted."""
        if self.profile is None:
            yield
            return
        os.kill(self.pid, signal.SIGUSR1)
        yield
        os.kill(self.pid, signal.SIGUSR2)
        limit = time.monotonic() + 60
        while not self.profile.exists() and time.monotonic() < limit:
            time.sleep(0.05)


@dataclass(slots=True)
class Subject:
    """A daemon that serves and is measured. ``policy``: processes that it asks and did not start."""

    measured: Measured
    site: BenchSite
    syncs: Syncs
    policy: Sequence[int] = ()

    def load(self, with_: Counterparts, number: int) -> None:
        """One number of callers."""
        figures = self.measured.figures[number] = Figures(number)
        mine = f"{os.urandom(6).hex()}-{number}"
        uvloop.run(_warm(self.site.target, mine))
        before = self.syncs.count()
        with self._meters(with_.upstream).measuring(figures), self.site.profiling():
            figures.seen = uvloop.run(_load(self.site.target, number, with_.seconds, mine))
        after = self.syncs.count()
        if before is not None and after is not None:
            figures.syncs = after - before
        figures.stages = uvloop.run(_stages(self.site.target, figures.seen.executions))
        self.measured.resident_mib = processes.memory_mib(self.site.pid)
        self.measured.highest_mib = processes.memory_mib(self.site.pid, "VmHWM")

    def _meters(self, server: Server) -> Meters:
        """This process is the load."""
        asked = [*processes.children(self.site.pid), *self.policy]
        return Meters(daemon=[self.site.pid], policy=asked, upstream=[server.pid], load=[os.getpid()])


def measure(subjects: Sequence[Subject], with_: Counterparts) -> list[Measured]:
    """All numbers of callers, the subjects in turn at each, so that what else the machine does meets all of them."""
    for number in with_.callers:
        for subject in subjects:
            subject.load(with_, number)
    return [subject.measured for subject in subjects]


async def _warm(target: str, name: str) -> None:
    """Until connections and caches are there."""
    async with AsyncClient(target) as client:
        await load.executing(client, _WARMING_CALLS, 0.2, f"{name}-warm")


async def _load(target: str, number: int, seconds: float, name: str) -> load.Seen:
    async with AsyncClient(target) as client:
        return await load.executing(client, number, seconds, name)


async def _stages(target: str, executions: list[str]) -> Stages:
    """From the ledger's own records."""
    events: list[tuple[int, int]] = []
    async with AsyncClient(target) as client:
        for execution in executions:
            for event in (await client.get(execution_id=execution)).events:
                events += event.stages
    return by_stage(events)
