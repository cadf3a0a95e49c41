"""Bundles, inputs and clocks that the tests of policy share."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.bundles.bundle import Reader, read
from kblockd.policy.embedded.engine import EmbeddedEngine
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.supervised import SupervisedEngine

HANG_SECONDS = 60.0
_OPA = Path(__file__).parents[3] / ".tools" / "bin" / "opa"


def opa_binary() -> Path:
    """A real OPA; without one the test is skipped, and fails where CI must have it."""
    if _OPA.exists():
        return _OPA
    reason = "OPA is missing: `make opa` builds it where Go is installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


DENY = '{"effect": "deny", "approvals": {"count": 0, "roles": []}, "observe_until": "", "reasons": []}'
ALLOW = '{"effect": "allow", "approvals": {"count": 0, "roles": []}, "observe_until": "", "reasons": []}'
DEFAULTS = {
    "authz": '{"allow": false, "tenants": [], "agents": [], "reasons": []}',
    "decision": DENY,
    "preconditions": '{"ok": false, "stands": false, "reasons": []}',
    "verification": '{"verdict": "inconclusive", "reasons": []}',
    "recovery": '{"recovery": "manual", "reasons": []}',
}


def package(name: str, *rules: str) -> str:
    """A module with a denying default and more rules."""
    lines = [f"package kblock.{name}", "import rego.v1", f"default result := {DEFAULTS[name]}", *rules]
    return "\n\n".join(lines) + "\n"


def files(**changed: str) -> dict[str, str]:
    """The five packages, each by its file; ``changed`` replaces whole packages, or adds files (``a__rego``)."""
    found = {f"{name}.rego": package(name) for name in DEFAULTS}
    return found | {name.replace("__", ".") if "__" in name else f"{name}.rego": text for name, text in changed.items()}


def deciding(*rules: str) -> dict[str, str]:
    """The five packages, with rules of the decision."""
    return files(decision=package("decision", *rules))


ALLOW_REFUND = f'result := {ALLOW} if input.action.type == "refund"'
# Slow for every engine: a hundred million steps.
RUNAWAY = f"""result := {ALLOW} if {{
	input.action.type == "slow"
	xs := numbers.range(1, 500)
	count([1 | some a in xs; some b in xs; some c in xs; a + b + c == 0]) == 0
}}"""


def document(type_: str = "refund", **args: Any) -> dict[str, Any]:
    """An input as stage 3 sends it."""
    return {
        "v": "kblockd.policy/1",
        "now": "2026-11-29T10:00:00.000000Z",
        "principal": {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:bot", "roles": []},
        "method": "/kblock.v1.ExecutionService/Execute",
        "envelope": {"target": {"type": "order", "id": "7", "version": ""}},
        "action": {
            "type": type_,
            "risk_tier": "high",
            "environment": "production",
            "tool": "refund",
            "tool_version": "3.2.0",
            "target": {"type": "order", "id": "7"},
            "intent": {},
            "digest": "0" * 64,
        },
        "args": args,
        "contract": {},
        "binding": {},
        "approval": None,
        "snapshot": None,
        "read": None,
        "outcome": None,
        "finding": None,
    }


class RealClock:
    """The clock of the machine."""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class TickClock(RealClock):
    """``sleep`` ends only when the test says ``tick``; ``tick`` returns when the sleeper sleeps again."""

    def __init__(self) -> None:
        self._ticks: asyncio.Queue[None] = asyncio.Queue()
        self._asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._asleep.set()
        await self._ticks.get()
        self._asleep.clear()

    async def tick(self) -> None:
        await self.asleep()
        self._asleep.clear()
        self._ticks.put_nowait(None)
        await self.asleep()

    async def asleep(self) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await self._asleep.wait()


class CountingIds:
    """Identifiers that differ, in order."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):032x}"

    def salt(self) -> str:
        return f"{next(self._numbers):032x}"


# The machine of the tests is shared: a deadline that a healthy evaluation cannot miss, except where the deadline is
# what the test is about.
PATIENT = EmbeddedLimits(evaluate_seconds=20.0, load_seconds=60.0)


def embedded(limits: EmbeddedLimits = PATIENT, reader: Reader = read) -> EmbeddedEngine:
    """An engine without a policy."""
    return EmbeddedEngine(limits, RealClock(), CountingIds(), reader)


@contextlib.asynccontextmanager
async def running(
    folder: Path, texts: Mapping[str, str], limits: EmbeddedLimits = PATIENT
) -> AsyncIterator[EmbeddedEngine]:
    """An engine with a checked and active bundle."""
    engine = embedded(limits)
    try:
        await engine.activate(await engine.prepare(write(folder, texts)))
        yield engine
    finally:
        await engine.close()


@dataclass(frozen=True)
class Kind:
    """An engine that loads: how to make one, and how to see its processes."""

    name: str
    mark: bytes
    processes: int
    run_dir: Path

    def engine(self, limits: EmbeddedLimits = PATIENT, reader: Reader = read) -> LoadingEngine:
        """Without a policy."""
        if self.name == "embedded":
            return embedded(limits, reader)
        of_opa = OpaLimits(limits.evaluate_seconds, limits.load_seconds, limits.memory_mib)
        return SupervisedEngine(opa_binary(), self.run_dir, of_opa, RealClock(), CountingIds(), reader)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, texts: Mapping[str, str], limits: EmbeddedLimits = PATIENT
    ) -> AsyncIterator[LoadingEngine]:
        """With a checked and active bundle."""
        engine = self.engine(limits)
        try:
            await engine.activate(await engine.prepare(write(folder, texts)))
            yield engine
        finally:
            await engine.close()

    def children(self, parent: int | None = None) -> set[int]:
        """Process ids of its processes below a process (this one by default)."""
        return children(parent, self.mark)


@contextlib.contextmanager
def kind_of(name: str) -> Iterator[Kind]:
    """The path of a Unix socket is short, so not below ``tmp_path``."""
    with tempfile.TemporaryDirectory(prefix="kb-") as run_dir:
        if name == "embedded":
            yield Kind(name, b"kblockd.policy.embedded.worker", 2, Path(run_dir))
        else:
            opa_binary()
            yield Kind(name, b"--server", 1, Path(run_dir))
            assert not list(Path(run_dir).iterdir())


def write(folder: Path, texts: Mapping[str, str]) -> Path:
    """The files, and no other Rego or data, in ``folder``."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in texts and path.suffix in (".rego", ".json", ".yaml"):
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


_BEFORE: set[int] = set()


def forget_others() -> None:
    """Before a test: what runs below this process by now belongs to somebody else, a daemon of a session's fixture."""
    _BEFORE.clear()
    _BEFORE.update(children(), children(mark=b"opa"))


def children(parent: int | None = None, mark: bytes = b"kblockd.policy.embedded.worker") -> set[int]:
    """Process ids of the policy workers below a process; below this one those of the test alone."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(") ")[2].split()
                command = (entry / "cmdline").read_bytes()
                if int(stat[1]) == (parent or os.getpid()) and stat[0] != "Z" and mark in command:
                    found.add(int(entry.name))
    return found - _BEFORE


def ended(pid: int) -> bool:
    """Whether nothing is left of it but its exit code, or not even that. Its command line is gone before its socket."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; fails after ``HANG_SECONDS``."""
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
