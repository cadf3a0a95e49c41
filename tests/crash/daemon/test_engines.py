"""The kills of ``test_boundaries`` while a supervised OPA decides: a second process, which dies with its daemon.

kblockd/execution/README.md#failpoints by the other engine: what is true of effects, records and answers does not hang
on what decides.
"""

from __future__ import annotations

import time

import pytest

from tests.contract.policy.support import HANG_SECONDS, children, ended
from tests.crash.daemon.story import Story, World
from tests.crash.daemon.test_boundaries import PROPOSING, RUNNING

AT_ANY_RATE = ["decide:after=kill", "consume:flushed=kill"]
"""Between an answer of OPA and its record, and inside the commit that rests on two of them."""


@pytest.fixture(scope="module")
def engine() -> str:
    """Of ``world``."""
    return "opa"


@pytest.mark.parametrize(
    "failpoint",
    [
        *AT_ANY_RATE,
        *(pytest.param(point, marks=pytest.mark.soak) for point in (*PROPOSING, *RUNNING) if point not in AT_ANY_RATE),
    ],
)
def test_rec_08_pol_13_a_kill_while_opa_decides(world: World, failpoint: str) -> None:
    """REC-08, POL-13: one verified effect for each key, by OPA's revision; no OPA outlives the daemon that asked it
    (R186, R462, R570)."""
    world.site.start(failpoint)
    orphans = served(world)
    assert len(orphans) == 1
    world.keep_checkpoint()
    story = Story.new(world)
    story.tell_until_death()
    assert len(world.effects(story.order)) <= 1
    await_end(orphans)
    world.site.start()
    story.check_completed(story.finish())
    claimed = [record for record in story.records() if record.type == "execution.claimed"]
    assert {record.body["policy_revision"] for record in claimed} == {in_force(world)}
    assert len(served(world)) == len(list((world.site.folder / "opa").iterdir())) == 1
    world.check_ledger()


def served(world: World) -> set[int]:
    """The OPA of the daemon that runs."""
    assert world.site.process is not None
    return children(world.site.process.pid, b"--server")


def await_end(processes: set[int]) -> None:
    """Waits for it."""
    limit = time.monotonic() + HANG_SECONDS
    while not all(map(ended, processes)):
        assert time.monotonic() < limit
        time.sleep(0.02)


def in_force(world: World) -> str:
    """The revision that OPA serves."""
    with world.site.client("auditor") as auditor:
        status = auditor.policy_status()
    assert status.engine == "opa"
    return str(status.revision)
