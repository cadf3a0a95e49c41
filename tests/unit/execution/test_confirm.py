"""The last look-up before "nothing happened" is sealed: its wait for the target ends."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.values import Target
from kblockd.domain.states import ResultClass, State
from kblockd.execution import confirm
from kblockd.execution.action import Run
from kblockd.execution.leases import Leases
from kblockd.execution.recover import Ending, Hold

START = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
TARGET = Target("order", "o-1")


class Clock:
    """Moved by who sleeps."""

    slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


async def test_ups_07_a_target_that_stays_busy_is_waited_for_as_long_as_for_a_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """UPS-07: held then, as everything that could not be confirmed, and not for ever on its way."""

    async def doubted(*_: Any) -> bool:
        return True

    monkeypatch.setattr(confirm.history, "doubted", doubted)
    clock: Any = Clock()
    leases = Leases(clock, 1, 30.0, 10.0, 1.0)
    leases.acquire("exe_other", rows.target("acme", "shop", **{"type_": "order", "id_": "o-1"}))
    parts: Any = SimpleNamespace(clock=clock, leases=leases, clocks=SimpleNamespace(reconcile_seconds=60))
    journal: Any = SimpleNamespace(written=None, row=lambda parts: None)
    action: Any = SimpleNamespace(execution_id="exe_1", tenant="acme", upstream="shop", target=TARGET)
    run = Run(action, journal, attempt=2, again=True)
    ending = Ending(run, State.FAILED, ResultClass.FAILED_BEFORE_SIDE_EFFECT, "HTTP_409", "")
    held = await confirm.confirm(parts, ending)
    assert held == Hold(run, "ABSENCE_NOT_CONFIRMED", keep_lock=True, result_class=ResultClass.UNKNOWN_OUTCOME)
    assert clock.slept == 60
