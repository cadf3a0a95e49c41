"""Watchers wake at a change, miss none, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time

from kblockd.execution.changes import Changes, changed


async def watch(changes: Changes, execution_id: str, seconds: float = 30) -> None:
    """Until the first change."""
    with changes.watching(execution_id) as event:
        await changed(event, seconds)


async def test_everybody_who_watches_it_wakes_and_nobody_else() -> None:
    """One change, all its watchers."""
    changes = Changes()
    mine = [asyncio.create_task(watch(changes, "exe_1")) for _ in range(3)]
    other = asyncio.create_task(watch(changes, "exe_2"))
    await asyncio.sleep(0)
    changes.notify("exe_1")
    await asyncio.wait_for(asyncio.gather(*mine), 5)
    assert not other.done()
    other.cancel()


async def test_a_change_between_two_reads_is_not_missed() -> None:
    """What happens while a watcher reads and sends wakes it at once, not at its next look."""
    changes = Changes()
    with changes.watching("exe_1") as event:
        event.clear()
        changes.notify("exe_1")  # while it reads
        started = time.monotonic()
        await changed(event, 30)
        assert time.monotonic() - started < 10
        event.clear()
        await changed(event, 0.01)  # nothing new


async def test_a_change_that_nobody_watches_is_forgotten() -> None:
    """LED-14: no list grows by executions."""
    changes = Changes()
    for number in range(1000):
        changes.notify(f"exe_{number}")
    assert not changes._watching


async def test_a_watcher_that_goes_away_leaves_nothing_behind() -> None:
    """LED-14: dropped streams cost nothing."""
    changes = Changes()
    gone = [asyncio.create_task(watch(changes, "exe_1")) for _ in range(100)]
    stays = asyncio.create_task(watch(changes, "exe_1"))
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    assert sum(map(len, changes._watching.values())) == 1
    changes.notify("exe_1")
    await asyncio.wait_for(stays, 5)
    assert not changes._watching
