"""What changes between any two stages of a call that resumes an approved action: seen, or after its bytes left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from kblockd.client.answers import Answer, Completed, UpstreamError
from tests.harness import approve
from tests.integration.pipeline.local import ask, effects, order, refund_in, run_approved
from tests.integration.races.changes import (
    Change,
    ContractChanged,
    Disabled,
    Expired,
    PolicyForbids,
    PolicyReads,
    Repinned,
    Revoked,
)
from tests.integration.races.property import Raced, check_no_claim_after, check_seen_or_after
from tests.integration.staged import CONSUMED, CONSUMPTION, UNCONSUMED, StagedSite, told
from tests.upstreams.payments import PaymentsServer

CHANGES: Final[dict[str, Callable[[], Change]]] = {
    "policy-forbids": PolicyForbids,
    "policy-decides-alike": PolicyReads,
    "tool-repinned": Repinned,
    "contract-changed": lambda: ContractChanged(("payment.refund.create", "production")),
    "requester-disabled": lambda: Disabled("local:agent"),
    "approver-disabled": lambda: Disabled("local:lead"),
    "approval-revoked": Revoked,
    "approval-expired": Expired,
}
POINTS: Final = (*UNCONSUMED, *CONSUMED)
UNSENT: Final = CONSUMED[:3]
"""The arrows between the consumption and the call: what changes there is seen by the marker or behind it (APV-01)."""
_ORDINARY: Final = (
    "preflight:before",
    "preconditions:before",
    CONSUMPTION,
    *UNSENT,
)
_SLOW: Final = ("policy-forbids", "policy-decides-alike")  # a bundle is checked and loaded, twice


def _cases(points: tuple[str, ...], changes: tuple[str, ...], *quick: tuple[str, str]) -> Iterator[Any]:
    """Every change at every arrow; the ordinary run takes the arrows around the consumption, of slow ones the quick,
    and of what a person stops by hand all."""
    for what in changes:
        for point in points:
            ordinary = what == "approval-revoked" or (point in _ORDINARY and what not in _SLOW)
            soak = not (ordinary or (what, point) in quick)
            yield pytest.param(what, point, marks=[pytest.mark.soak] if soak else [], id=f"{what}-{point}")


@contextmanager
def changing(site: StagedSite, what: str) -> Iterator[Change]:
    """A change that may be made in the block, and is undone behind it."""
    change = CHANGES[what]()
    try:
        yield change
    finally:
        site.run(change.undo(site))


@pytest.mark.parametrize(
    ("what", "point"),
    [*_cases(POINTS, tuple(CHANGES), ("policy-forbids", CONSUMPTION), ("policy-forbids", CONSUMED[0]))],
)
def test_apr_04_r112_a_change_is_seen_or_came_after_the_consumption(
    staged: StagedSite, pay: PaymentsServer, what: str, point: str
) -> None:
    """APR-04, R112, R082: at every arrow between two stages, and right before and behind the consumption's place in
    the ledger."""
    mine = order()
    call = refund_in("production", mine, key=mine)
    pending = ask(staged, call)
    approve(staged, pending.approval_id)
    with changing(staged, what) as change:
        staged.boundaries.at(point, lambda: change.make(staged, pending.approval_id))
        race = Raced(staged, pay, mine, pending.execution_id, pending.approval_id, told(staged, call))
        seen = check_seen_or_after(race, change)
    if change.reasons:
        assert seen == (POINTS.index(point) <= POINTS.index(change.last_seen))
        unsent = POINTS.index(point) <= POINTS.index(UNSENT[-1]) and not change.too_late
        assert len(effects(pay, mine)) == (0 if unsent else 1)
    elif point in UNSENT:  # a reload under which the decision still stands voids nothing (C27)
        assert isinstance(race.told, Completed)
        assert [len(race.claims()), len(race.sent())] == [2, 2 if point == UNSENT[-1] else 1]


RELIED_ON_AGAIN: Final = ("policy-forbids", "tool-repinned", "requester-disabled", "approver-disabled")
AGAIN: Final = (*UNCONSUMED[2:], *UNSENT)


@pytest.mark.parametrize(("what", "point"), [*_cases(AGAIN, RELIED_ON_AGAIN)])
def test_r473_a_change_before_another_attempt_is_seen_by_it(
    staged: StagedSite, pay: PaymentsServer, what: str, point: str
) -> None:
    """R473, APV-01: the first attempt had no effect and a second is made; what changes on its way in is seen at 9r, by
    its marker or behind it. A refusal seals what is proved, and sends nothing."""
    mine = order()
    call = refund_in("free", mine, key=mine)
    pending = ask(staged, call)
    approve(staged, pending.approval_id)
    pay.control(refuse=True)
    with changing(staged, what) as change:

        async def make() -> None:
            pay.control(refuse=False)
            await change.make(staged, pending.approval_id)

        staged.boundaries.at(point, make, nth=2)
        race = Raced(staged, pay, mine, pending.execution_id, pending.approval_id, told(staged, call))
        assert staged.boundaries.clear() == []
        check_no_claim_after(race, change)
    assert isinstance(race.told, UpstreamError), race.told
    assert (race.told.result_class, race.told.code in change.reasons) == ("failed_before_side_effect", True)
    claims, sent = (2 if point in UNSENT else 1), (2 if point == UNSENT[-1] else 1)
    assert (len(race.claims()), len(race.sent()), effects(pay, mine)) == (claims, sent, [])


@pytest.mark.parametrize("verdict", ["approve", "deny"])
@pytest.mark.parametrize("point", ["admit:before", "replay:before", "replay:after"])
def test_apr_06_a_decision_that_lands_while_the_call_resumes(
    staged: StagedSite, pay: PaymentsServer, point: str, verdict: str
) -> None:
    """APR-06, APR-12: the second of two owners decides while the identical call looks: it is pending or it is decided,
    and the next call finds the same; a denial never runs."""
    mine = order()
    call = refund_in("production", mine, key=mine, operation="payment.refund.pair")
    pending = ask(staged, call)
    approve(staged, pending.approval_id)
    staged.boundaries.at(point, lambda: asyncio.to_thread(approve, staged, pending.approval_id, verdict, "chief"))
    first, second = told(staged, call), told(staged, call)
    assert staged.boundaries.clear() == []
    ended = "rejected" if verdict == "deny" else "succeeded"
    assert isinstance(first, Answer), first
    assert isinstance(second, Answer), second
    assert first.state in ("pending_approval", ended)
    assert (second.state, len(effects(pay, mine))) == (("rejected", 0) if verdict == "deny" else ("succeeded", 1))


def test_apr_01_the_same_site_serves_after_all_of_it(staged: StagedSite, pay: PaymentsServer) -> None:
    """What was changed is undone: an approved action runs, and the ledger that all races share verifies."""
    mine = order()
    assert isinstance(run_approved(staged, refund_in("production", mine, key=mine)), Completed)
    assert len(effects(pay, mine)) == 1
    staged.stop()
    try:
        assert staged.command("ledger", "verify", "--config", str(staged.config)).endswith("\nverified\n")
    finally:
        staged.start()
