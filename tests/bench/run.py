"""Where kblockd stands: executions per second and latency at 1, 16 and 64 callers, and what each stage costs.

``make bench`` (or ``python -m tests.bench.run [--seconds 8]``). Load, upstream and daemon share this machine's cores.
Figures vary with it; ratios within one run are what counts, so the floors stand beside them: a raw fdatasync and the
bare upstream.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import uvloop

from kblockd.client import AsyncClient, Call, CallError
from tests.harness import Site, refund_contract

CALLERS = (1, 16, 64)


def contract(verified: bool) -> dict[str, Any]:
    """An action in the sandbox environment, with or without an independent read after it."""
    document = refund_contract()
    document.update(
        action={"type": "bench.effect", "risk_tier": "low", "environment": "bench"},
        tool={
            "upstream": "payments",
            "name": "effect",
            "kind": "write",
            "errors_are_effect_free": False,
            "effect_key": {"in": "header", "name": "Idempotency-Key"},
            "arguments_schema": {
                "type": "object",
                "additionalProperties": False,
                "required": ["item"],
                "properties": {"item": {"type": "string", "maxLength": 64}, "note": {"type": "string"}},
            },
        },
        target={"type": "item", "id": "/args/item"},
        intent={"item": "/args/item"},
        summary="Act on {intent.item}",
        preconditions={},
        lookup=[],
        reveal=["/output/id"],
    )
    document["reads"] = {
        "snapshot": None,
        "verify": {"tool": "state", "arguments": {"item": "/args/item"}} if verified else None,
    }
    document["preflight"]["require_current_resource_version"] = False
    document["execution"]["maximum_concurrent_actions"] = 1000
    document["verification"].update(
        required=verified,
        authoritative_read_tool="state" if verified else None,
        expected={"done": 1} if verified else {},
        prohibited={},
    )
    return document


UPSTREAM = {
    "adapter": "http",
    "maximum_concurrent_calls": 128,
    "settings": {
        "tools": {
            "effect": {"path": "/effects"},
            "state": {"method": "GET", "path": "/effects/{item}"},
        }
    },
}


class Load:
    """Callers that each make one call after the other for some seconds."""

    def __init__(self, target: str, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self.milliseconds: list[float] = []
        self.executions: list[str] = []
        self.faults: defaultdict[str, int] = defaultdict(int)

    async def run(self, callers: int, name: str) -> float:
        """Executions per second."""
        async with AsyncClient(self._target) as client:
            await client.execute(call(f"{name}-warm"))
            began = time.perf_counter()
            await asyncio.gather(*(self._one(client, f"{name}-{n}", began + self._seconds) for n in range(callers)))
            return len(self.milliseconds) / (time.perf_counter() - began)

    async def _one(self, client: AsyncClient, name: str, end: float) -> None:
        number = 0
        while time.perf_counter() < end:
            number += 1
            started = time.perf_counter()
            try:
                answer = await client.execute(call(f"{name}-{number}"))
            except CallError as error:
                self.faults[str(error.reason)] += 1
                continue
            if answer.state != "succeeded":
                self.faults[f"{answer.state}: {answer.detail}"] += 1
                continue
            self.milliseconds.append((time.perf_counter() - started) * 1000)
            if len(self.executions) < 200:
                self.executions.append(answer.execution_id)


def call(item: str) -> Call:
    """About 1 KB of arguments."""
    return Call.of("bench.effect", "bench", target=item, arguments={"item": item, "note": "n" * 900}, key=f"key-{item}")


async def stage_costs(target: str, executions: list[str]) -> dict[int, list[int]]:
    """Microseconds of each stage, from the ledger's own records."""
    costs: defaultdict[int, list[int]] = defaultdict(list)
    async with AsyncClient(target) as client:
        for execution in executions:
            for event in (await client.get(execution_id=execution)).events:
                for stage, microseconds in event.stages:
                    costs[stage].append(microseconds)
    return costs


async def bare(url: str, callers: int, seconds: float) -> float:
    """Requests per second against the upstream alone, by the same HTTP client."""
    done = 0
    end = time.perf_counter() + seconds

    async def one(client: httpx2.AsyncClient, name: str) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await client.post(f"{url}/effects", json={"item": name})
            done += 1

    async with httpx2.AsyncClient(trust_env=False) as client:
        await asyncio.gather(*(one(client, f"bare-{n}") for n in range(callers)))
    return done / seconds


def fdatasyncs(folder: Path, seconds: float = 1.0) -> float:
    """Raw fdatasyncs of 2 KB per second on the file system of the ledger."""
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY, 0o600)
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        os.write(descriptor, b"x" * 2048)
        os.fdatasync(descriptor)
        done += 1
    os.close(descriptor)
    return done / seconds


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def measure(url: str, verified: bool, seconds: float) -> None:
    """One variant: a fresh daemon, all numbers of callers, then the stages."""
    print(f"\n{'with a verification read' if verified else 'no verification read'}")
    with Site.make() as site:
        site.configure(
            url,
            contracts={"bench": contract(verified)},
            upstream=UPSTREAM,
            daemon={
                "adapters": ["http"],
                "limits": {"executions": 256},
                "development": {"failpoints": False},
                "policy": {"evaluate_timeout_seconds": 2.0},
            },
        )
        site.pin()
        site.start()
        assert site.process is not None
        target = f"unix:{site.socket('agent')}"
        for callers in CALLERS:
            load = Load(target, seconds)
            rate = uvloop.run(load.run(callers, f"{verified}-{callers}"))
            times = sorted(load.milliseconds) or [0.0]
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99) - 1]
            print(
                f"  {callers:3} callers  {rate:7.0f} executions/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   "
                f"faults {dict(load.faults) or 0}"
            )
        print(f"  daemon {memory_mib(site.process.pid):.0f} MiB resident")
        costs = uvloop.run(stage_costs(target, load.executions))
        for stage, microseconds in sorted(costs.items()):
            print(f"    stage {stage:02}  median {statistics.median(microseconds):8.0f} us   n {len(microseconds)}")


def main() -> None:
    """Prints; asserts only that no effect was doubled."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        port_file = Path(name) / "port"
        upstream = subprocess.Popen([sys.executable, "-m", "tests.bench.upstream", str(port_file)])
        try:
            while not port_file.exists() or not port_file.read_text():
                time.sleep(0.02)
            url = f"http://127.0.0.1:{port_file.read_text()}"
            print(f"floors: {fdatasyncs(Path(name)):.0f} fdatasync/s", end="")
            runs: list[Callable[[], Awaitable[float]]] = [lambda n=n: bare(url, n, 2.0) for n in CALLERS]
            for callers, run in zip(CALLERS, runs, strict=True):
                print(f", bare upstream at {callers}: {asyncio.run(run()):.0f}/s", end="")  # type: ignore[arg-type]
            print()
            for verified in (False, True):
                measure(url, verified, seconds)
            with urllib.request.urlopen(f"{url}/count", timeout=5) as answer:
                print(f"\nupstream: {answer.read().decode()}")
        finally:
            upstream.kill()
            upstream.wait()


if __name__ == "__main__":
    main()
