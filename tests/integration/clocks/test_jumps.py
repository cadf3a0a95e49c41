"""The wall clock jumps at each stage: what counts is the wall clock at the start, and time that has really passed."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kblockd.client.answers import Answer, Completed, UpstreamError
from kblockd.domain.clock import parse_rfc3339
from kblockd.upstream.connection import IDLE_SECONDS, Connection, IdleConnections
from tests.harness import approve
from tests.integration.pipeline.local import (
    LONG_LEASE,
    ask,
    body,
    effects,
    order,
    records,
    refund_in,
    seconds_between,
    statement,
)
from tests.integration.races.changes import PAST_THE_APPROVAL, Expired
from tests.integration.races.property import Raced, check_seen_or_after
from tests.integration.staged import CONSUMED, UNCONSUMED, StagedSite, told
from tests.upstreams.payments import PaymentsServer

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
JUMPS: Final = {"hour-on": HOUR, "hour-back": -HOUR, "day-on": DAY, "day-back": -DAY}
ASKED: Final = ("admit:before", "replay:before", "decide:before", "decide:ordering")
DECIDED: Final = "await_approval:ordering"
RESUMED: Final = tuple(point for point in (*UNCONSUMED, *CONSUMED) if point not in ASKED)
PAST_THE_LEASE: Final = LONG_LEASE["lease_ttl_seconds"] + 1.0
UNSENT: Final = (CONSUMED[0], "mark_sent:before", "dispatch:before")
_DEADLINE_SECONDS: Final = 20  # of the tests' contract


def moved(site: StagedSite, seconds: float, *, passed: float = 0.0, asleep: float = 0.0) -> Any:
    """What a boundary does: the wall clock is set by so much, after so much time."""

    async def move() -> None:
        site.machine.passed += passed
        site.machine.asleep += asleep
        site.machine.set_by += seconds

    return move


def really(site: StagedSite) -> dt.datetime:
    """Now, by a clock that nobody has set."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=site.machine.passed + site.machine.asleep)


def soaked(soak: bool) -> list[pytest.MarkDecorator]:
    """The marks of a case."""
    return [pytest.mark.soak] if soak else []


def _jumps() -> Iterator[Any]:
    """Every jump at every arrow; the ordinary run takes each arrow with one of the four, in turn."""
    for turn, point in enumerate((*ASKED, DECIDED, *RESUMED)):
        for place, jump in enumerate(JUMPS):
            yield pytest.param(point, jump, marks=soaked(turn % len(JUMPS) != place), id=f"{point}-{jump}")


def _lapses(points: tuple[str, ...], ordinary: tuple[str, ...]) -> Iterator[Any]:
    for point in points:
        for jump in ("day-on", "day-back"):
            soak = jump == "day-on" or point not in ordinary
            yield pytest.param(point, jump, marks=soaked(soak), id=f"{point}-{jump}")


@pytest.mark.parametrize(("point", "jump"), [*_jumps()])
def test_lse_04_a_jump_of_the_wall_clock_at_any_stage_changes_nothing(
    site: StagedSite, pay: PaymentsServer, point: str, jump: str
) -> None:
    """LSE-04, LSE-03: the action runs once under one lease; what is on record and signed has the time that it really
    was, in the ledger's order; approval and deadline end when they would have ended."""
    mine, began = order(), really(site)
    call = refund_in("production", mine, key=mine)
    site.boundaries.at(point, moved(site, JUMPS[jump]))
    pending = ask(site, call)
    approve(site, pending.approval_id)
    with site.client() as agent:
        done = agent.execute(call)
    assert site.machine.set_by == JUMPS[jump]
    assert isinstance(done, Completed), done
    assert len(effects(pay, mine)) == 1
    _check_records(site, done, began)


def _check_records(site: StagedSite, done: Answer, began: dt.datetime) -> None:
    found = records(site, done.execution_id)
    types = [record["type"] for record in found]
    assert (types.count("execution.claimed"), types.count("execution.sent")) == (1, 1)
    result = statement(done.result_dsse)["predicate"]
    times = [began, *(parse_rfc3339(record["at"]) for record in found), really(site)]
    assert times == sorted(times)
    assert times[0] <= parse_rfc3339(result["startedAt"]) <= parse_rfc3339(result["finishedAt"]) <= times[-1]
    requested = body(site, done.execution_id, "approval.requested")
    assert seconds_between(requested["not_before"], requested["not_after"]) == pytest.approx(
        LONG_LEASE["approval_ttl_seconds"], abs=1
    )
    [claimed] = [record for record in found if record["type"] == "execution.claimed"]
    assert seconds_between(claimed["at"], claimed["body"]["deadline_at"]) == pytest.approx(_DEADLINE_SECONDS, abs=1)


