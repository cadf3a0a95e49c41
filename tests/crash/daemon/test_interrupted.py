"""Deaths that leave a question: nothing was sent, nobody can tell, somebody must decide, again and again."""

from __future__ import annotations

import datetime as dt
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kblockd.client import (
    Answer,
    ApprovalPending,
    Call,
    Client,
    Completed,
    FailedPreconditionError,
    Held,
    InProgress,
    UnavailableError,
)
from kblockd.domain.outcome import Finding
from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, Story, World, call, variant
from tests.records import RecordType
from tests.upstreams.payments import PaymentsServer

CLOSE_AFTER = 6
LONGER = 24  # room for a start and another attempt between a death and the deadline, on a machine that is busy
SHORT = {"execution": {"request_timeout_seconds": 1, "absolute_deadline_seconds": 2}}
UNPROVABLE = {"lookup": [], "verification": {"maximum_duration_seconds": 1}}


@pytest.fixture(scope="module")
def blind() -> Iterator[World]:
    """A contract without a lookup, and clocks that close what cannot be proved after six seconds."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        site.configure(
            payments.url,
            contracts={"blind": variant("production", SHORT, UNPROVABLE)},
            daemon={"clocks": {"close_after_seconds": CLOSE_AFTER, "reconcile_seconds": 1}},
        )
        site.pin()
        yield World(site, payments)


@pytest.fixture(scope="module")
def short() -> Iterator[World]:
    """A strong lookup and three attempts; orphans are closed after ``LONGER``."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        bounds = {"verification": {"maximum_duration_seconds": 1}, "execution": {"absolute_deadline_seconds": 20}}
        site.configure(
            payments.url,
            contracts={"short": variant("production", SHORT, ATTEMPTS, bounds)},
            daemon={"clocks": {"close_after_seconds": LONGER, "reconcile_seconds": 1}},
        )
        site.pin()
        yield World(site, payments)


@pytest.fixture(scope="module")
def expiring() -> Iterator[World]:
    """Approvals end after eight seconds, attempts may be made for much longer."""
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        site.configure(
            payments.url,
            contracts={"expiring": variant("production", ATTEMPTS, {"execution": {"absolute_deadline_seconds": 60}})},
            daemon={"clocks": {"approval_ttl_seconds": 8, "close_after_seconds": 120}},
        )
        site.pin()
        yield World(site, payments)


@pytest.mark.parametrize("failpoint", ["mark_sent:after=kill", "dispatch:before=kill"])
def test_rec_08_a_call_that_never_left_is_proved_absent(world: World, failpoint: str) -> None:
    """REC-08: marked, not sent, one attempt: the strong lookup proves it, and the end says so (R194, R462)."""
    world.site.start(failpoint)
    world.keep_checkpoint()
    story = Story.new(world, "single")
    story.tell_until_death()
    world.site.start()
    answer = story.finish()
    story.check_failed(answer, "failed_before_side_effect", "INTERRUPTED")
    assert not answer.outcome_unknown
    assert world.effects(story.order) == []
    world.check_ledger()


def test_idm_18_a_refused_connection_is_attempted_again_after_a_death(world: World) -> None:
    """IDM-18: attempt 1 met nobody, the daemon died on the way to attempt 2; attempt 2 alone acts."""
    world.site.start("dispatch:before=stop;consume:after=kill@2")
    world.keep_checkpoint()
    story = Story.new(world)
    with story.running() as answer:
        daemon = world.site.process
        assert daemon is not None
        daemon.wait_stopped()
        world.payments.kill()
        daemon.send_signal(signal.SIGCONT)
        story.wait_for(RecordType.RECOVERY_PLANNED)
        world.payments.run()
        assert world.site.wait_dead() == -signal.SIGKILL
        assert isinstance(answer.exception(60), UnavailableError)
    world.site.start()
    story.check_completed(story.finish())
    sent = [record for record in story.records() if record.type == RecordType.SENT]
    assert [record.attempt for record in sent] == [1, 2]
    assert len({record.body["effect_key"] for record in sent}) == 1
    world.check_ledger()


