"""A disk that is full at a commit of the pipeline, and is freed again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kblockd.client import CallError
from kblockd.execution.capacity import LOOK_SECONDS
from tests.crash.daemon.story import Story, World
from tests.crash.damage.mounts import fill, small
from tests.crash.power.disk import build_shim
from tests.crash.power.powered import powered_world
from tests.crash.power.test_power_loss import road_of

pytestmark = pytest.mark.xdist_group("power")

ALL = [
    ("plain", "decide"),
    ("plain", "consume"),
    ("plain", "mark_sent"),
    ("plain", "classify"),
    ("plain", "verify"),
    ("plain", "seal"),
    ("lost", "reconcile"),
    ("refused", "recover"),
]
QUICK = {"decide", "mark_sent", "seal"}
CASES = [pytest.param(*one, marks=[] if one[1] in QUICK else [pytest.mark.soak], id="-".join(one)) for one in ALL]


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A site whose data directory is a file system of 128 MiB."""
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    with powered_world(shim) as (world, disk), small(world.site.data, 128):
        disk.begin()
        yield world
        world.site.kill()


@pytest.mark.parametrize(("road", "stage"), CASES)
def test_led_07_a_disk_that_fills_at_a_commit_and_is_freed(cramped: World, road: str, stage: str) -> None:
    """LED-07, LED-17: the daemon ends; while the disk is full, what was begun can end on the reserve and nothing new
    begins; freed, everything is normal."""
    world = cramped
    world.site.start(f"{stage}:before=stop")
    world.keep_checkpoint()
    story = Story.new(world, "free" if road == "refused" else "production")
    with road_of(world, road), ThreadPoolExecutor(1) as thread:
        told = thread.submit(story.tell)
        daemon = world.site.process
        assert daemon is not None
        daemon.wait_stopped()
        filler = fill(world.site.data)
        time.sleep(2 * LOOK_SECONDS)
        daemon.send_signal(signal.SIGCONT)
        refused = told.exception(60)
        assert isinstance(refused, CallError)
        if refused.reason == "OVERLOAD":  # the last look at the disk came after it was full: nothing has begun
            assert stage == "decide", refused
            assert daemon.poll() is None
            world.site.kill()
            filler.unlink()
            return
        assert world.site.wait_dead() == 75
    assert "No space left" in world.site.said()
    assert len(world.effects(story.order)) <= 1
    _while_full(world)
    filler.unlink()
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()
    fresh = Story.new(world)
    fresh.tell()
    assert fresh.answered is not None
    fresh.check_completed(fresh.answered)


def _while_full(world: World) -> None:
    """It may start on what the ballast gave back, or say why not; a new call is refused, or there is room for it."""
    try:
        world.site.start()
    except RuntimeError:
        assert "kblockd refuses to start" in world.site.said() or "failed while" in world.site.said()
        return
    new = Story.new(world)
    try:
        new.tell()
    except CallError as error:
        executed = error.executed
    else:
        executed = True
    assert len(world.effects(new.order)) == executed


def test_led_07_a_disk_that_is_full_while_an_approval_is_decided(cramped: World) -> None:
    """LED-07: the approver is not told that it counts, and the daemon, which looks at the free space before it begins
    anything, lives on; afterwards the approval is asked for again."""
    world = cramped
    world.site.start()
    world.keep_checkpoint()
    story = Story.new(world)
    with world.site.client() as agent:
        story.pending = agent.execute(story.call)
    filler = fill(world.site.data)
    time.sleep(2 * LOOK_SECONDS)
    with pytest.raises(CallError) as refused:
        _insist(story)
    assert "RESOURCE_EXHAUSTED" in (refused.value.code, refused.value.reason)
    assert world.site.process is not None
    assert world.site.process.poll() is None
    filler.unlink()
    time.sleep(2 * LOOK_SECONDS)
    story.check_completed(story.finish())
    world.check_ledger()


def _insist(story: Story) -> None:
    """Decides and calls: the page that the log ends in may still take a record."""
    story.approve()
    with story.world.site.client() as agent:
        agent.execute(story.call)