def lapse(
    site: StagedSite,
    pay: PaymentsServer,
    point: str,
    jump: float,
    *,
    passed: float = PAST_THE_APPROVAL,
    asleep: float = 0.0,
    environment: str = "production",
) -> Raced:
    """Time passes at the point, by default that of approval, lease and deadline; the wall clock is set besides."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    site.boundaries.at(point, moved(site, jump, passed=passed, asleep=asleep))
    return Raced(site, pay, mine, pending.execution_id, pending.approval_id, told(site, call))


@pytest.mark.parametrize(("point", "jump"), [*_lapses(UNCONSUMED[:-1], ("replay:before", "consume:before"))])
def test_apr_04_what_has_lapsed_is_not_consumed_whatever_the_wall_clock_says(
    site: StagedSite, pay: PaymentsServer, point: str, jump: str
) -> None:
    """APR-04, APR-10, LSE-04: refused at every stage up to the consumption, by time that has passed."""
    assert check_seen_or_after(lapse(site, pay, point, JUMPS[jump]), Expired())


@pytest.mark.parametrize(("point", "jump"), [*_lapses(CONSUMED, (*UNSENT, "classify:before"))])
def test_lse_04_leases_and_deadlines_end_by_monotonic_time(
    site: StagedSite, pay: PaymentsServer, point: str, jump: str
) -> None:
    """LSE-04, LSE-01, R572: the lease and the absolute deadline are over, however the wall clock was set back: what was
    consumed and not sent is sealed without an effect; what was sent before ends well, once."""
    race = lapse(site, pay, point, JUMPS[jump])
    happened = len(effects(pay, race.order))
    if point not in UNSENT:
        assert isinstance(race.told, Completed), race.told
        assert happened == len(race.sent()) == 1
        return
    assert isinstance(race.told, UpstreamError), race.told
    marked = point == UNSENT[-1]
    ended = (race.told.result_class, race.told.executed, race.told.consumed)
    assert ended == ("failed_before_side_effect" if marked else "not_started", False, True)
    assert (len(race.claims()), len(race.sent()), happened) == (1, int(marked), 0)


@pytest.mark.parametrize("point", UNSENT)
def test_lse_01_a_lease_ends_by_itself_and_nothing_is_sent_under_it(
    site: StagedSite, pay: PaymentsServer, point: str
) -> None:
    """LSE-01, LSE-04, R166: approval and deadline go on, the lease alone is over, and the wall clock says that no time
    has passed: a newer fence is claimed first, and the one effect is sent under it."""
    race = lapse(site, pay, point, -PAST_THE_LEASE, passed=PAST_THE_LEASE, environment="patient")
    assert isinstance(race.told, Completed), race.told
    assert len(effects(pay, race.order)) == 1
    claims = [_fence(record) for _, record in race.claims()]
    sent = [_fence(record) for _, record in race.sent()]
    assert len(claims) == 2
    assert claims[0] < claims[1]
    assert sent == (claims if point == UNSENT[-1] else claims[1:])


def _fence(record: dict[str, Any]) -> tuple[int, int]:
    fence = record["body"]["fence"]
    return fence["incarnation"], fence["counter"]


def test_identifiers_do_not_go_back_when_the_wall_clock_does(site: StagedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are in their order, the newest first."""
    plain = time.time_ns
    first = ask(site, refund_in("production", order()))
    site.machine.set_by = -HOUR
    monkeypatch.setattr(time, "time_ns", lambda: plain() - int(HOUR) * 10**9)
    second = ask(site, refund_in("production", order()))
    with site.client() as agent:
        listed = [answer.execution_id for answer in agent.list(page_size=2).items]
    assert listed == [second.execution_id, first.execution_id]


def test_a_connection_that_was_kept_before_the_machine_slept_carries_no_effect(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may have given it up meanwhile, and what is lost in it may not be repeated."""
    plain, taken = IdleConnections.take, list[Connection | None]()

    def take(kept: IdleConnections) -> Connection | None:
        taken.append(plain(kept))
        return taken[-1]

    async def sleep() -> None:
        taken.clear()
        site.machine.asleep += IDLE_SECONDS

    monkeypatch.setattr(IdleConnections, "take", take)
    mine = order()
    call = refund_in("production", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    site.boundaries.at("dispatch:before", sleep)
    assert isinstance(told(site, call), Completed)
    assert (taken[0], len(effects(pay, mine))) == (None, 1)


@pytest.mark.parametrize("point", UNSENT)
def test_r572_no_attempt_begins_after_the_deadline_that_is_on_record(
    site: StagedSite, pay: PaymentsServer, point: str
) -> None:
    """R572: the machine slept past the absolute deadline, and monotonic time stood still: nothing is sent, and the
    ledger shows no marker behind ``deadline_at``."""
    race = lapse(site, pay, point, 0.0, passed=0.0, asleep=_DEADLINE_SECONDS + 1.0)
    assert isinstance(race.told, UpstreamError), race.told
    assert (race.told.executed, race.told.consumed, effects(pay, race.order)) == (False, True, [])
    [(_, claimed)] = race.claims()
    assert all(record["at"] < claimed["body"]["deadline_at"] for _, record in race.sent())
