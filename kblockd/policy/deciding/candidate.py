"""A candidate revision beside the one in force: it is asked every question that was answered, and changes nothing.

Replaying the past does not show what tomorrow's calls would meet. The candidate gets a question only after its answer,
one at a time, and on an engine of its own. What waits is bounded, and what does not fit is skipped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from kblockd.admission.offload import INLINE_BYTES, offload, size_of
from kblockd.domain.clock import Clock, rfc3339
from kblockd.domain.principal import View
from kblockd.domain.values import value_type
from kblockd.policy.deciding import floor, verdicts
from kblockd.policy.deciding.engine import Decision, PolicyEngine, PolicyFailure, PolicyStatus
from kblockd.policy.deciding.floor import Floors
from kblockd.policy.deciding.verdicts import Verdict

MAX_WAITING: Final = 64
"""Questions; one with an input above ``INLINE_BYTES`` counts as ``_LARGE`` of them."""
MAX_DIFFERENCES: Final = 200
MAX_TEXT: Final = 500  # characters of a decision in a difference
_LARGE: Final = 16

_log = logging.getLogger(__name__)
_ABOUT: Final[ContextVar[tuple[str, str]]] = ContextVar("kblockd_question_about", default=("", ""))


def about(action_sha256: str, execution_id: str) -> None:
    """Names the execution of this task's questions: the policy protocol carries none."""
    _ABOUT.set((action_sha256, execution_id))


@value_type(frozen=True, slots=True)
class CandidateDifference:
    """``in_force`` and ``candidate`` are what follows from each answer, with its reason codes; ``at`` is RFC 3339.

    ``revision`` is the one in force. ``execution`` is empty for a question about none; ``decision_id`` is empty where
    the revision in force gave no decision. ``tenant`` and ``agent`` are the caller's, for the filter of a ``View``.
    """

    at: str
    tenant: str
    agent: str
    execution: str
    entrypoint: str
    revision: str
    decision_id: str
    in_force: str
    candidate: str


Counted = tuple[str, str, str]
"""Tenant and id of the caller, and what came of the question: a name of ``Comparison``."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts since the candidate was set, and its newest differences, the oldest first.

    By caller, because a count tells a candidate's author something about each call in it.
    """

    counts: Mapping[Counted, int]
    differences: tuple[CandidateDifference, ...]

    def within(self, view: View) -> Comparison:
        """What a caller with this view may know of it."""
        counts = {counted: number for counted, number in self.counts.items() if view.shows(*counted[:2])}
        return Comparison(counts, tuple(each for each in self.differences if view.shows(each.tenant, each.agent)))

    @property
    def same(self) -> int:
        """The same would follow, for the same reasons."""
        return self._sum("same")

    @property
    def changed(self) -> int:
        """Something else would follow."""
        return self._sum("changed")

    @property
    def other_reasons(self) -> int:
        """The same would follow, for other reasons."""
        return self._sum("other_reasons")

    @property
    def failed(self) -> int:
        """Those of ``changed`` for which the candidate gave no decision."""
        return self._sum("failed")

    @property
    def skipped(self) -> int:
        """Not compared: too many waited, or the engine in force failed, which says nothing of its revision."""
        return self._sum("skipped")

    def _sum(self, name: str) -> int:
        return sum(number for counted, number in self.counts.items() if counted[2] == name)


@value_type(frozen=True, slots=True)
class _Question:
    """``answer`` is the decision in force, or its failure."""

    at: str
    execution: str
    entrypoint: str
    document: Mapping[str, Any]
    answer: Decision | PolicyFailure
    weight: int


