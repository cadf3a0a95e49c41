"""What the sweep closes by age, and what it has to have done before."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.clock import rfc3339
from kblockd.domain.states import ResultClass, State
from kblockd.execution import sweeper
from kblockd.execution.recover import Adrift
from kblockd.execution.supervisor import Supervisor
from kblockd.execution.sweeper import UNKNOWN, Sweeper

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


class World:
    """One execution that was consumed an hour ago, and nobody runs; ``story`` is what the sweeps did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, marker: int) -> None:
        claimed_at = rfc3339(NOW - dt.timedelta(hours=1))
        self.row = SimpleNamespace(state=State.EXECUTING, marker=marker, claimed_at=claimed_at)
        self.story: list[str] = []
        self.adrift: set[str] = set()
        self.open = [(("open", "exe_1"), 7, SimpleNamespace(execution="exe_1"))]
        parts: Any = SimpleNamespace(
            store=self,
            leases=SimpleNamespace(live=lambda execution_id: False),
            clock=SimpleNamespace(now=lambda: NOW),
            clocks=SimpleNamespace(close_after_seconds=660),
        )
        supervisor: Any = self
        self.sweeper = Sweeper(parts, supervisor)
        monkeypatch.setattr(sweeper, "expire_if_due", self._current)
        monkeypatch.setattr(self.sweeper, "_close", self._closed)

    async def scan(self, *_: Any, **__: Any) -> list[Any]:
        return self.open

    def running(self, execution_id: str) -> None:
        return None

    async def take_up(self, execution_id: str) -> bool:
        self.story.append("taken up")
        return True

    async def sweep(self, times: int) -> list[str]:
        for _ in range(times):
            await self.sweeper.sweep()
        return self.story

    async def _current(self, *_: Any) -> tuple[int, Any]:
        return 7, self.row

    async def _closed(self, execution_id: str) -> None:
        self.story.append("closed")


async def test_ups_15_a_run_that_did_not_come_to_look_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """UPS-15: taken up, and the run failed on its way (a busy target, say): the next sweep takes it up again."""
    world = World(monkeypatch, marker=1)
    assert await world.sweep(2) == ["taken up", "taken up"]
    world.adrift.add("exe_1")
    assert await world.sweep(1) == ["taken up", "taken up", "closed"]


async def test_what_never_comes_to_look_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would ever end it: only what is held or sealed can be resolved."""
    world = World(monkeypatch, marker=1)
    assert await world.sweep(4) == ["taken up"] * 3 + ["closed"]
    world.open = []
    await world.sweep(1)
    assert (world.sweeper._taken_up, world.adrift) == ({}, set())


async def test_what_was_never_sent_needs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """R460."""
    assert await World(monkeypatch, marker=0).sweep(1) == ["closed"]


async def test_ups_15_a_look_without_a_proof_is_one() -> None:
    """UPS-15: what its run left is what the sweep goes by; the next run begins anew."""
    parts: Any = SimpleNamespace(late=SimpleNamespace(), leases=SimpleNamespace())
    supervisor = Supervisor(parts, new_trace=lambda: None, on_end=lambda trace: None)  # type: ignore[arg-type,return-value]
    journal: Any = None

    async def run(end: Any) -> Any:
        return end

    await supervisor._until_ended("exe_1", journal, run(None))
    assert supervisor.adrift == set()
    await supervisor._until_ended("exe_1", journal, run(Adrift(journal)))
    assert supervisor.adrift == {"exe_1"}


@pytest.mark.parametrize("doubted", [True, False])
@pytest.mark.parametrize("acted", [True, False])
async def test_c3_no_closure_says_absent_over_a_doubt(
    monkeypatch: pytest.MonkeyPatch, doubted: bool, acted: bool
) -> None:
    """C3, UPS-07: a lost attempt, or a late answer of whichever attempt that says that it was done."""
    sealed: list[Any] = []
    row = SimpleNamespace(state=State.EXECUTING, marker=2, phase="claimed", attempt=2, result_class="", finding=None)

    async def found(*_: Any) -> Any:
        return SimpleNamespace(), row

    async def seal(_: Any, journal: Any, ending: Any) -> None:
        sealed.append(ending)

    def says(answer: bool) -> Any:
        async def told(*_: Any) -> bool:
            return answer

        return told

    monkeypatch.setattr(sweeper, "journal_of", found)
    monkeypatch.setattr(sweeper, "seal_with", seal)
    monkeypatch.setattr(sweeper.history, "doubted", says(doubted))
    monkeypatch.setattr(sweeper.history, "acted", says(acted))
    nobody: Any = SimpleNamespace()
    await Sweeper(nobody, nobody)._close("exe_1")
    [ending] = sealed
    expected = UNKNOWN[0] if doubted or acted else ResultClass.FAILED_BEFORE_SIDE_EFFECT
    assert ending.result_class is expected
