"""Places that principals share: nobody waits behind another's queue, and no place is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.admission import Slots, on_behalf_of


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def _as(who: str, slots: Slots) -> asyncio.Task[bool]:
    with on_behalf_of(who):
        return asyncio.ensure_future(slots.acquire())


def _release(who: str, slots: Slots) -> None:
    with on_behalf_of(who):
        slots.release()


async def test_agt_04_a_principal_does_not_wait_behind_anothers_queue() -> None:
    """One has asked for a hundred places, the other for one: it gets the next that comes free."""
    slots = Slots(4, 4)
    crowd = [_as("hostile", slots) for _ in range(100)]
    await _turn()
    assert sum(task.done() for task in crowd) == 4
    late = _as("good", slots)
    await _turn()
    assert not late.done()
    _release("hostile", slots)
    _release("hostile", slots)
    await _turn()
    assert late.done()
    assert sum(task.done() for task in crowd) == 5
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_agt_04_a_share_leaves_room_for_the_others_at_once() -> None:
    slots = Slots(4, 3)
    crowd = [_as("hostile", slots) for _ in range(10)]
    await _turn()
    assert sum(task.done() for task in crowd) == 3
    with on_behalf_of("hostile"):
        assert slots.locked()
        assert not slots.try_acquire()
    with on_behalf_of("good"):
        assert slots.try_acquire()
    _release("hostile", slots)  # goes to its own next one
    await _turn()
    assert sum(task.done() for task in crowd) == 4
    assert slots.in_use == 4
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_who_has_just_been_given_a_place_and_is_cancelled_gives_it_back() -> None:
    slots = Slots(1, 1)
    first, second = _as("a", slots), _as("a", slots)
    await _turn()
    _release("a", slots)  # second has its turn, and has not run since
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert first.done()
    assert slots.in_use == 0
    with on_behalf_of("b"):
        assert slots.try_acquire()


async def test_who_is_cancelled_and_has_not_run_since_is_not_given_a_place() -> None:
    slots = Slots(1, 1)
    _as("a", slots)
    second = _as("a", slots)
    await _turn()
    second.cancel()
    _release("a", slots)
    await asyncio.gather(second, return_exceptions=True)
    assert slots.in_use == 0


async def test_what_nobody_has_cannot_be_given_back() -> None:
    with pytest.raises(AssertionError):
        Slots(1, 1).release()


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["take", "give", "cancel", "run"])), max_size=60)


@given(STEPS, st.integers(1, 4), st.integers(1, 4))
def test_no_order_of_events_loses_a_place_or_makes_one(steps: list[tuple[str, str]], total: int, share: int) -> None:
    asyncio.run(_played(steps, total, min(share, total)))


async def _played(steps: list[tuple[str, str]], total: int, share: int) -> None:
    slots = Slots(total, share)
    asked: dict[str, list[asyncio.Task[bool]]] = {who: [] for who in "abc"}
    for who, step in steps:
        mine = asked[who]
        holding = [task for task in mine if task.done() and not task.cancelled()]
        if step == "take":
            mine.append(_as(who, slots))
        elif step == "give" and holding:
            mine.remove(holding[0])
            _release(who, slots)
        elif step == "cancel" and (waiting := [task for task in mine if not task.done()]):
            waiting[-1].cancel()
            mine.remove(waiting[-1])
        else:
            await _turn()
    await _turn()
    have = {who: sum(task.done() for task in mine) for who, mine in asked.items()}
    assert slots.in_use == sum(have.values()) <= total
    assert all(count <= share for count in have.values())
    if slots.in_use < total:  # then whoever waits has its whole share
        assert all(have[who] == share for who, mine in asked.items() if len(mine) > have[who])
    await _end(*(task for mine in asked.values() for task in mine))


async def _end(*tasks: Awaitable[bool]) -> None:
    for task in tasks:
        if isinstance(task, asyncio.Task):
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