def test_out_08_a_death_while_the_upstream_is_being_called(world: World) -> None:
    """OUT-08: it has acted and still thinks about its answer; the next life looks it up and does not call (R462)."""
    world.site.start()
    world.keep_checkpoint()
    world.payments.control(stall_seconds=30.0)
    story = Story.new(world)
    with story.running() as answer:
        while not world.effects(story.order):
            time.sleep(0.01)
        world.site.kill()
        assert isinstance(answer.exception(60), UnavailableError)
    world.payments.control(stall_seconds=0.0)
    world.site.start()
    story.check_completed(story.finish())
    assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    world.check_ledger()


def test_ver_01_a_call_that_acts_after_the_death(world: World) -> None:
    """VER-01, OUT-08: sent, not acted on yet, the daemon dies. "Not found" counts only when it has become final, and
    the wait for that begins anew: the effect lands meanwhile, and nothing is sent a second time (R194)."""
    world.site.start()
    world.keep_checkpoint()
    world.payments.control(stall_before_seconds=2.0)
    story = Story.new(world, "late")
    with story.running() as answer:
        story.wait_for(RecordType.SENT)
        time.sleep(0.5)  # the request is out by now; whichever way it is, one effect must come of it
        world.site.kill()
        assert isinstance(answer.exception(60), UnavailableError)
    world.site.start()
    story.check_completed(story.finish())
    world.payments.control(stall_before_seconds=0.0)
    world.check_ledger()


def test_rec_06_seven_deaths_of_one_execution(world: World) -> None:
    """REC-06: each start gets a little further, through an absence, another attempt and a lost answer; one effect."""
    deaths = [
        "mark_sent:headed=kill",
        "classify:headed=kill",
        "reconcile:headed=kill",
        "recover:headed=kill",
        "consume:headed=kill",
        "dispatch:after=kill",
        "verify:headed=kill",
    ]
    world.site.start(deaths[0])
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    for failpoint in deaths[1:]:
        world.site.start(failpoint, wait=False)
        assert world.site.wait_dead() == -signal.SIGKILL
    assert len(world.effects(story.order)) == 1
    world.site.start()
    story.check_completed(story.finish())
    assert [r.attempt for r in story.records() if r.type == RecordType.SENT] == [1, 2]
    world.check_ledger()


@pytest.mark.parametrize("failpoint", ["hold:before=kill", "hold:headed=kill", "hold:after=kill"])
def test_rec_10_what_is_held_stays_held(world: World, failpoint: str) -> None:
    """REC-10, REC-09: only an operator resolves it; until then its target stays locked and its deed refused (R195)."""
    world.site.start(failpoint)
    world.keep_checkpoint()
    world.payments.control(list_lag_seconds=600.0)
    story = Story.new(world)
    story.tell_until_death()
    world.site.start()
    with world.site.client() as agent, world.site.client("operator") as operator:
        held = story.finish()
        assert isinstance(held, Held)
        assert held.result_dsse == b""
        world.payments.control(list_lag_seconds=0.0)
        world.site.start()
        assert isinstance(agent.execute(story.call), Held)
        with pytest.raises(FailedPreconditionError) as refused:
            agent.execute(call(story.order, "twin-of-" + story.order))
        assert refused.value.reason == "TWIN_UNRESOLVED"
        resolved = operator.resolve(held.execution_id, Finding.PRESENT, "seen in the provider's books")
        assert isinstance(resolved, Completed)
        story.answered = None
        story.check_completed(agent.execute(story.call))
        assert isinstance(agent.execute(call(story.order, "twin-of-" + story.order)), ApprovalPending)
    world.check_ledger()


