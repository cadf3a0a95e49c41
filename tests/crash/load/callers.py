"""Callers who repeat themselves as the client's documentation says, and the people who work for them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kblockd.client import Answer, ApprovalPending, AsyncClient, CallError, Completed, Denied, Held, UpstreamError
from kblockd.client.errors import NETWORK_ERROR
from kblockd.domain.outcome import Finding
from tests.crash.load.history import Given, History
from tests.crash.load.plan import Plan, Wanted
from tests.crash.load.provider import AMOUNT, Provider

CLOSED = (Completed, UpstreamError, Denied)
PAUSE_SECONDS = 0.1
AWAY_SECONDS = 0.4
LEAST_DEEDS = 4  # so that what a short campaign has in it follows from its seed and not from the machine


class Desk:
    """Somebody who is told of what waits, and tries each until it is acknowledged or refused for good."""

    def __init__(self, act: Callable[[str], Awaitable[None]]) -> None:
        self._act = act
        self._waiting: set[str] = set()
        self._done: set[str] = set()

    def tell(self, identifier: str) -> None:
        """Of one more, or of one more time."""
        if identifier not in self._done:
            self._waiting.add(identifier)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            for one in sorted(self._waiting):
                try:
                    await self._act(one)
                except CallError as error:
                    if error.outcome_unknown or error.retryable:
                        continue
                self._waiting.discard(one)
                self._done.add(one)
            await asyncio.sleep(PAUSE_SECONDS / 2)


@dataclass
class People:
    """An approver who reads and decides, and an operator who looks into the provider's books."""

    plan: Plan
    provider: Provider
    history: History
    lead: AsyncClient
    operator: AsyncClient
    approvals: Desk = field(init=False)
    held: Desk = field(init=False)
    cases: dict[str, tuple[str, str]] = field(default_factory=dict)  # order and class of executions that are held

    def __post_init__(self) -> None:
        self.approvals, self.held = Desk(self._decide), Desk(self._resolve)

    def hear(self, order: str, answer: Answer) -> None:
        """What a caller learnt that somebody else must act on."""
        if isinstance(answer, ApprovalPending) and answer.state == "pending_approval":
            self.approvals.tell(answer.approval_id)
        if isinstance(answer, Held):
            self.cases[answer.execution_id] = (order, answer.result_class)
            self.held.tell(answer.execution_id)

    async def _decide(self, approval_id: str) -> None:
        shown = await self.lead.approval(approval_id)
        verdict = "deny" if self.plan.refuses(shown.summary) else "approve"
        await self.lead.decide(
            approval_id,
            action_sha256=shown.action_sha256,
            presented_sha256=shown.presented_sha256,
            verdict=verdict,
            reason="as agreed",
        )
        self.history.decided.append((approval_id, verdict))

    async def _resolve(self, execution_id: str) -> None:
        order, result_class = self.cases[execution_id]
        finding = found(self.provider.amounts(order), result_class)
        await self.operator.resolve(execution_id, finding, "seen in the provider's books")
        self.history.resolved.append((execution_id, str(finding)))


def found(amounts: Sequence[str], result_class: str) -> Finding:
    """Another amount than was asked for is neither a success nor an absence."""
    if not amounts:
        return Finding.ABSENT
    judged = result_class == "failed_after_side_effect"
    return Finding.PRESENT if judged or list(amounts) == [AMOUNT] else Finding.UNPROVABLE


class Caller:
    """One after the other, each deed until its end is known; now and then a look back at an earlier one."""

    def __init__(self, plan: Plan, number: int, client: AsyncClient, people: People, heard: asyncio.Event) -> None:
        self._wanted: Iterator[Wanted] = plan.wanted(number)
        self._dice = random.Random(f"{plan.seed}-caller-{number}")
        self._client = client
        self.people = people
        self._heard = heard
        self.closed: list[Wanted] = []

    async def run(self, draining: asyncio.Event) -> None:
        """Begins nothing new once it is to end and has had its least number of deeds."""
        deeds = 0
        while deeds < LEAST_DEEDS or not draining.is_set():
            deeds += 1
            await self.settle(next(self._wanted))
            if self.closed and self._dice.random() < 0.2:
                await self.settle(self._dice.choice(self.closed))
            await asyncio.sleep(self._dice.uniform(0.0, PAUSE_SECONDS))

    async def settle(self, wanted: Wanted) -> None:
        """The identical call, again and again, until it is closed or refused for good."""
        self.people.history.asked.add(wanted.order)
        while True:
            call = wanted.call(self._dice.choice((0.0, 5.0, 5.0)))
            asked_at = time.time()
            try:
                answer = await self._client.execute(call)
                if isinstance(answer, ApprovalPending):
                    self._take(wanted, answer, asked_at)
                    answer = await self._client.wait_for_approval(answer)
            except CallError as error:
                self._refused(wanted, error, asked_at)
                if not (error.outcome_unknown or error.retryable):
                    return
                pause = AWAY_SECONDS if error.reason == NETWORK_ERROR else PAUSE_SECONDS
                await asyncio.sleep(self._dice.uniform(0.5, 1.5) * (error.retry_after_seconds or pause))
                continue
            self._take(wanted, answer, asked_at)
            if isinstance(answer, CLOSED):
                self.closed.append(wanted)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, wanted: Wanted, answer: Answer, asked_at: float) -> None:
        self._heard.set()
        self.people.hear(wanted.order, answer)
        self.people.history.given.append(
            Given(
                order=wanted.order,
                kind=type(answer).__name__,
                asked_at=asked_at,
                got_at=time.time(),
                execution=answer.execution_id,
                state=answer.state,
                result_class=answer.result_class,
                reason=answer.code,
                detail=answer.detail,
                executed=answer.executed,
                approval=answer.approval_id,
                action=answer.action_sha256,
                result=answer.result_dsse,
                receipt=answer.receipt_dsse,
                proof=answer.receipt_proof,
            )
        )

    def _refused(self, wanted: Wanted, error: CallError, asked_at: float) -> None:
        if error.reason == NETWORK_ERROR:
            self.people.history.silent[error.reason] += 1
            return
        self._heard.set()
        self.people.history.given.append(
            Given(
                order=wanted.order,
                kind=type(error).__name__,
                asked_at=asked_at,
                got_at=time.time(),
                execution=error.execution_id,
                reason=error.reason,
                detail=error.message,
                executed=error.executed,
                refused=True,
                retryable=error.outcome_unknown or error.retryable,
            )
        )
