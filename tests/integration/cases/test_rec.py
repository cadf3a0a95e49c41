"""A process that is killed while it holds a target: how soon its work is taken up, and when the target is free."""

from __future__ import annotations

import time

from kblockd.client import Completed
from tests.crash.daemon.story import Story, World
from tests.harness import approve, refund
from tests.integration.cases.conftest import LONG_TERM

RECOVERED = 60.0  # seconds: a bound for a hang, far below a term


def test_rec_09_lse_06_a_dead_holder_blocks_nobody_for_a_term(world: World) -> None:
    """REC-09, LSE-06: the lease of the dead process had ten minutes to go. Its work is taken up at the next start,
    and once that is resolved (it had never left) another deed on the same target goes on."""
    assert RECOVERED < LONG_TERM
    world.site.start("dispatch:before=kill")
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    begun = time.monotonic()
    world.site.start()
    story.check_failed(story.finish(), "failed_before_side_effect", "INTERRUPTED")
    other = refund(story.order, "1.00", key="other-" + story.order)
    with world.site.client() as agent:
        approve(world.site, agent.execute(other).approval_id)
        done = agent.execute(other)
    assert isinstance(done, Completed)
    assert time.monotonic() - begun < RECOVERED
    assert [effect["amount"] for effect in world.effects(story.order)] == ["1.00"]
    world.check_ledger()