@pytest.mark.parametrize("place", ["written", "headed"])
def test_rec_10_a_death_while_an_operator_resolves(world: World, place: str) -> None:
    """REC-10: the finding is on disk with its seal or not at all; whoever asks again gets a clear answer (R501)."""
    world.site.start(f"seal:{place}=kill")
    world.keep_checkpoint()
    world.payments.control(list_lag_seconds=600.0)
    story = Story.new(world)
    story.tell()
    world.payments.control(list_lag_seconds=0.0)
    assert isinstance(story.answered, Held)
    execution_id, story.answered = story.answered.execution_id, None
    with world.site.client("operator") as operator:
        with pytest.raises(UnavailableError):
            operator.resolve(execution_id, Finding.PRESENT, "seen in the provider's books")
        assert world.site.wait_dead() == -signal.SIGKILL
        world.site.start()
        if isinstance(operator.get(execution_id=execution_id).answer, Held):
            operator.resolve(execution_id, Finding.PRESENT, "seen in the provider's books")
    story.check_completed(story.finish())
    resolved = [record.type for record in story.records()].count(RecordType.RESOLVED)
    assert resolved == 1
    world.check_ledger()


def test_rec_04_everybody_asks_at_the_start(world: World) -> None:
    """REC-04, IDM-09: the start's reconciliation and thirty repeats of the caller meet; one run, one answer for all."""
    world.site.start("dispatch:after=kill")
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    world.site.start()
    with world.site.client() as agent, ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(lambda _: agent.execute(story.call), range(30)))
    assert {type(answer) for answer in answers} == {Completed}
    assert len({answer.result_dsse for answer in answers}) == 1
    story.check_completed(answers[0])
    records = [record.type for record in story.records()]
    assert records.count(RecordType.SENT) == records.count(RecordType.ATTEMPT_OUTCOME) == 1
    assert records.count(RecordType.SEALED) == 1
    world.check_ledger()


def test_rec_01_nobody_can_tell_and_the_sweep_closes_it(blind: World) -> None:
    """Sent, and no lookup: closed as unknown with RESULT and receipt; its twin is refused, also from another agent,
    until an operator has disposed of it, and the RESULT stays what it was (R460, R461, R501, C10, C23)."""
    blind.site.start("dispatch:after=kill")
    blind.keep_checkpoint()
    story = Story.new(blind)
    story.tell_until_death()
    assert len(blind.effects(story.order)) == 1
    blind.site.start()
    twin = call(story.order, "twin-of-" + story.order)
    with blind.site.client() as agent, blind.site.client("other") as other, blind.site.client("operator") as operator:
        assert isinstance(agent.execute(replace(story.call, wait_seconds=0)), InProgress)
        _refused_as_twin(agent, twin)
        answer = _until_closed(agent, story)
        story.check_failed(answer, "unknown_outcome", "INTERRUPTED")
        assert answer.outcome_unknown
        assert "upstream outcome unknown" in answer.detail
        _refused_as_twin(agent, twin)
        _refused_as_twin(other, twin)
        findings = [record.type for record in story.records()].count(RecordType.RECONCILED)
        assert findings == 1, f"{findings} records of one unchanged finding"
        operator.resolve(answer.execution_id, Finding.PRESENT, "seen in the provider's books")
        story.check_failed(agent.execute(story.call), "unknown_outcome", "INTERRUPTED")
        assert isinstance(agent.execute(twin), ApprovalPending)
    assert len(blind.effects(story.order)) == 1
    blind.check_ledger()


def test_idm_05_interrupted_before_the_upstream_was_called(blind: World) -> None:
    """IDM-05: consumed, not marked, and found too late: closed as not started, and the deed is free again (R461)."""
    blind.site.start("consume:after=kill")
    blind.keep_checkpoint()
    story = Story.new(blind)
    story.tell_until_death()
    time.sleep(CLOSE_AFTER)  # the daemon is away for longer than the clock that closes orphans
    blind.site.start()
    with blind.site.client() as agent:
        answer = _until_closed(agent, story)
        story.check_failed(answer, "not_started", "INTERRUPTED")
        assert "interrupted before the upstream was called" in answer.detail
        assert blind.effects(story.order) == []
        again = Story.new(blind)
        again.order, again.call = story.order, call(story.order, "again-" + story.order)
        again.tell()
    assert again.answered is not None
    again.check_completed(again.answered)
    blind.check_ledger()