class Candidate:
    """Compares the answers of ``engine``, which the caller closes, with those in force."""

    def __init__(self, engine: PolicyEngine, floors: Floors, clock: Clock) -> None:
        self._engine = engine
        self._floors = floors
        self._clock = clock
        self._waiting: deque[_Question] = deque()
        self._weight = 0
        self._arrived = asyncio.Event()
        self._counts: Counter[Counted] = Counter()
        self._differences: deque[CandidateDifference] = deque(maxlen=MAX_DIFFERENCES)

    def offer(self, entrypoint: str, document: Mapping[str, Any], answer: Decision | PolicyFailure) -> None:
        """Queues an answered question, or counts it as skipped. Never blocks."""
        weight = _LARGE if size_of(_without_contract(document)) > INLINE_BYTES else 1
        if self._weight + weight > MAX_WAITING or (isinstance(answer, PolicyFailure) and answer.passing):
            self._count(document, "skipped")
            return
        at, execution = rfc3339(self._clock.now()), _execution(document)
        self._waiting.append(_Question(at, execution, entrypoint, document, answer, weight))
        self._weight += weight
        self._arrived.set()

    def comparison(self) -> Comparison:
        """So far."""
        return Comparison(dict(self._counts), tuple(self._differences))

    async def run(self) -> None:
        """Asks what was offered, until cancelled."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                question = self._waiting.popleft()
                self._weight -= question.weight
                try:
                    await self._compare(question)
                except Exception:  # a defect here must neither end the comparison nor reach a decision
                    _log.exception("a question could not be compared with the candidate")
                    self._count(question.document, "skipped")
            self._arrived.clear()

    async def _compare(self, question: _Question) -> None:
        answer: Decision | PolicyFailure
        try:
            answer = await self._engine.evaluate(question.entrypoint, question.document)
        except PolicyFailure as failure:
            answer = failure
        old, new = await self._verdict(question, question.answer), await self._verdict(question, answer)
        if old == new:
            self._count(question.document, "same")
            return
        changed = old.consequence != new.consequence
        self._count(question.document, "changed" if changed else "other_reasons")
        if changed and isinstance(answer, PolicyFailure):
            self._count(question.document, "failed")
        self._differences.append(_difference(question, old, new))

    def _count(self, document: Mapping[str, Any], name: str) -> None:
        self._counts[(*_caller(document), name)] += 1

    async def _verdict(self, question: _Question, answer: Decision | PolicyFailure) -> Verdict:
        if isinstance(answer, PolicyFailure):
            return verdicts.of_failure(answer)
        return await offload(size_of(answer.result), self._of_decision, question, answer)

    def _of_decision(self, question: _Question, answer: Decision) -> Verdict:
        tier, past_return = floor.bounds(question.document)
        return verdicts.of(question.entrypoint, answer.result, past_return=past_return, floor=self._floors.get(tier))


class ComparingEngine:
    """A ``PolicyEngine`` in front of another; offers each answered question to ``candidate``, if there is one."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.candidate: Candidate | None = None

    def status(self) -> PolicyStatus:
        """Never blocks."""
        return self._engine.status()

    def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Coroutine[Any, Any, Decision]:
        """See ``PolicyEngine``. Without a candidate the other engine's own coroutine, at no cost."""
        evaluate = self._engine.evaluate if self.candidate is None else self._compared
        return evaluate(entrypoint, document)

    async def close(self) -> None:
        """Closes the engine behind it."""
        await self._engine.close()

    async def _compared(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        try:
            decision = await self._engine.evaluate(entrypoint, document)
        except PolicyFailure as failure:
            self._offer(entrypoint, document, failure)
            raise
        self._offer(entrypoint, document, decision)
        return decision

    def _offer(self, entrypoint: str, document: Mapping[str, Any], answer: Decision | PolicyFailure) -> None:
        if self.candidate is None:
            return
        try:
            self.candidate.offer(entrypoint, document, answer)
        except Exception:  # a defect in the comparison must not fail a decision that was made
            _log.exception("a question could not be offered to the candidate")


def _execution(document: Mapping[str, Any]) -> str:
    digest, execution = _ABOUT.get()
    action = document.get("action")
    return execution if isinstance(action, Mapping) and action.get("digest") == digest else ""


def _caller(document: Mapping[str, Any]) -> tuple[str, str]:
    """Tenant and id."""
    principal = document.get("principal") or {}
    return str(principal.get("tenant", "")), str(principal.get("id", ""))


def _without_contract(document: Mapping[str, Any]) -> list[Any]:
    """The contract is shared by all questions about its action."""
    return [value for name, value in document.items() if name != "contract"]


def _difference(question: _Question, old: Verdict, new: Verdict) -> CandidateDifference:
    answer = question.answer
    return CandidateDifference(
        question.at,
        *_caller(question.document),
        question.execution,
        question.entrypoint,
        answer.revision,
        answer.decision_id if isinstance(answer, Decision) else "",
        old.with_reasons()[:MAX_TEXT],
        new.with_reasons()[:MAX_TEXT],
    )
