"""A reload under load: what executions take while another revision is checked, loaded and put in force."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Final

import uvloop

from kblockd.client import AsyncClient
from tests.bench import load, variants
from tests.bench.daemon import BenchSite
from tests.bench.servers import Counterparts
from tests.bench.variants import PLAIN

CALLERS: Final = 16
_RELOADS: Final = 3
_LIMIT_SECONDS: Final = 60.0
_FILE: Final = "decision.rego"
_IN_FORCE: Final = "is in force"


@dataclass(frozen=True, slots=True)
class Reloads:
    """Milliseconds of executions that met no reload and of those that did; how many faulted; seconds of a reload."""

    calm: list[float]
    met: list[float]
    faults: dict[str, int]
    seconds: list[float]


def run(with_: Counterparts) -> Reloads:
    """Some reloads, each after a calm of as long as one load."""
    with variants.serving(PLAIN, with_) as subject:
        return uvloop.run(_run(subject.site, with_.seconds))


async def _run(site: BenchSite, seconds: float) -> Reloads:
    """The load goes on until the last reload has ended."""
    spans: list[tuple[float, float]] = []
    async with AsyncClient(site.target) as client:
        reloading = asyncio.create_task(_reload(site, seconds, spans))
        parts: list[load.Seen] = []
        while not reloading.done():
            parts.append(await load.executing(client, CALLERS, seconds / 2, f"{os.urandom(6).hex()}"))
        await reloading
    calm: list[float] = []
    met: list[float] = []
    faults: dict[str, int] = {}
    for seen in parts:
        for fault, number in seen.faults.items():
            faults[fault] = faults.get(fault, 0) + number
        for started, took in zip(seen.started, seen.milliseconds, strict=True):
            (met if _meets(started, started + took / 1000, spans) else calm).append(took)
    return Reloads(calm, met, faults, [end - start for start, end in spans])


def _meets(started: float, ended: float, spans: list[tuple[float, float]]) -> bool:
    return any(started < end and ended > start for start, end in spans)


async def _reload(site: BenchSite, calm: float, spans: list[tuple[float, float]]) -> None:
    """Another comment is another revision; from the change of the file until the daemon says that it is in force."""
    path = site.config.parent / "policy" / _FILE
    for number in range(_RELOADS):
        await asyncio.sleep(calm)
        known = site.log.read_text().count(_IN_FORCE)
        start = time.perf_counter()
        path.write_text(f"{path.read_text()}\n# Revision {number} of this run.\n")
        while site.log.read_text().count(_IN_FORCE) == known:
            if time.perf_counter() - start > _LIMIT_SECONDS:
                raise RuntimeError(f"no other revision came into force: {site.said()}")
            await asyncio.sleep(0.02)
        spans.append((start, time.perf_counter()))
