"""A candidate revision is asked beside the one in force: its differences are kept, and it changes nothing."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kblockd.domain.errors import Reason
from kblockd.domain.principal import View
from kblockd.policy.deciding import Decision, PolicyFailure, PolicyStatus, verdicts
from kblockd.policy.deciding.candidate import (
    MAX_DIFFERENCES,
    MAX_TEXT,
    MAX_WAITING,
    Candidate,
    ComparingEngine,
    about,
)
from kblockd.policy.deciding.entrypoints import AUTHZ, DECISION
from kblockd.policy.deciding.floor import Floor
from tests.contract.policy.support import RealClock

DIGEST = "d" * 64


def effect(name: str, *codes: str) -> dict[str, Any]:
    return {
        "effect": name,
        "approvals": {"count": 1 if name == "require_approval" else 0, "roles": []},
        "observe_until": "",
        "reasons": [{"code": code, "message": "secret words"} for code in codes],
    }


def document(**more: Any) -> dict[str, Any]:
    return {
        "principal": {"id": "local:agent", "tenant": "acme"},
        "action": {"digest": DIGEST, "risk_tier": "low"},
        "contract": {"point_of_no_return": False},
        **more,
    }


class Scripted:
    """Gives the same answer to every question; a callable answer is awaited first."""

    def __init__(self, answer: Any, revision: str = "r1") -> None:
        self.answer = answer
        self.revision = revision
        self.asked = 0

    def status(self) -> PolicyStatus:
        return PolicyStatus("scripted", self.revision, True)

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        self.asked += 1
        answer = await self.answer() if callable(self.answer) else self.answer
        if isinstance(answer, BaseException):
            raise answer
        return Decision(entrypoint, answer, "scripted", self.revision, "decision_1", DIGEST, 5)

    async def close(self) -> None: ...


@asynccontextmanager
async def compared(
    in_force: Any, candidate: Any, floors: Mapping[str, Floor] | None = None
) -> AsyncIterator[tuple[ComparingEngine, Candidate]]:
    engine = ComparingEngine(Scripted(in_force))
    engine.candidate = Candidate(Scripted(candidate, "r2"), floors or {}, RealClock())
    running = asyncio.create_task(engine.candidate.run())
    try:
        yield engine, engine.candidate
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_another_effect_is_a_difference_by_execution() -> None:
    about(DIGEST, "exec_1")
    async with compared(effect("allow", "SMALL"), effect("deny", "FROZEN")) as (engine, candidate):
        decision = await engine.evaluate(DECISION, document())
        await settled()
        found = candidate.comparison()
    assert (decision.result["effect"], decision.revision) == ("allow", "r1")
    assert (found.changed, found.same, found.failed, found.skipped) == (1, 0, 0, 0)
    (difference,) = found.differences
    assert (difference.execution, difference.tenant, difference.agent) == ("exec_1", "acme", "local:agent")
    assert (difference.revision, difference.decision_id) == ("r1", "decision_1")
    assert (difference.in_force, difference.candidate) == ("effect=allow [SMALL]", "effect=deny [FROZEN]")
    assert "secret" not in repr(found)


async def test_the_same_effect_for_other_reasons_is_counted_by_itself() -> None:
    async with compared(effect("deny", "A"), effect("deny", "B")) as (engine, candidate):
        await engine.evaluate(DECISION, document())
        await settled()
        found = candidate.comparison()
    assert (found.changed, found.other_reasons, len(found.differences)) == (0, 1, 1)


async def test_the_same_answer_is_no_difference_and_words_are_not_compared() -> None:
    other = effect("deny", "A") | {"reasons": [{"code": "A", "message": "other words"}]}
    async with compared(effect("deny", "A"), other) as (engine, candidate):
        await engine.evaluate(DECISION, document())
        await settled()
        found = candidate.comparison()
    assert (found.same, found.differences) == (1, ())


@pytest.mark.parametrize("contract", [{"point_of_no_return": False}, {"point_of_no_return": True}])
async def test_what_code_makes_of_both_answers_is_compared(contract: dict[str, Any]) -> None:
    """Past a point of no return, or above the floor, both ask a person: nothing would change."""
    floors = {} if contract["point_of_no_return"] else {"low": Floor(1, ())}
    async with compared(effect("allow"), effect("require_approval"), floors) as (engine, candidate):
        await engine.evaluate(DECISION, document(contract=contract))
        await settled()
        assert candidate.comparison().same == 1


async def test_a_question_about_no_execution_names_none() -> None:
    about(DIGEST, "exec_1")
    yes = {"allow": True, "tenants": ["acme"], "agents": ["*"], "reasons": []}
    async with compared(yes, yes | {"allow": False}) as (engine, candidate):
        await engine.evaluate(AUTHZ, document(action=None))
        await settled()
        (difference,) = candidate.comparison().differences
    assert difference.execution == ""


@pytest.mark.parametrize(
    "failure",
    [PolicyFailure(Reason.POLICY_ERROR, "x"), PolicyFailure(Reason.POLICY_TIMEOUT, "x"), RuntimeError("a defect")],
    ids=["error", "timeout", "defect"],
)
async def test_a_candidate_that_raises_changes_nothing_for_the_decision(failure: Exception) -> None:
    async with compared(effect("allow"), failure) as (engine, candidate):
        for _ in range(3):
            assert (await engine.evaluate(DECISION, document())).result["effect"] == "allow"
        await settled()
        found = candidate.comparison()
    if isinstance(failure, PolicyFailure):
        assert (found.changed, found.failed) == (3, 3)
        assert found.differences[0].candidate == f"failure={failure.reason} []"
    else:
        assert found.skipped == 3


async def test_a_candidate_that_hangs_delays_no_decision_and_the_rest_is_skipped() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with compared(effect("allow"), never) as (engine, candidate):
        for _ in range(MAX_WAITING + 10):
            async with asyncio.timeout(1):
                assert (await engine.evaluate(DECISION, document())).result["effect"] == "allow"
            await asyncio.sleep(0)
        found = candidate.comparison()
        assert len(candidate._waiting) == MAX_WAITING
    assert (found.skipped, found.changed) == (9, 0)  # one is being asked


async def test_a_failure_in_force_stays_the_failure_and_is_compared() -> None:
    failure = PolicyFailure(Reason.POLICY_UNDEFINED, "no rule", revision="r1")
    async with compared(failure, effect("allow")) as (engine, candidate):
        with pytest.raises(PolicyFailure, match="no rule"):
            await engine.evaluate(DECISION, document())
        await settled()
        (difference,) = candidate.comparison().differences
    assert (difference.in_force, difference.decision_id) == ("failure=POLICY_UNDEFINED []", "")


@pytest.mark.parametrize("reason", [Reason.POLICY_DOWN, Reason.POLICY_TIMEOUT])
async def test_a_failing_engine_in_force_is_no_difference_of_the_revisions(reason: Reason) -> None:
    async with compared(PolicyFailure(reason, "busy", revision="r1"), effect("allow")) as (engine, candidate):
        with pytest.raises(PolicyFailure, match="busy"):
            await engine.evaluate(DECISION, document())
        await settled()
        found = candidate.comparison()
    assert (found.changed, found.skipped, found.differences) == (0, 1, ())


async def test_counts_and_differences_are_those_of_a_view() -> None:
    """A candidate may decide by what it reads in a call of another tenant: its author must not count the answers."""
    async with compared(effect("allow"), effect("deny")) as (engine, candidate):
        for tenant in ("acme", "other", "other"):
            await engine.evaluate(DECISION, document(principal={"id": "local:agent", "tenant": tenant}))
        await settled()
        found = candidate.comparison()
    mine = found.within(View(frozenset({"acme"}), frozenset({"*"})))
    assert (found.changed, mine.changed, [each.tenant for each in mine.differences]) == (3, 1, ["acme"])
    assert found.within(View(frozenset({"*"}), frozenset({"local:lead"}))).changed == 0


async def test_what_follows_from_a_long_answer_is_worked_out_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that answers with megabytes must not hold up those who decide: half a second for 4 MB of tenants."""
    threads = []
    of = verdicts.of

    def seen(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return of(*arguments, **named)

    monkeypatch.setattr(verdicts, "of", seen)
    long = {"allow": True, "tenants": ["acme"] * 10_000, "agents": ["*"], "reasons": []}
    async with compared(long | {"tenants": ["acme"]}, long) as (engine, candidate):
        await engine.evaluate(AUTHZ, document(action=None))
        async with asyncio.timeout(10):
            while not candidate.comparison().same:
                await asyncio.sleep(0.01)
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


async def test_memory_is_bounded() -> None:
    """Large inputs take more of the queue; differences are few and short, however many there are."""

    async def never() -> None:
        await asyncio.Event().wait()

    async with compared(effect("allow"), never) as (engine, candidate):
        for _ in range(20):
            await engine.evaluate(DECISION, document(args={"memo": "x" * 100_000}))
        held = list(candidate._waiting)
    assert len(held) <= 4
    roles = ["r" * 250] * 60
    asks = effect("require_approval") | {"approvals": {"count": 1, "roles": roles}}
    async with compared(effect("allow"), asks) as (engine, candidate):
        for _ in range(MAX_DIFFERENCES + 50):
            await engine.evaluate(DECISION, document())
            await settled()
        found = candidate.comparison()
    assert found.changed == MAX_DIFFERENCES + 50
    assert len(found.differences) == MAX_DIFFERENCES
    assert max(len(each.candidate) for each in found.differences) == MAX_TEXT
    assert sum(sys.getsizeof(each.candidate) for each in found.differences) < 200_000


async def test_a_defect_in_the_comparison_fails_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    async with compared(effect("allow"), effect("deny")) as (engine, candidate):
        monkeypatch.setattr(candidate, "_clock", None)
        assert (await engine.evaluate(DECISION, document())).result["effect"] == "allow"


async def test_without_a_candidate_nothing_is_kept() -> None:
    engine = ComparingEngine(Scripted(effect("allow")))
    assert (await engine.evaluate(DECISION, document())).revision == "r1"
    assert engine.status().revision == "r1"
