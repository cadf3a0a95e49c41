"""Conditions, ordering, atomicity and the failure of a fold."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kblockd.store.protocol import Absent, Append, AtMost, AtVersion, Conflict, Key, Payload, Store, StoreFailed
from tests.contract.store.backends import Backend
from tests.contract.store.folding import FoldDefect, add, defect, put, record, remove

A: Key = ("thing", "a")
B: Key = ("thing", "b")


async def test_a_row_is_what_the_fold_makes_and_its_version_is_the_record(store: Store) -> None:
    assert await store.get(A) is None
    first = await store.commit([Absent(A)], [record(put(A, colour="red"))])
    second = await store.commit([], [record(put(B, colour="blue")), record(put(A, colour="green"))])
    assert (first.first_index, second.first_index) == (0, 1)
    await second.durable()
    assert await store.get(A) == (2, {"colour": "green", "records": [0, 2]})
    assert await store.get(B) == (1, {"colour": "blue", "records": [1]})
    await (await store.commit([], [record(remove(A))])).durable()
    assert await store.get(A) is None


async def test_a_commit_is_ordered_when_it_returns_and_later_commits_see_it(store: Store) -> None:
    first = await store.commit([], [record(put(A, n=1))])
    with pytest.raises(Conflict):
        await store.commit([Absent(A)], [record(put(A, n=2))])
    later = await store.commit([AtVersion(A, first.first_index)], [record(put(A, n=3))])
    await later.durable()
    assert store.size() == 2


async def test_a_condition_that_fails_names_itself_and_nothing_is_written(store: Store) -> None:
    ticket = await store.commit([], [record(put(A, n=1))])
    refused = [Absent(B), AtVersion(A, ticket.first_index + 1), AtVersion(B, 0)]
    with pytest.raises(Conflict) as raised:
        await store.commit(refused, [record(put(B, n=1))], [Payload(("payload", "x", "d"), b"secret")])
    assert raised.value.condition == refused[1]
    assert await store.get(B) is None
    assert await store.payload(("payload", "x", "d")) is None
    assert store.size() == 1


async def test_a_commit_lands_whole(store: Store) -> None:
    with pytest.raises(FoldDefect):
        await store.commit([], [record(put(A, n=1)), record(defect())], [Payload(("payload", "x", "d"), b"1")])
    ticket = await store.commit([Absent(A)], [record(put(A, n=2))])
    await ticket.durable()
    assert ticket.first_index == 0
    assert await store.payload(("payload", "x", "d")) is None


async def test_a_counter_never_passes_its_limit(store: Store) -> None:
    budget: Key = ("budget", "acme")

    async def spend() -> bool:
        try:
            ticket = await store.commit([AtMost(budget, 10)], [record(add(budget))])
        except Conflict:
            return False
        await ticket.durable()
        return True

    assert sum(await asyncio.gather(*[spend() for _ in range(100)])) == 10
    with pytest.raises(Conflict) as raised:
        await store.commit([AtMost(budget, 10)], [record(add(budget))])
    assert raised.value.condition == AtMost(budget, 10)
    found = await store.get(budget)
    assert found is not None
    assert found[1]["count"] == 10
    await (await store.commit([AtMost(budget, 10)], [record(add(budget, -4))])).durable()
    assert sum(await asyncio.gather(*[spend() for _ in range(20)])) == 4


async def test_a_counter_that_is_absent_counts_as_zero(store: Store) -> None:
    ticket = await store.commit([AtMost(("budget", "none"), 0)], [record(put(A, n=1))])
    await ticket.durable()


async def test_led_04_one_winner_each_round(store: Store) -> None:
    """LED-04: two tasks and two threads reserve one key, 2,000 rounds. R116, R122."""
    loop = asyncio.get_running_loop()
    start = threading.Barrier(2)
    won: list[tuple[int, str]] = []

    async def reserve(number: int, who: str) -> None:
        key: Key = ("reservation", number)
        try:
            ticket = await store.commit([Absent(key)], [record(put(key, by=who))])
        except Conflict:
            found = await store.get(key)
            assert found is not None
            assert found[1]["by"] != who
            return
        await ticket.durable()
        won.append((number, who))

    def from_thread(who: str) -> None:
        for number in range(1000):
            start.wait(60)
            asyncio.run_coroutine_threadsafe(reserve(number, who), loop).result(60)

    async def from_tasks() -> None:
        for number in range(1000, 2000):
            await asyncio.gather(reserve(number, "task-1"), reserve(number, "task-2"))

    await asyncio.gather(
        asyncio.to_thread(from_thread, "thread-1"), asyncio.to_thread(from_thread, "thread-2"), from_tasks()
    )
    assert sorted(number for number, _ in won) == list(range(2000))
    for number, who in won:
        found = await store.get(("reservation", number))
        assert found is not None
        assert found[1]["by"] == who


async def test_groups_are_serializable(store: Store) -> None:
    """Each increment read its version and relied on it; none is lost, within a group or across groups."""
    await (await store.commit([], [record(put(A, n=0))])).durable()

    async def increment() -> int:
        conflicts = 0
        while True:
            found = await store.get(A)
            assert found is not None
            try:
                ticket = await store.commit([AtVersion(A, found[0])], [record(put(A, n=found[1]["n"] + 1))])
            except Conflict:
                conflicts += 1
                continue
            await ticket.durable()
            return conflicts

    conflicts = await asyncio.gather(*[increment() for _ in range(40)])
    found = await store.get(A)
    assert found is not None
    assert found[1]["n"] == 40
    assert sum(conflicts) > 0


async def test_positions_are_gapless_and_in_commit_order(store: Store) -> None:
    tickets = [await store.commit([], [record(put(("n", i), i=i))] * (i % 3)) for i in range(30)]
    await tickets[-1].durable()
    assert [t.first_index for t in tickets] == [sum(i % 3 for i in range(n)) for n in range(30)]
    assert store.size() == sum(i % 3 for i in range(30))


async def test_a_record_beyond_64_kib_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="65535"):
        await store.commit([], [Append(b"x" * 65_536)])
    assert store.size() == 0


async def test_a_cancelled_waiter_lets_its_commit_end_and_takes_nobody_with_it(store: Store, backend: Backend) -> None:
    backend.hold()
    ticket = await store.commit([], [record(put(A, n=1))], label="held")
    cancelled = asyncio.create_task(ticket.durable())
    patient = asyncio.create_task(ticket.durable())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not patient.done()
    backend.release()
    await patient
    await ticket.durable()
    assert await store.get(A) is not None


async def test_close_lets_pending_commits_end_and_is_idempotent(store: Store, backend: Backend) -> None:
    ticket = await store.commit([], [record(put(A, n=1))])
    await asyncio.gather(store.close(), store.close())
    await ticket.durable()
    await store.close()
    with pytest.raises(StoreFailed) as raised:
        await store.get(A)
    assert not raised.value.unknown
    with pytest.raises(StoreFailed):
        await store.commit([], [record(put(B, n=1))])
    again = await backend.open()
    assert await again.get(A) == (0, {"n": 1, "records": [0]})
    await again.close()
