"""What one question costs: each engine alone, one question after the other, with more and more policy data."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.deciding.entrypoints import DECISION
from tests.bench import processes
from tests.bench.load import percentile
from tests.bench.processes import Cpu
from tests.contract.policy import support

SIZES: Final = {"1 KB": 1 << 10, "100 KB": 100 << 10, "1 MB": 1 << 20}
KINDS: Final = ("embedded", "supervised")
_FIRST: Final = 20
_RULE: Final = f"result := {support.ALLOW} if data.limits[input.args.customer] >= input.args.amount"


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one question: wall time, and CPU time of this process and of the engine's."""

    engine: str
    data: str
    median_us: float
    p99_us: float
    asking_us: float
    answering_us: float
    load_seconds: float


def run(kinds: Sequence[str], seconds: float) -> list[Cost]:
    """Each of these engines with every size; so many seconds each."""
    return [asyncio.run(_cost(kind, name, seconds)) for kind in kinds for name in SIZES]


def data(size: int) -> tuple[str, int]:
    """A document of about that many bytes, in which a rule looks up one of its entries; and how many entries."""
    entries = max(1, size // len('"customer-000000": 100, '))
    return json.dumps({"limits": {f"customer-{number:06}": 100 for number in range(entries)}}), entries


async def _cost(kind: str, name: str, seconds: float) -> Cost:
    document, entries = data(SIZES[name])
    texts = support.deciding(_RULE) | {"data.json": document}
    with support.kind_of(kind) as known, tempfile.TemporaryDirectory(prefix="kb-") as folder:
        began = time.perf_counter()
        async with known.running(Path(folder), texts) as engine:
            loaded = time.perf_counter() - began
            await _ask(engine, entries, 0.0)
            children = known.children()
            before, own = _cpu(children), time.process_time()
            took = await _ask(engine, entries, seconds)
            own = time.process_time() - own
            theirs = (_cpu(children) - before).total
    each = 1e6 / len(took)
    return Cost(
        kind, name, 1e6 * percentile(took, 0.5), 1e6 * percentile(took, 0.99), each * own, each * theirs, loaded
    )


def _cpu(pids: set[int]) -> Cpu:
    return sum(map(processes.cpu, pids), Cpu())


async def _ask(engine: LoadingEngine, entries: int, seconds: float) -> list[float]:
    """Seconds of each question; at least some. Raises RuntimeError for an answer that the data do not give."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while len(took) < _FIRST or time.perf_counter() < end:
        question = support.document(customer=f"customer-{len(took) % entries:06}", amount=100)
        began = time.perf_counter()
        decision = await engine.evaluate(DECISION, question)
        took.append(time.perf_counter() - began)
        if decision.result["effect"] != "allow":
            raise RuntimeError(f"the policy answered {decision.result}")
    return took
