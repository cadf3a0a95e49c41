"""Keys: who loses a race, what makes no difference, and what is never forgotten."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.approvals.asked import state_at
from kblockd.client import Answer, AsyncClient, Call
from kblockd.client.answers import Completed, Denied, Held
from kblockd.client.errors import AlreadyExistsError
from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import FailedPrecondition
from kblockd.domain.ledger.rows import target
from kblockd.execution.consume import Claim
from kblockd.execution.decide import check_deadline, check_observed
from kblockd.execution.leases import Leases
from kblockd.execution.preflight import check_clock
from kblockd.execution.retention import InputRetention
from tests.integration.cases.calls import demo, execute
from tests.integration.cases.wire import send
from tests.integration.pipeline.local import effects, order, refund_in, run_approved
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

INSERT = "decide:ordering"
OTHERS = 30
YEAR = 366 * 86400.0


def winning(site: StagedSite, call: Call) -> list[Answer]:
    """What ``call`` is told, which passes between the lookup of the next call and its insert."""
    told: list[Answer] = []

    async def win() -> None:
        told.append(await asyncio.to_thread(execute, site, call))

    site.boundaries.at(INSERT, win)
    return told


def test_idm_09_who_loses_the_insert_gets_the_winners_result(staged: StagedSite, pay: PaymentsServer) -> None:
    """IDM-09: the winner has finished before the loser's insert conflicts: the same bytes, no error, one effect."""
    mine = order()
    told = winning(staged, demo(mine, mine))
    lost = execute(staged, demo(mine, mine))
    assert staged.boundaries.clear() == []
    [won] = told
    assert isinstance(won, Completed)
    assert isinstance(lost, Completed)
    assert (won.replayed, lost.replayed) == (False, True)
    same = ("execution_id", "result_dsse", "receipt_dsse", "output_json")
    assert [getattr(lost, name) for name in same] == [getattr(won, name) for name in same]
    assert len(effects(pay, mine)) == 1


def test_idm_10_who_loses_to_another_call_is_told_so_from_a_fresh_read(staged: StagedSite, pay: PaymentsServer) -> None:
    """IDM-10: the key was free when it was looked up, and belongs to another call at the insert: a mismatch, and never
    "in progress". (No retention takes a key away here, so this race is all that is left of the case.)"""
    mine = order()
    told = winning(staged, demo(mine, mine, "1.00"))
    with pytest.raises(AlreadyExistsError) as lost:
        execute(staged, demo(mine, mine))
    assert staged.boundaries.clear() == []
    assert (lost.value.reason, lost.value.execution_id) == ("IDEMPOTENCY_CONFLICT", told[0].execution_id)
    assert [effect["amount"] for effect in effects(pay, mine)] == ["1.00"]


def test_idm_13_another_trace_is_no_other_call(staged: StagedSite, pay: PaymentsServer) -> None:
    """IDM-13: the trace context is no part of what is asked for."""
    mine = order()
    traces = [f"00-{number * 32}-{number * 16}-01" for number in "12"]
    first, second = (send(staged, demo(mine, mine), metadata=(("traceparent", trace),)) for trace in traces)
    assert (first.replayed, second.replayed) == (False, True)
    assert second.result_dsse == first.result_dsse != b""
    assert len(effects(pay, mine)) == 1


def test_idm_15_idm_11_no_key_is_forgotten(staged: StagedSite, pay: PaymentsServer) -> None:
    """IDM-15, IDM-11: thirty other keys, a year, the retention and a restart later the finished key has its result,
    the denied one its denial, and the one whose outcome nobody knows still blocks."""
    finished, denied, unknown = order(), order(), order()
    orphan = refund_in("production", denied, key=denied, operation="payment.refund.orphan")
    before = execute(staged, demo(finished, finished))
    refused = execute(staged, orphan)
    pay.control(refuse=True)
    held = run_approved(staged, refund_in("blind", unknown, key=unknown))
    pay.control(refuse=False)
    assert isinstance(held, Held)
    asyncio.run(crowded(staged))
    staged.machine.asleep += YEAR
    assert staged.run(InputRetention(staged.parts.store, staged.parts.clock, 30).erase()) > OTHERS
    staged.restart()
    again = execute(staged, demo(finished, finished))
    assert (again.result_dsse, again.replayed) == (before.result_dsse, True)
    said = execute(staged, orphan)
    assert isinstance(said, Denied)
    assert (said.execution_id, said.code) == (refused.execution_id, refused.code)
    assert isinstance(execute(staged, refund_in("blind", unknown, key=unknown)), Held)
    for other in (demo(finished, finished, "2.00"), refund_in("blind", unknown, key=unknown, amount="2.00")):
        with pytest.raises(AlreadyExistsError):
            execute(staged, other)
    assert (len(effects(pay, finished)), effects(pay, unknown)) == (1, [])


