"""Failpoints: what parses, what fires and when; kill is a real SIGKILL of a real process
(kblockd/execution/README.md#failpoints)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from kblockd.domain.failpoints import FailpointError, Failpoints, NoFailpoints
from kblockd.failpoints import EnvironmentFailpoints

POINT = "consume:before"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "consume:before",
        "consume:before=",
        "consume=kill",
        "consume:=kill",
        ":before=kill",
        "consume:before=explode",
        "consume:before=KILL",
        "CONSUME:before=kill",
        "09.consume:before=kill",
        "consumed:before=kill",
        "consume:beforehand=kill",
        "consume:during=kill",
        "consume:before=kill@",
        "consume:before=kill@0",
        "consume:before=kill@-1",
        "consume:before=kill@1.5",
        "consume:before=kill@01",
        " consume:before=kill",
        "consume:before=kill ",
        "consume:before=kill\n",
        "consume:before=kill,mark_sent:before=kill",
        "consume:before=kill;x",
        "consume:before=kill; mark_sent:before=kill",
    ],
)
def test_what_does_not_parse_is_refused_and_named(text: str) -> None:
    """A mistyped failpoint must not be a test that tests nothing."""
    with pytest.raises(ValueError, match=r"KBLOCKD_FAILPOINT: .* is not STAGE:"):
        EnvironmentFailpoints(text)


@pytest.mark.parametrize("moment", ["before", "after", "written", "flushed", "headed"])
async def test_every_moment_of_a_stage(moment: str) -> None:
    failpoints = EnvironmentFailpoints(f"seal:{moment}=error")
    for other in ("before", "after", "written", "flushed", "headed"):
        if other != moment:
            await failpoints.reach(f"seal:{other}")
    with pytest.raises(FailpointError, match=f"seal:{moment}"):
        await failpoints.reach(f"seal:{moment}")


@pytest.mark.parametrize("text", ["", ";", "mark_sent:before=kill;"])
async def test_points_without_a_rule_do_nothing(text: str) -> None:
    failpoints: Failpoints = EnvironmentFailpoints(text)
    for _ in range(3):
        await failpoints.reach(POINT)
        failpoints.reach_blocking(POINT)


async def test_an_error_comes_once() -> None:
    failpoints = EnvironmentFailpoints(f"{POINT}=error")
    with pytest.raises(FailpointError):
        await failpoints.reach(POINT)
    for _ in range(3):
        await failpoints.reach(POINT)


@pytest.mark.parametrize("nth", [1, 2, 3, 10])
async def test_the_nth_time(nth: int) -> None:
    """Counted at that point alone."""
    failpoints = EnvironmentFailpoints(f"{POINT}=error@{nth}")
    for _ in range(nth - 1):
        await failpoints.reach(POINT)
        await failpoints.reach("consume:after")
    with pytest.raises(FailpointError):
        await failpoints.reach(POINT)
    await failpoints.reach(POINT)


async def test_rules_of_one_point_count_the_same_times() -> None:
    """The first and the third time mean what they say, whichever rule comes first."""
    for text in (f"{POINT}=error;{POINT}=error@3", f"{POINT}=error@3;{POINT}=error"):
        failpoints = EnvironmentFailpoints(text)
        fired = []
        for _ in range(4):
            try:
                await failpoints.reach(POINT)
                fired.append(False)
            except FailpointError:
                fired.append(True)
        assert fired == [True, False, True, False]


async def test_loop_and_committer_thread_reach_the_same_points() -> None:
    failpoints = EnvironmentFailpoints(f"{POINT}=error@2")
    failpoints.reach_blocking(POINT)
    with pytest.raises(FailpointError):
        await failpoints.reach(POINT)
    failpoints = EnvironmentFailpoints(f"{POINT}=error")
    with pytest.raises(FailpointError):
        failpoints.reach_blocking(POINT)


async def test_a_stall_on_the_loop_lets_the_rest_go_on() -> None:
    """It never returns, but it can be cancelled; others at the same point pass."""
    failpoints = EnvironmentFailpoints(f"{POINT}=stall")
    stalled = asyncio.create_task(failpoints.reach(POINT))
    await asyncio.sleep(0)
    for _ in range(50):
        await failpoints.reach(POINT)
        await asyncio.sleep(0)
    assert not stalled.done()
    stalled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stalled


def test_a_stall_in_a_thread_blocks_it() -> None:
    """A daemon thread, since it never ends."""
    failpoints = EnvironmentFailpoints(f"{POINT}=stall")
    passed = threading.Event()
    reached = threading.Event()

    def commit() -> None:
        reached.set()
        failpoints.reach_blocking(POINT)
        passed.set()

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    assert reached.wait(30)
    thread.join(0.2)
    assert thread.is_alive()
    assert not passed.is_set()


CHILD = """
import asyncio, atexit, sys
from kblockd.failpoints import EnvironmentFailpoints

atexit.register(print, "atexit")
failpoints = EnvironmentFailpoints(sys.argv[1])

async def main():
    for n in (1, 2, 3):
        print(n, flush=True)
        try:
            if sys.argv[2] == "loop":
                await failpoints.reach("consume:before")
            else:
                await asyncio.to_thread(failpoints.reach_blocking, "consume:before")
        finally:
            print("passed", n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_kill_is_sigkill(where: str) -> None:
    """No finally, no atexit, no flush: as the kernel does it."""
    command = [sys.executable, "-c", CHILD, f"{POINT}=kill@2", where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == "1\npassed 1\n2\n"
    assert done.stderr == ""


async def test_outside_of_development_no_point_does_anything() -> None:
    failpoints: Failpoints = NoFailpoints()
    await failpoints.reach(POINT)
    failpoints.reach_blocking(POINT)
