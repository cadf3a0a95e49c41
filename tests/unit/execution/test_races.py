"""Back to 5 after a race: at once, then after a pause; three times."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.errors import Aborted, Reason
from kblockd.execution import pipeline
from kblockd.execution.action import Run
from kblockd.execution.preflight import Raced


class Stage5To9:
    """Loses as many races as told; notes what happened in its order."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.story: list[str] = []
        self.parts: Any = SimpleNamespace(clock=self, leases=self)

    async def __call__(self, parts: Any, attempt: Run) -> str:
        tries = self.story.count("lost")
        if tries == self.lost:
            return "claimed"
        self.story.append("lost")
        raise Raced

    def drop(self, execution_id: str) -> None:
        self.story.append("drop")

    async def sleep(self, seconds: float) -> None:
        self.story.append(f"sleep {seconds:g}")


def attempt() -> Run:
    """One whose action is only named."""
    action: Any = SimpleNamespace(execution_id="exe_1")
    journal: Any = None
    return Run(action, journal, attempt=1, again=False, described_at=dt.datetime.now(dt.UTC))


async def test_what_keeps_changing_is_waited_out_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stage5To9(lost=2)
    monkeypatch.setattr(pipeline, "_revalidate_and_consume", stages)
    claimed: Any = await pipeline.claim_effect(stages.parts, attempt())
    assert claimed == "claimed"
    assert stages.story == ["lost", "drop", "lost", "drop", "sleep 0.1"]


async def test_the_third_race_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stage5To9(lost=9)
    monkeypatch.setattr(pipeline, "_revalidate_and_consume", stages)
    with pytest.raises(Aborted) as refused:
        await pipeline.claim_effect(stages.parts, attempt())
    assert (refused.value.reason, refused.value.retryable) == (Reason.CONFLICT, True)
    assert stages.story[-2:] == ["lost", "drop"]
    assert stages.story.count("lost") == 3
