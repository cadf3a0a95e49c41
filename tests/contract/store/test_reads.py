"""Reads: nothing undurable is answered, scans keep to their prefix, records and payloads come back byte for byte."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from kblockd.store.protocol import Absent, Append, AtMost, AtVersion, Conflict, Key, Payload, Store, StoreFailed
from kblockd.store.schema import encode_key
from tests.contract.store.backends import Backend
from tests.contract.store.folding import add, put, record, remove

A: Key = ("thing", "a")
COUNT: Key = ("count", "of")
PAYLOAD: Key = ("payload", "execution-1", "0" * 64)


async def blocked(*coroutines: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Tasks that are still waiting after the loop has had every chance to run them."""
    tasks = [asyncio.create_task(c) for c in coroutines]
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert not [task for task in tasks if task.done()]
    return tasks


async def blocked_read_of_a_node(store: Store) -> asyncio.Task[bytes | None]:
    """Until it is written the node of record 1 is absent; from then on it may not be answered."""
    while True:
        (task,) = tasks = [asyncio.create_task(store.raw(("node", 0, 1)))]
        await asyncio.wait(tasks, timeout=0.02)
        if not task.done():
            return task
        assert task.result() is None


async def test_no_read_answers_before_the_disk_does(store: Store, backend: Backend) -> None:
    await (await store.commit([], [record(put(("thing", "old"), n=0))])).durable()
    backend.hold()
    await store.commit(
        [], [record(put(A, n=1), add(COUNT)), record(remove(("thing", "old")))], [Payload(PAYLOAD, b"p")], label="held"
    )
    tasks = await blocked(
        store.get(A),
        store.get(("thing", "old")),
        store.scan(("thing",)),
        store.payload(PAYLOAD),
        store.commit([Absent(A)], [record(put(A, n=2))]),
        store.commit([AtVersion(("thing", "old"), 0)], [record(put(A, n=2))]),
        store.commit([AtMost(COUNT, 0)], [record(put(("other",), n=2))]),
    )
    waiting = await blocked_read_of_a_node(store)
    # What the group did not write is answered at once, and nothing of it counts as durable.
    assert await store.get(("thing", "absent")) is None
    assert await store.leaf(1) is None
    assert store.size() == 1
    backend.release()
    got, gone, scanned, payload, *refused = await asyncio.gather(*tasks, return_exceptions=True)
    assert got == (1, {"n": 1, "records": [1]})
    assert gone is None
    assert scanned == [(A, 1, {"n": 1, "records": [1]})]
    assert payload == b"p"
    assert await waiting is not None
    assert all(isinstance(error, Conflict) for error in refused)
    assert store.size() == 3


async def test_led_11_a_scan_keeps_to_its_prefix_before_and_after_a_reopen(store: Store, backend: Backend) -> None:
    """LED-11: run-1, run-10 and run-2."""
    for run in ("run-1", "run-10", "run-2", "run"):
        for step in range(3):
            await store.commit([], [record(put(("step", run, step), of=run))])
    await (await store.commit([], [record(put(("steps", "run-1"), of="another table"))])).durable()
    expected = [("step", "run-1", step) for step in range(3)]
    assert [key for key, _, _ in await store.scan(("step", "run-1"))] == expected
    await store.close()
    again = await backend.open()
    assert [key for key, _, _ in await again.scan(("step", "run-1"))] == expected
    assert len(await again.scan(("step",))) == 12
    await again.close()


async def test_a_scan_goes_on_after_a_key_in_both_directions(store: Store) -> None:
    for n in (0, 1, 255, 256, 2**40):
        ticket = await store.commit([], [record(put(("n", n), n=n))])
    await ticket.durable()

    async def numbers(**options: Any) -> list[int]:
        return [row["n"] for _, _, row in await store.scan(("n",), **options)]

    assert await numbers() == [0, 1, 255, 256, 2**40]
    assert await numbers(reverse=True) == [2**40, 256, 255, 1, 0]
    assert await numbers(limit=2) == [0, 1]
    assert await numbers(after=("n", 1), limit=2) == [255, 256]
    assert await numbers(after=("n", 256), reverse=True, limit=2) == [255, 1]
    assert await numbers(after=("n", 100)) == [255, 256, 2**40]
    assert await numbers(after=("n", 100), reverse=True) == [1, 0]
    assert await numbers(after=("n", 2**40)) == []


async def test_scans_agree_with_a_model_while_groups_are_pending(store: Store, backend: Backend) -> None:
    chance = random.Random(4)
    model: dict[Key, dict[str, Any]] = {}
    keys: list[Key] = [("m", text, n) for text in ("a", "ab", "b") for n in range(6)]
    for turn in range(60):
        backend.hold()
        for _ in range(chance.randrange(1, 6)):
            key = chance.choice(keys)
            if key in model and chance.random() < 0.4:
                await store.commit([], [record(remove(key))], label="held")
                del model[key]
            else:
                await store.commit([], [record(put(key, turn=turn))], label="held")
                model[key] = {"turn": turn}
        prefix = chance.choice([("m",), ("m", "a"), ("m", "ab"), ("m", "b")])
        after = chance.choice([None, chance.choice(keys)])
        limit, reverse = chance.choice([1, 3, 1000]), chance.random() < 0.5
        scan = asyncio.create_task(store.scan(prefix, after=after, limit=limit, reverse=reverse))
        await asyncio.sleep(0)
        backend.release()
        found = [(key, row["turn"]) for key, _, row in await scan]
        expected = sorted((key for key in model if key[: len(prefix)] == prefix), key=encode_key, reverse=reverse)
        if after is not None:
            bound = encode_key(after)
            expected = [k for k in expected if (encode_key(k) < bound if reverse else encode_key(k) > bound)]
        assert found == [(key, model[key]["turn"]) for key in expected[:limit]]