async def crowded(site: StagedSite) -> None:
    """Other keys, each with an execution of its own."""
    async with AsyncClient(f"unix:{site.socket('agent')}") as agent:
        others = [order() for _ in range(OTHERS)]
        calls = [refund_in("production", one, key=one, operation="payment.refund.orphan") for one in others]
        assert {type(answer) for answer in await asyncio.gather(*map(agent.execute, calls))} == {Denied}


END = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
TERM = 30.0


@dataclass
class Standing:
    """A clock that stands where it is put."""

    at: dt.datetime

    def now(self) -> dt.datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - END).total_seconds()

    def behind(self) -> bool:
        return False


def refuses(check: Callable[..., None], *arguments: Any, **more: Any) -> bool:
    """Whether the check finds that the time is over."""
    try:
        check(*arguments, **more)
    except FailedPrecondition:
        return True
    return False


def lease(clock: Any) -> bool:
    """Whether one that ends at ``END`` is over."""
    at, clock.at = clock.at, END - dt.timedelta(seconds=TERM)
    leases = Leases(clock, 1, TERM, TERM / 3, 0.0)
    held = leases.acquire("exe_1", target("acme", "payments", "order", "1"))
    clock.at = at
    return not leases.holds(held)


def claim(*, deadline: float, deadline_at: dt.datetime) -> Claim:
    """One of nobody's run: its deadlines are all that is looked at."""
    nothing: Any = None
    return Claim(nothing, nothing, "", "", deadline, deadline_at)


LATER = END + dt.timedelta(days=1)


def action(effect: str, deadline: dt.datetime | None = None) -> Any:
    """What is looked at of an action whose time ends at ``END``, or only its envelope's deadline."""
    not_after = rfc3339(LATER if deadline else END)
    limits = SimpleNamespace(deadline=deadline)
    return SimpleNamespace(
        execution_id="exe_1", not_after=not_after, limits=limits, effect=effect, observe_until=rfc3339(END)
    )


WAITING: Any = SimpleNamespace(state="pending", not_after=rfc3339(END))
JUDGES: dict[str, Callable[[Any], bool]] = {
    "approval": lambda parts: state_at(WAITING, parts.clock.now()) == "expired",
    "action": lambda parts: refuses(check_clock, parts, action("allow"), again=False),
    "approval-again": lambda parts: refuses(check_clock, parts, action("require_approval"), again=True),
    "observed-again": lambda parts: refuses(check_clock, parts, action("observe"), again=True),
    "deadline-again": lambda parts: refuses(check_clock, parts, action("allow", END), again=True),
    "deadline": lambda parts: refuses(check_deadline, parts, END),
    "observe-window": lambda parts: refuses(check_observed, parts, "observe", rfc3339(END)),
    "attempt": lambda parts: claim(deadline=TERM, deadline_at=END).over(parts.clock),
    "attempt-monotonic": lambda parts: claim(deadline=0.0, deadline_at=LATER).over(parts.clock),
    "lease": lambda parts: lease(parts.clock),
}


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES.keys())
def test_idm_08_every_end_is_one_boundary(judge: Callable[[Any], bool]) -> None:
    """IDM-08: a millisecond before its end it holds, at its end and after it does not, wherever it is judged."""
    moments = [END + dt.timedelta(milliseconds=past) for past in (-1, 0, 1, 1000)]
    assert [judge(SimpleNamespace(clock=Standing(at))) for at in moments] == [False, True, True, True]
