"""A daemon that is killed at random instants while everybody goes on, and the history that is left in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kblockd.client import AsyncClient, CallError
from tests.crash.load.callers import Caller, People
from tests.crash.load.history import History, read_export
from tests.crash.load.plan import DAEMON, UPSTREAM, Death, Plan, contracts
from tests.crash.load.provider import Provider
from tests.harness import Site

SETTLING_SECONDS = 180.0  # a bound on hanging
REPEATS = 20
CONNECTIONS = 8
LAST = Death(after=0.0, early=False, reloads=0, spoilt=False, blind=False)
_PAGE = 200


@dataclass
class Policies:
    """The daemon's folder of policies as somebody edits it: the decisions stay what they are."""

    file: Path
    text: str
    edits: int = 0

    @classmethod
    def of(cls, site: Site) -> Policies:
        """As the site was configured."""
        file = site.config.parent / "policy" / "decision.rego"
        return cls(file, file.read_text())

    def mend(self) -> None:
        """A revision of its own that says the same."""
        self.edits += 1
        self._write(f"{self.text}\n# edit {self.edits}\n")

    def spoil(self) -> None:
        """What no engine takes."""
        self._write("package kblock.decision\n\nresult := {\n")

    def _write(self, text: str) -> None:
        fresh = self.file.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.replace(self.file)


@dataclass
class Campaign:
    """``verified`` is what ``kblockd ledger verify`` said at the end, against every checkpoint that was kept."""

    plan: Plan
    site: Site
    provider: Provider
    history: History = field(default_factory=History)
    checkpoints: list[str] = field(default_factory=list)
    verified: dict[str, object] = field(default_factory=dict)
    kills: int = 0
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _draining: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, say: Callable[[str], None] = lambda _: None) -> History:
        """Everything; raises RuntimeError when the daemon ends by itself or does not come back."""
        await asyncio.to_thread(self._prepare)
        async with contextlib.AsyncExitStack() as stack:
            callers = await self._callers(stack)
            async with asyncio.TaskGroup() as group:
                people = callers[0].people
                desks = [group.create_task(desk.run()) for desk in (people.approvals, people.held)]
                running = [group.create_task(caller.run(self._draining)) for caller in callers]
                await self._die_and_rise(await stack.enter_async_context(self._client("auditor")), say)
                await self._settle(callers, running)
                for desk in desks:
                    desk.cancel()
        await asyncio.to_thread(self._close)
        return self.history

    def _prepare(self) -> None:
        self.site.configure(self.provider.url, contracts=contracts(), upstream=UPSTREAM, daemon=DAEMON)
        self.site.pin()

    async def _callers(self, stack: contextlib.AsyncExitStack) -> list[Caller]:
        lead, operator = [await stack.enter_async_context(self._client(name)) for name in ("lead", "operator")]
        people = People(self.plan, self.provider, self.history, lead, operator)
        agents = [await stack.enter_async_context(self._client("agent")) for _ in range(CONNECTIONS)]
        return [
            Caller(self.plan, number, agents[number % CONNECTIONS], people, self._heard)
            for number in range(self.plan.callers)
        ]

    @contextlib.asynccontextmanager
    async def _client(self, name: str) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(f"unix:{self.site.socket(name)}", wait_seconds=5.0, poll_seconds=0.1) as client:
            yield client

    async def _die_and_rise(self, auditor: AsyncClient, say: Callable[[str], None]) -> None:
        policies = Policies.of(self.site)
        for death in self.plan.deaths():
            await self._rise(death, policies, auditor)
            await self._live(death, policies)
            self._alive()
            await asyncio.to_thread(self.site.kill)
            self.kills += 1
            say(f"kill {self.kills} of {self.plan.kills}, {len(self.history.given)} answers")
        await self._rise(LAST, policies, auditor)

    async def _rise(self, death: Death, policies: Policies, auditor: AsyncClient) -> None:
        """A start; the policies may be broken when it comes, and are mended when a caller has met that."""
        policies.mend()
        if death.blind:
            policies.spoil()
        await asyncio.to_thread(self.site.start, wait=False)
        if death.early:
            return
        if death.blind:
            await self._answering()
            policies.mend()
            self._reload()
        await asyncio.to_thread(self.site.wait_serving)
        with contextlib.suppress(CallError):
            self.checkpoints.append(await auditor.checkpoint())
            page = await auditor.read_ledger(max(self.history.seen, default=0), _PAGE)
            self.history.seen.update(page.leaves)
        await self._answering()

    async def _answering(self) -> None:
        """Until a caller has got an answer from this life of the daemon."""
        self._heard.clear()
        async with asyncio.timeout(SETTLING_SECONDS):
            await self._heard.wait()

    async def _live(self, death: Death, policies: Policies) -> None:
        """As long as the plan gives it."""
        for number in range(death.reloads):
            await asyncio.sleep(death.after / (death.reloads + 1))
            if death.early:
                continue  # a signal that comes before the daemon expects it would be a death of its own
            if number == 0 and death.spoilt:
                policies.spoil()
            else:
                policies.mend()
            self._reload()
        await asyncio.sleep(death.after / (death.reloads + 1))

    def _reload(self) -> None:
        """Now, and not at the next poll. A daemon that answers expects the signal."""
        assert self.site.process is not None
        os.kill(self.site.process.pid, signal.SIGHUP)

    def _alive(self) -> None:
        process = self.site.process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"the daemon ended by itself: {self.site.said()}")

    async def _settle(self, callers: Sequence[Caller], running: Sequence[asyncio.Task[None]]) -> None:
        """What was begun comes to its end; then every caller asks once more for what it has an answer to."""
        self._draining.set()
        await _ended(running)
        self._alive()
        repeats = [asyncio.ensure_future(_again(caller)) for caller in callers]
        await _ended(repeats)

    def _close(self) -> None:
        """In order; verified and exported by the command, with nobody at work on it."""
        if (code := self.site.stop()) != 0:
            raise RuntimeError(f"the daemon stopped with {code}: {self.site.said()}")
        arguments = ["--config", str(self.site.config), "--json"]
        for number, note in enumerate(self.checkpoints):
            kept = self.site.folder / f"checkpoint-{number}"
            kept.write_text(note)
            arguments += ["--checkpoint", str(kept)]
        self.verified = json.loads(self.site.command("ledger", "verify", *arguments, check=False))
        out = self.site.folder / "export.jsonl"
        self.site.command("ledger", "export", "--out", str(out), "--config", str(self.site.config))
        self.history.leaves = read_export(out)
        self.history.log = self.provider.lines()
        keys = self.site.data / "keys"
        self.history.root = (keys / "root.pub.pem").read_bytes()
        self.history.keyset = (keys / "keyset.dsse.json").read_bytes()


async def _again(caller: Caller) -> None:
    """The first and the last, from before the first death on and after the last."""
    for wanted in dict.fromkeys([*caller.closed[:REPEATS], *caller.closed[-REPEATS:]]):
        await caller.settle(wanted)


async def _ended(tasks: Sequence[Awaitable[None]]) -> None:
    """Whoever does not get to an end is left without an answer, which the checker reports."""
    _, late = await asyncio.wait([asyncio.ensure_future(task) for task in tasks], timeout=SETTLING_SECONDS)
    for task in late:
        task.cancel()
