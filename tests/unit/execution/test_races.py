"""Back to 5 after a race: at once, then after a pause; three times. Behind the consumption until the deadline."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import Aborted, FailedPrecondition, Reason, Unavailable
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


START = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
FOR_THE_CALLER = "Nothing was executed or consumed; the action stays approved."


class Reentry:
    """Stages 5 to 9 behind a consumption: answers as told, then again and again the last; time is what was slept.

    ``parts`` and ``journal`` in one, with a deadline ten seconds from ``START``.
    """

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.slept = 0.0
        self.looks = 0
        self.marked = False
        self.parts: Any = SimpleNamespace(clock=self, leases=self)

    async def __call__(self, parts: Any, attempt: Run) -> str:
        self.looks += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def row(self, parts: Any) -> dict[str, str]:
        return {"deadline_at": rfc3339(START + dt.timedelta(seconds=10))}

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.slept)

    def monotonic(self) -> float:
        return self.slept

    def drop(self, execution_id: str) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def claim(self, monkeypatch: pytest.MonkeyPatch, deadline: float = 99.0) -> Any:
        monkeypatch.setattr(pipeline, "_revalidate_and_consume", self)
        action: Any = SimpleNamespace(execution_id="exe_1")
        journal: Any = self
        return await pipeline.claim_effect(self.parts, Run(action, journal, attempt=1, again=True, deadline=deadline))


def unavailable(reason: Reason = Reason.POLICY_DOWN) -> Unavailable:
    """What passes by itself."""
    return Unavailable(reason, f"it does not answer. {FOR_THE_CALLER}")


async def test_ups_16_behind_the_consumption_races_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """UPS-16, C27: the approval is used, so giving up after three would burn it."""
    stages = Reentry(*[Raced()] * 9, "claimed")
    assert await stages.claim(monkeypatch) == "claimed"
    assert stages.looks == 10


@pytest.mark.parametrize("deadline", [99.0, 3.0], ids=["of-the-ledger", "monotonic"])
async def test_ups_16_what_passes_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, deadline: float
) -> None:
    """UPS-16: whichever clock says that it is over; the reason is what was waited for, told once."""
    stages = Reentry(unavailable())
    with pytest.raises(Unavailable) as refused:
        await stages.claim(monkeypatch, deadline)
    assert refused.value.reason == Reason.POLICY_DOWN
    assert stages.slept == min(10.0, deadline)
    assert caplog.text.count("waiting: POLICY_DOWN") == 1


async def test_a_refusal_that_does_not_pass_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """APV-01, APV-02."""
    stages = Reentry(FailedPrecondition(Reason.APPROVAL_NOT_VALID, "it has ended."))
    with pytest.raises(FailedPrecondition):
        await stages.claim(monkeypatch)
    assert (stages.looks, stages.slept) == (1, 0.0)


async def test_past_the_deadline_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """R572."""
    stages = Reentry("claimed")
    stages.slept = 10.0
    with pytest.raises(FailedPrecondition) as refused:
        await stages.claim(monkeypatch)
    assert (refused.value.reason, stages.looks) == (Reason.DEADLINE_PASSED, 0)


@pytest.mark.parametrize(("marked", "known"), [(False, "the call was not made"), (True, "no further attempt was made")])
def test_what_is_sealed_does_not_say_that_the_action_stays_approved(marked: bool, known: str) -> None:
    """The refusals of 5 to 8 are worded for a caller who has lost nothing."""
    journal: Any = SimpleNamespace(marked=marked)
    action: Any = SimpleNamespace(execution_id="exe_1")
    ending = pipeline.refused(Run(action, journal, attempt=1, again=True), unavailable())
    assert ending.detail == f"it does not answer. The action was consumed, and {known}."
