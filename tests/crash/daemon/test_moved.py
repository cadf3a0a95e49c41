"""UPS-14: the upstream is configured elsewhere while an execution's outcome is unknown."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kblockd.client import InProgress
from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, Story, World, variant
from tests.records import RecordType
from tests.upstreams.payments import PaymentsServer


@dataclass
class Two:
    """A daemon, and two providers of one definition of the tools; the first is the one that is approved."""

    world: World
    other: PaymentsServer

    def move(self, url: str) -> None:
        """From the next start on."""
        file = self.world.site.config.parent / "upstreams" / "payments.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), "url": url}))


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    """Three attempts, and clocks under which nothing is closed by age."""
    with (
        ForkedSite.forking() as site,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        PaymentsServer.start(site.folder) as first,
        PaymentsServer.start(Path(folder)) as other,
    ):
        site.configure(first.url, contracts={"production": variant("production", ATTEMPTS)})
        site.pin()
        yield Two(World(site, first), other)


def test_ups_14_only_the_place_that_was_agreed_is_asked(two: Two) -> None:
    """Killed after the effect at A, back with B: B's "absent" is no proof, and nothing is done there. Back with A it is
    found and proved."""
    world = two.world
    world.site.start("classify:before=kill")
    story = Story.new(world)
    story.tell_until_death()
    assert len(world.effects(story.order)) == 1
    two.move(two.other.url)
    world.site.start()
    story.wait_for(RecordType.RECONCILED)
    [told] = [record for record in story.records() if record.type == RecordType.RECONCILED]
    assert (told.body["finding"], told.body["code"]) == ("unprovable", "UPSTREAM_CHANGED")
    with world.site.client() as agent:
        assert isinstance(agent.execute(story.call), InProgress)
    assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    world.site.stop()
    two.move(world.payments.url)
    world.site.start()
    story.check_completed(story.finish())
    assert two.other.effects() == []
