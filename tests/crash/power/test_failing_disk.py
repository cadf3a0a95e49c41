"""A disk that fails under a running daemon: nothing goes on as if it had been written, and the next start decides.

The failures are those of the calls themselves (EIO, ENOSPC from write, fsync, fdatasync), at the commit of a stage.
"""

from __future__ import annotations

import errno
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from kblockd.client import CallError
from tests.crash.daemon.story import Story, World
from tests.crash.power.disk import Disk, Tail

pytestmark = pytest.mark.xdist_group("power")

FAULTS = {
    "write of the log": ("write", ".log", errno.EIO),
    "full log": ("write", ".log", errno.ENOSPC),
    "flush of the log": ("fdatasync", ".log", errno.EIO),
    "write of the head": ("write", "data/head", errno.ENOSPC),
    "flush of the head": ("fdatasync", "data/head", errno.EIO),
}
STAGES = ("decide", "consume", "mark_sent", "classify", "seal")
ALL = [(stage, fault) for stage in STAGES for fault in FAULTS]
QUICK = {
    ("decide", "flush of the head"),
    ("consume", "full log"),
    ("mark_sent", "write of the log"),
    ("mark_sent", "flush of the log"),
    ("mark_sent", "flush of the head"),
    ("classify", "flush of the log"),
    ("seal", "write of the head"),
}
CASES = [pytest.param(*one, marks=[] if one in QUICK else [pytest.mark.soak], id="-".join(one)) for one in ALL]


@pytest.mark.parametrize(("stage", "fault"), CASES)
def test_led_17_led_07_a_failed_write_or_flush_ends_the_daemon(
    powered: tuple[World, Disk], stage: str, fault: str
) -> None:
    """LED-17, LED-07, LED-19: no dispatch before the marker is durable; the caller is not told a path or a key; with
    the disk healed, and the power lost in between, the same key ends with one effect."""
    world, disk = powered
    world.site.start(f"{stage}:before=stop")
    world.keep_checkpoint()
    story = Story.new(world)
    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(story.tell)
        daemon = world.site.process
        assert daemon is not None
        daemon.wait_stopped()
        disk.fail(*FAULTS[fault])
        daemon.send_signal(signal.SIGCONT)
        error = told.exception(60)
    assert isinstance(error, CallError), error
    assert error.reason in {"STORE_UNAVAILABLE", "COMMIT_UNKNOWN", "NETWORK_ERROR", "INTERRUPTED"}, error.reason
    assert str(world.site.folder) not in str(error)
    assert world.site.wait_dead() == 75
    assert any(event[0] == "fault" for event in disk.events())
    assert "the daemon must end" in world.site.said()
    assert len(world.effects(story.order)) == (0 if stage in STAGES[:3] else 1)
    disk.heal()
    disk.cut(Tail.TORN, seed=5)
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()


@pytest.mark.parametrize(
    ("call", "part"),
    [("write", ".sst"), ("fdatasync", ".sst"), ("fsync", ".sst"), ("write", "MANIFEST"), ("write", "data/head")],
)
def test_led_07_a_disk_that_fails_at_the_start_refuses_it(powered: tuple[World, Disk], call: str, part: str) -> None:
    """LED-07: refused with what the disk said and the next step, nothing lost by trying; healed, it starts."""
    world, disk = powered
    world.site.start("seal:headed=kill")
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    disk.fail(call, part, errno.EIO)
    before = len(world.site.said())
    world.site.start(wait=False)
    code = world.site.wait_dead() if _fails(disk, world) else None
    said = world.site.said()[before:]
    disk.heal()
    if code is not None:
        assert code == 1, said
        assert "kblockd refuses to start" in world.site.said()
        assert "Next step" in world.site.said()
        disk.cut()
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()


def _fails(disk: Disk, world: World) -> bool:
    """Whether the start meets the fault at all: RocksDB syncs a table by one of the two calls."""
    try:
        world.site.wait_serving()
    except RuntimeError:
        assert any(event[0] == "fault" for event in disk.events())
        return True
    assert not any(event[0] == "fault" for event in disk.events())
    return False
