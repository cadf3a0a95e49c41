"""The wall clock of a whole daemon process is set while it stands at a stage: no library in it goes by it either."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from kblockd.client import UnavailableError
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.stages import Stage
from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, Story, World, variant
from tests.integration.clocks.test_jumps import JUMPS
from tests.integration.clocks.wall import Wall
from tests.upstreams.payments import PaymentsServer

pytestmark = pytest.mark.soak
STAGES: Final = [s.label for s in Stage if s.order >= Stage.PREFLIGHT.order and s not in (Stage.TRACK, Stage.HOLD)]


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Wall:
    """Of the daemons alone: the tests and the upstream have the machine's."""
    return Wall(tmp_path_factory.mktemp("wall"))


@pytest.fixture(scope="module")
def world(wall: Wall) -> Iterator[World]:
    """Whose daemons stand on that clock."""
    with ForkedSite.forking(**wall.environment) as site, PaymentsServer.start(site.folder) as payments:
        site.configure(payments.url, contracts={"production": variant("production", ATTEMPTS)})
        site.pin()
        yield World(site, payments)
        wall.set_by(0)


@pytest.mark.parametrize("jump", JUMPS)
def test_lse_04_the_wall_clock_of_the_process_is_set_at_every_stage(world: World, wall: Wall, jump: str) -> None:
    """LSE-04: one story a stage; each ends well, once, and its records have the time that it really was."""
    stops = [f"{label}:before=stop@{nth}" for nth, label in enumerate(STAGES, 1)]
    wall.set_by(0)
    world.site.start(";".join(stops))
    world.keep_checkpoint()
    daemon = world.site.process
    assert daemon is not None
    for _ in STAGES:
        story, began = Story.new(world), dt.datetime.now(dt.UTC)
        with story.running() as answer:
            daemon.wait_stopped()
            wall.set_by(JUMPS[jump])
            daemon.send_signal(signal.SIGCONT)
            story.check_completed(answer.result(60))
        times = [began, *(parse_rfc3339(record.at) for record in story.records()), dt.datetime.now(dt.UTC)]
        assert times == sorted(times)
        wall.set_by(0)
    world.check_ledger()


def test_lse_03_a_process_that_starts_behind_its_last_record(world: World, wall: Wall) -> None:
    """LSE-03: CLOCK_BEHIND, nothing consumed, until the process' own wall clock is right."""
    wall.set_by(0)
    world.site.start()
    world.keep_checkpoint()
    story = Story.new(world)
    with world.site.client() as agent:
        story.pending = agent.execute(story.call)
        story.approve()
        wall.set_by(JUMPS["hour-back"])
        world.site.start()
        with pytest.raises(UnavailableError) as refused:
            agent.execute(story.call)
        assert refused.value.reason == "CLOCK_BEHIND"
        assert world.effects(story.order) == []
        wall.set_by(0)
        story.check_completed(agent.execute(story.call))
    world.check_ledger()
