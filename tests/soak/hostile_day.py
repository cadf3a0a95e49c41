"""A day of one hostile agent: each attack for a while beside an agent that behaves, and what that one noticed.

``python -m tests.soak.hostile_day [--seconds 60] [--idle 30] [--only NAME …]``

The good agent makes one call after the other, with a pause between. Its rate and p99 before, during and after an attack
are given as ratios to those of a quiet time right before it, because the machine's speed is not what is measured.
Exits with 1 when during an attack the p99 was more than ``--most`` times that of the quiet time, the daemon ended, its
memory passed 512 MiB, or the ledger grew beyond the hostile agent's share of records.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from kblockd.client import AsyncClient, CallError, Completed
from tests.bench import processes, servers
from tests.bench.action import call, contract, upstream
from tests.bench.load import percentile
from tests.harness import Site, merged, shipped
from tests.soak.attacks import ATTACKS, MEMO

PAUSE_SECONDS: Final = 0.2  # about 4 executions/s: well within the good agent's own share of records
MOST_MIB: Final = 512
RECORDS_EACH: Final = 16  # of one execution of the good agent, generously
SHARES: Final = shipped("kblockd.yaml")["limits"]["per_principal"]
DAEMON: Final = {
    "adapters": ["http"],
    "limits": {"per_principal": SHARES},
    "development": {"failpoints": False},
    "policy": {"evaluate_timeout_seconds": 2.0},
}
RULE: Final = """
refusals contains {"code": "MEMO", "message": "not this memo"} if {
	input.action.type == "bench.memo"
	contains(input.args.memo, "x")
}
"""


@dataclass(frozen=True, slots=True)
class Noticed:
    """What the good agent saw in a while; ``faults`` are calls that did not succeed."""

    rate: float
    p50: float
    p99: float
    faults: dict[str, int]

    @classmethod
    def of(cls, milliseconds: list[float], faults: list[str], seconds: float) -> Noticed:
        """From each call's time."""
        counted = {fault: faults.count(fault) for fault in sorted(set(faults))}
        rate = len(milliseconds) / seconds
        return cls(rate, percentile(milliseconds, 0.5), percentile(milliseconds, 0.99), counted)


@dataclass(frozen=True, slots=True)
class Result:
    """One attack."""

    name: str
    before: Noticed
    during: Noticed
    after: Noticed
    peak_mib: float
    records: int
    store_mib: float
    allowed_records: int
    ended: dict[str, int]
    words: dict[str, str]

    def line(self) -> str:
        """Of the table: ratios to the quiet time before."""
        p99 = [f"{one.p99 / self.before.p99:.2f}" for one in (self.during, self.after)]
        rate = [f"{one.rate / self.before.rate:.2f}" for one in (self.during, self.after)]
        faults = sum(self.during.faults.values())
        return (
            f"{self.name:9} p99 idle {self.before.p99:6.1f} ms, during x{p99[0]:>6}, after x{p99[1]:>5}; "
            f"rate during x{rate[0]}, after x{rate[1]}; good calls that failed {faults}; "
            f"peak {self.peak_mib:.0f} MiB; {self.records} records, {self.store_mib:.1f} MiB; hostile: {self.ended}"
        )

    def faults(self, most: float) -> list[str]:
        """What is not as it should be, in words; ``most`` is the ratio of p99, 0 for no look at times."""
        found = []
        if most and self.during.p99 > most * self.before.p99:
            found.append(f"{self.name}: p99 {self.during.p99 / self.before.p99:.2f} times that of the quiet time")
        if self.during.faults:
            found.append(f"{self.name}: calls of the good agent failed: {self.during.faults}")
        if self.peak_mib > MOST_MIB:
            found.append(f"{self.name}: {self.peak_mib:.0f} MiB")
        if self.records > self.allowed_records:
            found.append(f"{self.name}: {self.records} records, at most {self.allowed_records} are the shares'")
        return found


async def behave(client: AsyncClient, seconds: float, name: str) -> Noticed:
    """The good agent for so many seconds."""
    milliseconds, faults = [], []
    ends, number = time.monotonic() + seconds, 0
    while (began := time.perf_counter()) and time.monotonic() < ends:
        number += 1
        try:
            answer = await client.execute(call(f"{name}-{number}"))
        except CallError as error:
            faults.append(str(error.reason or error.code))
        else:
            if not isinstance(answer, Completed):
                faults.append(answer.state)
        milliseconds.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    return Noticed.of(milliseconds, faults, seconds)


