"""Back to 5 after a race: at once, then after a pause; three times. Behind the consumption until the deadline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.answer import Fault, Unreadable
from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import Aborted, FailedPrecondition, KblockError, Left, Reason, Unavailable
from kblockd.domain.states import ResultClass
from kblockd.execution import pins, pipeline
from kblockd.execution.action import Run
from kblockd.execution.preflight import Raced
from kblockd.execution.reading import unread
from kblockd.execution.recover import Ending, Hold
from kblockd.execution.void import TargetMoved
from kblockd.upstream.adapter import Outcome, Sent


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

    def row(self, parts: Any) -> Any:
        return SimpleNamespace(deadline_at=rfc3339(START + dt.timedelta(seconds=10)))

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
    return Unavailable(reason, "it does not answer.", Left.APPROVED)


def refusal_of(refuses: Callable[[], None]) -> KblockError:
    """What it raises."""
    with pytest.raises(KblockError) as refused:
        refuses()
    return refused.value


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


async def test_ups_16_calls_that_are_not_begun_do_not_fill_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """UPS-16, AGT-06: an agent whose own calls hold its places, and a time-out of a millisecond: each time round leaves
    three records, so there is a second between two of them."""
    asked: list[float] = []
    slept: list[float] = []
    dropped: list[str] = []

    async def claim_effect(parts: Any, attempt: Run) -> Any:
        asked.append(sum(slept))
        return SimpleNamespace(run=attempt, deadline=99.0)

    async def stays(parts: Any, given: Any) -> Any:
        return given

    async def dispatch(parts: Any, claim: Any) -> Any:
        return SimpleNamespace(begun=claim.run.unbegun == 3, run=claim.run)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    for name, stage in (
        ("claim_effect", claim_effect),
        ("mark_sent", stays),
        ("dispatch", dispatch),
        ("classify", stays),
    ):
        monkeypatch.setattr(pipeline, name, stage)
    parts: Any = SimpleNamespace(
        late=SimpleNamespace(acted=lambda execution_id: False),
        leases=SimpleNamespace(drop=dropped.append),
        clock=SimpleNamespace(sleep=sleep),
    )
    done: Any = await pipeline.act(parts, attempt())
    assert (done.run.attempt, done.run.unbegun) == (4, 3)
    assert asked == [0.0, 1.0, 2.0, 3.0]
    assert dropped == ["exe_1"] * 3


OF_THE_TARGET: dict[str, KblockError] = {
    "precondition": FailedPrecondition(Reason.PRECONDITION_FAILED, "it does not hold."),
    "moved": TargetMoved("'1'", "'2'", "exe_1"),
    "pinned": refusal_of(lambda: pins.check_version("1", "2", "exe_1")),
    "unreadable": unread(Outcome(Sent.LOST, unreadable=Unreadable(Fault.INTEGER, "/version")), Left.APPROVED),
    "gone": unread(Outcome(Sent.ANSWERED, is_error=True, code="HTTP_404"), Left.APPROVED),
}
OF_SOMETHING_ELSE: dict[str, KblockError] = {
    "policy": FailedPrecondition(Reason.POLICY_CHANGED, "it would not decide so."),
    "down": unread(Outcome(Sent.ANSWERED, is_error=True, code="HTTP_503"), Left.APPROVED),
    "lost": unread(Outcome(Sent.LOST, code="CONNECTION_LOST"), Left.APPROVED),
}


@pytest.mark.parametrize("doubted", [True, False])
@pytest.mark.parametrize("refusal", [*OF_THE_TARGET, *OF_SOMETHING_ELSE])
async def test_ups_07_what_the_target_shows_may_be_the_effect_of_a_lost_attempt(
    monkeypatch: pytest.MonkeyPatch, refusal: str, doubted: bool
) -> None:
    """UPS-07: its other version, its absence, or what can no longer be read of it; however the refusal is worded."""

    async def in_doubt(*_: Any) -> bool:
        return doubted

    monkeypatch.setattr(pipeline.history, "doubted", in_doubt)
    journal: Any = SimpleNamespace(marked=True, written=None, row=lambda parts: None)
    action: Any = SimpleNamespace(execution_id="exe_1")
    parts: Any = SimpleNamespace(late=SimpleNamespace(acted=lambda execution_id: False))
    attempt = Run(action, journal, attempt=2, again=True)
    ended = await pipeline._given_up(parts, attempt, {**OF_THE_TARGET, **OF_SOMETHING_ELSE}[refusal])
    if doubted and refusal in OF_THE_TARGET:
        assert ended == Hold(attempt, "TARGET_CHANGED", keep_lock=True, result_class=ResultClass.UNKNOWN_OUTCOME)
    else:
        assert isinstance(ended, Ending)


@pytest.mark.parametrize("left", Left)
def test_a_refusal_says_what_it_leaves_and_can_be_told_without(left: Left) -> None:
    """One sentence for each, written once."""
    refusal = Unavailable(Reason.POLICY_DOWN, "it does not answer.", left)
    assert (refusal.what, refusal.message) == ("it does not answer.", f"it does not answer. {left}")
    assert refusal.message == str(refusal)
    assert Unavailable(Reason.POLICY_DOWN, "it does not answer.").message == "it does not answer."


@pytest.mark.parametrize(("marked", "known"), [(False, "the call was not made"), (True, "no further attempt was made")])
def test_what_is_sealed_does_not_say_that_the_action_stays_approved(marked: bool, known: str) -> None:
    """The refusals of 5 to 8 are worded for a caller who has lost nothing."""
    journal: Any = SimpleNamespace(marked=marked)
    action: Any = SimpleNamespace(execution_id="exe_1")
    ending = pipeline.refused(Run(action, journal, attempt=1, again=True), unavailable())
    assert ending.detail == f"it does not answer. The action was consumed, and {known}."