async def test_rcp_04_records_come_back_byte_for_byte(store: Store, backend: Backend) -> None:
    """RCP-04, R236: the hash is over the stored bytes, whatever their form. Aux is beside the leaf, not in it."""
    odd = b'{"ops":[ ],"at":"2026-11-29T20:15:00.123456789Z","x":0.1e-7,"text":"\xc3\xa9"}'
    await store.commit([], [Append(odd, b"\x00\xff signature"), record(aux=b"")])
    await (await store.commit([], [record(add(("c", "d")))])).durable()
    assert await store.leaf(0) == Append(odd, b"\x00\xff signature")
    assert await store.leaf(1) == Append(b'{"ops":[]}', b"")
    assert await store.leaf(3) is None
    assert await store.leaf(-1) is None
    await store.close()
    again = await backend.open()
    assert await again.leaf(0) == Append(odd, b"\x00\xff signature")
    assert again.size() == 3
    await again.close()


async def test_a_payload_can_be_deleted_and_its_record_stays(store: Store, backend: Backend) -> None:
    ticket = await store.commit([], [record(put(A, digest="0" * 64))], [Payload(PAYLOAD, b"personal data")])
    await ticket.durable()
    assert await store.payload(PAYLOAD) == b"personal data"
    await store.delete_payload(PAYLOAD)
    assert await store.payload(PAYLOAD) is None
    await store.close()
    again = await backend.open()
    assert await again.payload(PAYLOAD) is None
    assert await again.get(A) is not None
    assert await again.leaf(0) is not None
    await again.close()


async def test_payloads_are_deleted_in_order(store: Store) -> None:
    await store.commit([], [], [Payload(PAYLOAD, b"1")])
    deletion = asyncio.create_task(store.delete_payload(PAYLOAD))
    await asyncio.sleep(0)
    await (await store.commit([], [], [Payload(PAYLOAD, b"2")])).durable()
    await deletion
    assert await store.payload(PAYLOAD) == b"2"


async def test_the_raw_tables_hold_no_rows(store: Store) -> None:
    for table in ("leaf", "node", "payload", "meta"):
        with pytest.raises(ValueError, match=table):
            await store.get((table, 0))
        with pytest.raises(ValueError, match=table):
            await store.scan((table,))
        with pytest.raises(ValueError, match=table):
            await store.commit([], [record(put((table, 0), n=1))])
    with pytest.raises(ValueError, match="payload"):
        await store.commit([], [], [Payload(("thing", "a", "b"), b"")])
    assert store.size() == 0


async def test_a_backup_is_a_store_of_one_instant(store: Store, backend: Backend, tmp_path: Any) -> None:
    running = True

    async def write() -> None:
        n = 0
        while running:
            pair = [record(put(("left", n), n=n)), record(put(("right", n), n=n))]
            await (await store.commit([], pair)).durable()
            n += 1

    writer = asyncio.create_task(write())
    while store.size() < 100:
        await asyncio.sleep(0.001)
    target = str(tmp_path / "copy")
    await store.backup(target)
    running = False
    await writer
    with pytest.raises(FileExistsError):
        await store.backup(target)
    copy = await backend.open_copy(target)
    assert 100 <= copy.size() <= store.size()
    assert copy.size() % 2 == 0
    lefts, rights = await copy.scan(("left",), limit=10**6), await copy.scan(("right",), limit=10**6)
    assert len(lefts) == len(rights) == copy.size() // 2
    await (await copy.commit([], [record(put(A, n=1))])).durable()
    assert await store.get(A) is None
    await copy.close()


async def test_led_13_reads_under_way_while_the_store_closes_end_with_a_status(store: Store, backend: Backend) -> None:
    for n in range(50):
        await store.commit([], [record(put(("n", n), n=n))])
    backend.hold()
    await store.commit([], [record(put(("n", 50), n=50))], label="held")
    reads = await blocked(*[store.scan(("n",)) for _ in range(20)])
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    backend.release()
    await closing
    assert [len(rows) for rows in await asyncio.gather(*reads)] == [51] * 20
    with pytest.raises(StoreFailed):
        await store.scan(("n",))


async def test_led_14_scans_that_nobody_waits_for_pin_nothing(store: Store, backend: Backend) -> None:
    """LED-14: the reopen fails while an iterator of the first open lives."""
    for n in range(200):
        await store.commit([], [record(put(("n", n), n=n))])
    await (await store.commit([], [record()])).durable()
    for _ in range(100):
        scans = [asyncio.create_task(store.scan(("n",), limit=5)) for _ in range(100)]
        await asyncio.sleep(0)
        for scan in scans:
            scan.cancel()
        await asyncio.gather(*scans, return_exceptions=True)
    await store.close()
    again = await backend.open()
    assert len(await again.scan(("n",))) == 200
    await again.close()
