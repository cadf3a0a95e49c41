"""The story of a refund with the power lost inside each of its commits: everything that was not synced is gone.

Effects at most one, nothing that was acknowledged is lost, the ledger verifies and extends every checkpoint that was
handed out, and the same key tells the truth. The mutants show that these tests fail when a sync is missing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.client import UnavailableError
from tests.crash.daemon.story import Story, World
from tests.crash.power.disk import Disk, Loss, Tail
from tests.crash.power.mutants import MUTANTS
from tests.crash.power.powered import powered_world

PLACES = ("written", "flushed", "headed")
ROADS = {
    "plain": ("decide", "await_approval", "consume", "mark_sent", "classify", "verify", "seal"),
    "lost": ("classify", "reconcile"),
    "refused": ("classify", "recover", "consume@2", "mark_sent@2"),
}
"""What happens to the call, and the commits on that road: its answer comes, is lost, is a refusal and an attempt more
follows. ``@2`` is the second time."""
ALL = [(road, label, place) for road, labels in ROADS.items() for label in labels for place in PLACES]
QUICK = [
    ("plain", "decide", "headed"),
    ("plain", "await_approval", "flushed"),
    ("plain", "consume", "written"),
    ("plain", "mark_sent", "written"),
    ("plain", "mark_sent", "headed"),
    ("plain", "classify", "flushed"),
    ("plain", "seal", "written"),
    ("plain", "seal", "headed"),
    ("lost", "reconcile", "written"),
    ("refused", "recover", "headed"),
]

pytestmark = pytest.mark.xdist_group("power")


def failpoint(label: str, place: str) -> str:
    """``consume:written=kill@2`` from its parts."""
    stage, _, nth = label.partition("@")
    return f"{stage}:{place}=kill" + (f"@{nth}" if nth else "")


@contextlib.contextmanager
def road_of(world: World, road: str) -> Iterator[None]:
    """The upstream as the road wants it, for one death."""
    world.payments.control(lose_answer_once=road == "lost", refuse=road == "refused")
    try:
        yield
    finally:
        world.payments.control(lose_answer_once=False, refuse=False)


def die_and_survive(world: World, disk: Disk, case: tuple[str, str, str], tail: Tail, seed: int = 0) -> Loss:
    """One death with the power lost, and everything that must be true afterwards."""
    road, label, place = case
    world.site.start(failpoint(label, place))
    world.keep_checkpoint()
    story = Story.new(world, "free" if road == "refused" else "production")
    with road_of(world, road):
        story.tell_until_death()
    before = len(world.effects(story.order))
    assert before <= 1
    loss = disk.cut(tail, seed)
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()
    return loss


@pytest.mark.parametrize("case", QUICK, ids="-".join)
def test_led_01_power_is_lost_inside_a_commit(powered: tuple[World, Disk], case: tuple[str, str, str]) -> None:
    """LED-01, REC-08, IDM-05: bytes and names that were not synced are gone."""
    loss = die_and_survive(*powered, case, Tail.GONE)
    # Between write and flush there are bytes that only the kernel has: the cut is seen to cut.
    assert loss.bytes > 0 or case[2] != "written"


@pytest.mark.parametrize("tail", [Tail.TORN, Tail.ZEROS])
def test_led_10_a_torn_or_zeroed_tail_is_no_damage(powered: tuple[World, Disk], tail: Tail) -> None:
    """LED-10: what a power cut leaves behind the last sync is dropped; it refuses no start and loses nothing."""
    die_and_survive(*powered, ("plain", "mark_sent", "written"), tail, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", ALL, ids="-".join)
def test_led_01_power_is_lost_inside_every_commit_in_every_way(
    powered: tuple[World, Disk], case: tuple[str, str, str]
) -> None:
    """LED-01: all roads, places and tails."""
    for tail, seed in itertools.product(Tail, range(2)):
        die_and_survive(*powered, case, tail, seed)


MUTATED = {
    "log never synced": ("plain", "mark_sent", "headed"),
    "head never synced": ("plain", "mark_sent", "headed"),
    "head before log": ("plain", "mark_sent", "flushed"),
    "names never synced": ("plain", "decide", "headed"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_led_01_without_a_sync_the_same_test_fails(shim: Path, mutant: str) -> None:
    """LED-01: a proof that the tests above can fail; the mutant's own first run is sound, so it is the cut that shows
    it."""
    with powered_world(shim, mutant) as (world, disk):
        world.site.start()
        with pytest.raises((RuntimeError, AssertionError, UnavailableError)) as failed:
            die_and_survive(world, disk, MUTATED[mutant], Tail.GONE)
        # Refused with the numbers; or, with every name gone, a new ledger that knows nothing of what was acknowledged.
        refused = any(words in str(failed.value) for words in ("refuses to start", "NOT VERIFIED"))
        assert refused or isinstance(failed.value, AssertionError), failed.value
