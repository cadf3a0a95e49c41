"""SIGKILL at every arrow between two stages and inside every commit, over one ledger that lives through all of it.

kblockd/execution/README.md#failpoints: effects at most one a consumption, nothing acknowledged is lost, the fold equals
the rows, the tree extends the last checkpoint that was handed out, and the same key tells the truth.
"""

from __future__ import annotations

import pytest

from kblockd.client import Denied
from kblockd.client.errors import FailedPreconditionError
from tests.crash.daemon.story import Story, World
from tests.harness import approve, revoke
from tests.integration.pipeline.local import ask

BOUNDARY = ("before", "after")
COMMIT = ("written", "flushed", "headed")


def points(label: str, places: tuple[str, ...], nth: int = 1) -> list[str]:
    """``decide:before=kill`` and its like."""
    return [f"{label}:{place}=kill" + (f"@{nth}" if nth > 1 else "") for place in places]


PROPOSING = [
    *points("admit", BOUNDARY),
    *points("replay", BOUNDARY),
    *points("decide", BOUNDARY + COMMIT),
    *points("await_approval", COMMIT),
]
RUNNING = [
    *points("replay", BOUNDARY, 2),
    *points("preflight", BOUNDARY),
    *points("lease", BOUNDARY),
    *points("read", BOUNDARY),
    *points("preconditions", BOUNDARY),
    *points("consume", BOUNDARY + COMMIT),
    *points("mark_sent", BOUNDARY + COMMIT),
    *points("dispatch", BOUNDARY),
    *points("classify", BOUNDARY + COMMIT),
    *points("reconcile", BOUNDARY),
    *points("verify", BOUNDARY + COMMIT),
    *points("recover", BOUNDARY),
    *points("seal", BOUNDARY + COMMIT),
]
LOST = [
    *points("classify", BOUNDARY + COMMIT),
    *points("reconcile", BOUNDARY + COMMIT),
    *points("verify", BOUNDARY + COMMIT),
    *points("seal", ("before", "headed")),
]
REPEATED = [
    *points("recover", BOUNDARY + COMMIT),
    *points("preflight", ("before",), 2),
    *points("consume", BOUNDARY + COMMIT, 2),
    *points("mark_sent", BOUNDARY + COMMIT, 2),
    *points("dispatch", BOUNDARY, 2),
    *points("classify", COMMIT, 2),
]


def graded(failpoints: list[str]) -> list[object]:
    """All in the soak. Behind a stage nothing has happened that had not before the next one, and between the log and
    the head it is the log that a start reads: those kills are left to it."""

    def is_slow(failpoint: str) -> bool:
        return ":flushed=" in failpoint or (":after=" in failpoint and not failpoint.startswith("16."))

    return [pytest.param(one, marks=[pytest.mark.soak] if is_slow(one) else []) for one in failpoints]


@pytest.mark.parametrize("failpoint", graded([*PROPOSING, *RUNNING]))
def test_rec_08_apr_13_a_kill_on_the_way_of_an_approved_refund(world: World, failpoint: str) -> None:
    """REC-08, APR-13, IDM-05: every key ends with one verified effect; an approval is never asked for twice (R186,
    R462, R570)."""
    world.site.start(failpoint)
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    assert len(world.effects(story.order)) <= 1
    _survives(world, story)


@pytest.mark.parametrize("failpoint", graded(LOST))
def test_out_08_a_kill_while_a_lost_answer_is_looked_up(world: World, failpoint: str) -> None:
    """OUT-08: the upstream acted and the answer was lost; the effect key finds it, before and after the death."""
    world.site.start(failpoint)
    world.keep_checkpoint()
    world.payments.control(lose_answer_once=True)
    story = Story.new(world)
    story.tell_until_death()
    assert len(world.effects(story.order)) == 1
    _survives(world, story)


@pytest.mark.parametrize("failpoint", graded(REPEATED))
def test_idm_18_a_kill_while_another_attempt_is_under_way(world: World, failpoint: str) -> None:
    """IDM-18: what provably did not happen is attempted again, under one consumption, wherever the daemon died."""
    world.site.start(failpoint)
    world.keep_checkpoint()
    world.payments.control(refuse=True)
    story = Story.new(world, "free")
    try:
        story.tell_until_death()
    finally:
        world.payments.control(refuse=False)
    assert world.effects(story.order) == []
    _survives(world, story)
    with world.site.client() as agent:
        assert story.answered is not None
        events = agent.get(execution_id=story.answered.execution_id).events
    assert sum(event.record_type == "execution.sent" for event in events) >= 2


@pytest.mark.parametrize("point", [*points("await_approval", COMMIT), *points("await_approval", COMMIT, 2), ""])
def test_r108_a_kill_around_a_revocation(world: World, point: str) -> None:
    """R108: pending, approved, or acknowledged already (without a point): once it is on disk it stays, it is there
    once, and the action never runs."""
    world.site.start(point)
    world.keep_checkpoint()
    story = Story.new(world)
    approval_id = ask(world.site, story.call).approval_id
    if not point or point.endswith("@2"):
        approve(world.site, approval_id)
    answered = revoke(world.site, approval_id)
    assert (answered.reason if answered else "") == ("NETWORK_ERROR" if point else "")
    if point:
        assert world.site.wait_dead() == -9
    else:
        world.site.kill()
    world.site.start()
    again = revoke(world.site, approval_id)
    if again is not None or ":written" not in point:  # what is flushed is there, and so is what was acknowledged
        assert isinstance(again, FailedPreconditionError), again
        assert (again.reason, again.consumed) == ("APPROVAL_NOT_VALID", False)
    with world.site.client() as agent, world.site.client("lead") as lead:
        answer = agent.execute(story.call)
        assert lead.approval(approval_id).state == "revoked"
        events = agent.get(execution_id=answer.execution_id).events
    assert isinstance(answer, Denied), answer
    assert (answer.state, answer.code, answer.consumed) == ("rejected", "APPROVAL_REVOKED", False)
    assert [event.record_type for event in events][-2:] == ["approval.revoked", "execution.rejected"]
    assert sum(event.record_type == "approval.revoked" for event in events) == 1
    assert world.effects(story.order) == []
    world.check_ledger()


def _survives(world: World, story: Story) -> None:
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()