def _sent_twice(world: World) -> Story:
    """Attempt 1 was proved absent, attempt 2 was sent and acted, and the daemon is away for longer than the clock that
    closes orphans."""
    world.site.start("dispatch:before=kill")
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    overdue = time.monotonic() + LONGER
    world.site.start("dispatch:after=kill", wait=False)
    assert world.site.wait_dead() == -signal.SIGKILL
    assert len(world.effects(story.order)) == 1
    time.sleep(max(0.0, overdue - time.monotonic()))
    return story


def test_rec_08_a_sent_second_attempt_is_not_closed_by_what_was_found_of_the_first(short: World) -> None:
    """REC-08, UPS-15: closing it as "did not happen" would lie. The upstream cannot be asked, so nobody can tell."""
    story = _sent_twice(short)
    short.payments.kill()
    try:
        short.site.start()
        with short.site.client() as agent:
            answer = _until_closed(agent, story)
        story.check_failed(answer, "unknown_outcome", "INTERRUPTED")
    finally:
        short.payments.run()
    records = story.records()
    assert [record.attempt for record in records if record.type == RecordType.SENT] == [1, 2]
    looked, sealed = records[-2:]
    assert (looked.type, looked.body["finding"], sealed.type) == (
        RecordType.RECONCILED,
        "unprovable",
        RecordType.SEALED,
    )
    short.check_ledger()


def test_ups_15_the_first_sweep_looks_up_before_it_closes(short: World) -> None:
    """UPS-15: however long the outage was, the effect is found by its key, verified, and not sent again."""
    story = _sent_twice(short)
    short.site.start()
    with short.site.client() as agent:
        story.check_completed(_until_closed(agent, story))
    records = story.records()
    assert [record.attempt for record in records if record.type == RecordType.SENT] == [1, 2]
    assert [record.body["finding"] for record in records if record.type == RecordType.RECONCILED] == [
        "absent",
        "present",
    ]
    short.check_ledger()


def test_ups_15_nobody_repeats_the_call_and_it_is_looked_up_all_the_same(short: World) -> None:
    """UPS-15: by the sweep itself, without a caller; killed between the look-up and the verification read."""
    short.site.start("verify:before=kill")
    short.keep_checkpoint()
    short.payments.control(lose_answer_once=True)
    story = Story.new(short)
    story.tell_until_death()
    time.sleep(LONGER)
    short.site.start()
    story.wait_for(RecordType.SEALED)
    story.check_completed(story.finish())
    assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    short.check_ledger()


def test_apv_02_the_approval_ended_while_the_daemon_was_down(expiring: World) -> None:
    """APV-02: killed between the consumption and the marker, back when the approval is over and the action's own
    deadline is not: nothing is sent, and the RESULT says why."""
    expiring.site.start("consume:after=kill")
    expiring.keep_checkpoint()
    story = Story.new(expiring)
    story.tell_until_death()
    assert story.approved is not None
    while dt.datetime.now(dt.UTC) <= story.approved.not_after:
        time.sleep(0.1)
    expiring.site.start()
    answer = story.finish()
    story.check_failed(answer, "not_started", "APPROVAL_NOT_VALID")
    assert (answer.executed, answer.consumed) == (False, True)
    assert expiring.effects(story.order) == []
    expiring.check_ledger()


def _refused_as_twin(client: Client, twin: Call) -> None:
    with pytest.raises(FailedPreconditionError) as refused:
        client.execute(twin)
    assert refused.value.reason == "TWIN_UNRESOLVED"


def _until_closed(agent: Client, story: Story) -> Answer:
    limit = time.monotonic() + 60
    while isinstance(answer := agent.execute(replace(story.call, wait_seconds=0.5)), InProgress):
        assert time.monotonic() < limit, answer
        time.sleep(0.1)
    return answer