async def _size(site: Site) -> int:
    """Records in the ledger."""
    async with AsyncClient(f"unix:{site.socket('operator')}") as operator:
        return int((await operator.checkpoint()).splitlines()[1])


def _store_mib(site: Site) -> float:
    return sum(file.stat().st_size for file in site.data.rglob("*") if file.is_file()) / (1 << 20)


def _peak(pid: int, *, reset: bool = False) -> float:
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return processes.memory_mib(pid, "VmHWM")


async def suffer(site: Site, name: str, seconds: float, idle: float) -> Result:
    """One attack; the quiet times before and after it are ``idle`` seconds each."""
    assert site.process is not None
    pid, mine = site.process.pid, f"good-{name}-{time.monotonic_ns()}"
    async with AsyncClient(f"unix:{site.socket('agent')}") as good:
        before = await behave(good, idle, f"{mine}-before")
        records, store = await _size(site), _store_mib(site)
        _peak(pid, reset=True)
        hostile = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.soak.attacks", name, f"unix:{site.socket('other')}", str(seconds),
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            await asyncio.sleep(min(1.0, seconds / 4))  # until it has started
            during = await behave(good, seconds - min(1.0, seconds / 4), f"{mine}-during")
            said, _ = await asyncio.wait_for(hostile.communicate(), 120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                hostile.kill()
        peak = _peak(pid)
        after = await behave(good, idle, f"{mine}-after")
        grown = await _size(site) - records
    report = json.loads(said)
    good_calls = (during.rate * seconds + after.rate * idle) * RECORDS_EACH
    minutes = (seconds + idle) / 60 + 0.5  # with the burst, and what the executions under way still write
    allowed = int(good_calls + minutes * SHARES["records_per_minute"])
    return Result(
        name, before, during, after, peak, grown, _store_mib(site) - store, allowed, report["ended"], report["words"]
    )


@contextlib.contextmanager
def daemon(changes: dict[str, Any] | None = None) -> Iterator[Site]:
    """A daemon process with the shipped shares, its upstream, and the policy with one rule more."""
    with servers.running("upstream", "tests.soak") as counterpart, Site.make() as site:
        bench = contract("http", verified=True)
        contracts = {
            "bench": bench,
            "elsewhere": merged(bench, {"action": {"environment": "elsewhere"}}),
            "memo": _memo(bench),
        }
        tools = {**upstream("http"), "maximum_concurrent_calls": 16}
        site.configure(counterpart.url, contracts=contracts, upstream=tools, daemon=merged(DAEMON, changes or {}))
        decision = site.config.parent / "policy" / "decision.rego"
        decision.write_text(decision.read_text() + RULE)
        site.pin()
        site.start()
        yield site


def _memo(bench: dict[str, Any]) -> dict[str, Any]:
    """With an argument that may be of any type."""
    document: dict[str, Any] = json.loads(json.dumps(bench))
    document["action"]["type"] = MEMO
    document["tool"]["arguments_schema"]["properties"]["memo"] = {}
    return document


def day(seconds: float, idle: float, names: Sequence[str], most: float) -> list[str]:
    """Prints the table as it grows; what is not as it should be, in words."""
    found = []
    with daemon() as site:
        for name in names:
            try:
                result = uvloop.run(suffer(site, name, seconds, idle))
            except (CallError, ValueError, OSError) as error:
                print(f"{name:9} {type(error).__name__}: {error}; the daemon said: {site.said()[-400:]}", flush=True)
                found.append(f"{name}: {error}")
            else:
                print(result.line(), flush=True)
                found += result.faults(most)
            if site.process is None or site.process.poll() is not None:
                found.append(f"{name}: the daemon ended")
                site.kill()
                site.start()
        if (code := site.stop()) != 0:
            found.append(f"the daemon stopped with {code}")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="What one hostile agent does to another.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--idle", type=float, default=30.0, help="of the quiet times before and after it")
    parser.add_argument("--most", type=float, default=2.0, help="times the p99 of the quiet time; 0: not looked at")
    parser.add_argument("--only", nargs="+", choices=sorted(ATTACKS), default=list(ATTACKS))
    asked = parser.parse_args()
    found = day(asked.seconds, asked.idle, asked.only, asked.most)
    print("\n".join(found) or "nobody noticed")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
