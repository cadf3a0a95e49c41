"""A daemon in the test process that can be met between any two stages, on a machine whose clocks are moved by hand.

``Boundaries`` stand where the failpoints stand, and around the ordering of each commit; a test says what happens at one
of them. ``Machine`` is what the daemon's clock reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from kblockd_mcp.adapter import McpAdapter, McpPlugin

from kblockd import daemon
from kblockd.client import Answer, Call, CallError
from kblockd.domain.failpoints import NoFailpoints
from kblockd.domain.stages import Stage
from kblockd.system import SystemClock, since_boot
from tests.harness import Site
from tests.integration.pipeline import local
from tests.integration.pipeline.conftest import PAIR, TWO_APPROVERS
from tests.integration.pipeline.local import LONG_LEASE, PATIENT_BREAKER, LocalSite
from tests.upstreams.payments import PaymentsServer

Act = Callable[[], Awaitable[None]]
CONSUMPTION: Final = f"{Stage.CONSUME.label}:ordering"
_BEFORE_CONSUMED: Final = (
    Stage.ADMIT,
    Stage.REPLAY,
    Stage.PREFLIGHT,
    Stage.LEASE,
    Stage.READ,
    Stage.PRECONDITIONS,
    Stage.CONSUME,
)
_AFTER_CONSUMED: Final = (
    Stage.MARK_SENT,
    Stage.DISPATCH,
    Stage.CLASSIFY,
    Stage.RECONCILE,
    Stage.VERIFY,
    Stage.RECOVER,
    Stage.SEAL,
)
UNCONSUMED: Final = (*(f"{stage.label}:before" for stage in _BEFORE_CONSUMED), CONSUMPTION)
"""Every arrow of the call that resumes an approved action, up to the consumption's place in the ledger."""
CONSUMED: Final = (
    f"{Stage.CONSUME.label}:ordered",
    *(f"{stage.label}:before" for stage in _AFTER_CONSUMED),
    f"{Stage.SEAL.label}:after",
)
"""The arrows behind it."""


class Boundaries(NoFailpoints):
    """What a test does when a point is reached: once, on the daemon's loop, while the execution waits for it."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, Act]] = {}
        self._syncing: dict[str, Act] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._failed: Exception | None = None

    def at(self, point: str, act: Act, *, nth: int = 1) -> None:
        """At the ``nth`` time from now on. ``STAGE:before|after``; around a commit ``:ordering|ordered``."""
        self._waiting[point] = (nth, act)

    def during(self, point: str, act: Act) -> None:
        """Inside a commit (``STAGE:written|flushed|headed``): its sync takes until the act has ended, and nothing
        that is ordered meanwhile is durable before it."""
        self._syncing[point] = act

    def reach_blocking(self, point: str) -> None:
        """From the committer's thread."""
        if (act := self._syncing.pop(point, None)) is not None:
            assert self.loop is not None
            asyncio.run_coroutine_threadsafe(_run(act), self.loop).result(60)

    def clear(self) -> list[str]:
        """Forgets the points that were not reached, and names them. Raises what an act raised."""
        waiting, self._waiting = {**self._waiting, **self._syncing}, {}
        self._syncing = {}
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        return [*waiting]

    async def reach(self, point: str) -> None:
        """From the stages."""
        if point not in self._waiting:
            return
        left, act = self._waiting.pop(point)
        if left > 1:
            self._waiting[point] = (left - 1, act)
            return
        try:
            await act()
        except Exception as failed:
            self._failed = failed
            raise

    def watch(self, store: Any) -> None:
        """The points around the ordering of a commit: what is ordered is decided, and not yet durable."""
        commit = store.commit

        async def watched(*arguments: Any, label: str = "", **more: Any) -> Any:
            await self.reach(f"{label}:ordering")
            ticket = await commit(*arguments, label=label, **more)
            await self.reach(f"{label}:ordered")
            return ticket

        store.commit = watched


async def _run(act: Act) -> None:
    await act()


@dataclass
class Machine:
    """A machine's clocks: the real ones, and what was added by hand (seconds).

    ``passed`` is time for all of them, ``asleep`` for all but the monotonic one, ``set_by`` moves the wall clock alone.
    """

    passed: float = 0.0
    asleep: float = 0.0
    set_by: float = 0.0

    def clock(self, elapsed: Callable[[], float]) -> SystemClock:
        """In place of ``SystemClock`` in the daemon."""
        assert elapsed == self.since_boot
        return SystemClock(self._wall, self.monotonic, elapsed)

    def _wall(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.passed + self.asleep + self.set_by)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic() + self.passed

    def since_boot(self) -> float:
        """Seconds, in place of ``since_boot`` in the daemon."""
        return since_boot() + self.passed + self.asleep


@dataclass
class Mutable:
    """The maps of a configuration as a reload would change them under the running daemon."""

    principals: dict[str, Any] = field(default_factory=dict)
    contracts: dict[tuple[str, str], Any] = field(default_factory=dict)

    def load(self, config: Path) -> Any:
        """In place of ``load_checked``."""
        loaded = daemon.load_checked(config)
        self.principals, self.contracts = dict(loaded.principals), dict(loaded.contracts)
        return dataclasses.replace(loaded, principals=self.principals, contracts=self.contracts)


class StagedSite(LocalSite):
    """``boundaries``, ``machine`` and ``configured`` are the running daemon's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.boundaries = Boundaries()
        self.machine = Machine()
        self.configured = Mutable()

    def start(self, *arguments: Any, **more: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(daemon, "_failpoints", lambda _: self.boundaries)
            patch.setattr(daemon, "SystemClock", self.machine.clock)
            patch.setattr(daemon, "since_boot", self.machine.since_boot)
            patch.setattr(daemon, "GRACE_SECONDS", 1.0)
            patch.setattr(local, "load_checked", self.configured.load)
            patch.setattr(McpPlugin, "open", lambda _, context: McpAdapter(context, self.machine.monotonic))
            super().start(*arguments, **more)
        self.boundaries.watch(self.parts.store)
        self.boundaries.loop = self._loop

    @classmethod
    @contextlib.contextmanager
    def serving(cls, payments: PaymentsServer, contracts: Mapping[str, Any], **clocks: int) -> Iterator[StagedSite]:
        """A running one; two owners must approve what ``refund.pair`` is about, and no sweep interferes."""
        with cls.make() as made:
            made.configure(
                payments.url,
                contracts={**contracts, "refund.pair": PAIR},
                daemon={"clocks": {**LONG_LEASE, "sweep_seconds": 240, **clocks}},
                upstream=PATIENT_BREAKER,
            )
            made.edit_policy("decision.rego", *TWO_APPROVERS)
            for tests in (made.config.parent / "policy").rglob("*_test.rego"):
                tests.unlink()  # they would run at each reload
            made.pin()
            made.start()
            yield made

    @property
    def parts(self) -> Any:
        """Of the running daemon."""
        assert self.daemon is not None
        return self.daemon.parts


def told(site: Site, call: Call) -> Answer | CallError:
    """What the agent is told: the answer, or the refusal."""
    with site.client() as agent:
        try:
            return agent.execute(call)
        except CallError as error:
            return error
