"""Erasing the inputs of policy questions: those that are due, no others, once, and again after an interruption."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kblockd.domain.clock import rfc3339
from kblockd.domain.ledger import fold, rows
from kblockd.execution.retention import PROGRESS_RECORDS, WHAT, InputRetention
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Append, Key, Payload, Store
from kblockd.store.rocks import RocksStore
from tests.records import Record, RecordType, filled, read
from tests.unit.domain.histories import START, hexdigest
from tests.unit.rpc.fakes import FakeClock

DAY = dt.timedelta(days=1)


class Clock(FakeClock):
    """Stands where it is put."""

    def __init__(self, at: dt.datetime) -> None:
        self.at = at

    def now(self) -> dt.datetime:
        return self.at


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A real one, empty."""
    opened = await RocksStore.open(tmp_path, fold=fold, tree=MerkleTree(), ballast_bytes=0)
    yield opened
    await opened.close()


async def decided(store: Store, at: dt.datetime, number: int = 1) -> list[Key]:
    """Refusals of stage 8 with their inputs, in one commit, and beside each a payload of another kind."""
    inputs, payloads, appends = [], [], []
    for n in range(number):
        digest = hexdigest(f"input {at} {n}")
        body = filled(RecordType.CALL_REFUSED, reason="POLICY_CHANGED", input_payload=digest)
        appends.append(Append(Record(RecordType.CALL_REFUSED, rfc3339(at), "acme", "exe_1", 1, 8, body).leaf()))
        inputs.append(rows.payload("exe_1", digest))
        payloads += [Payload(inputs[-1], b"{}"), Payload(rows.payload("exe_1", hexdigest(digest)), b"snapshot")]
    ticket = await store.commit([], appends, payloads)
    await ticket.durable()
    return inputs


async def left(store: Store, keys: list[Key]) -> int:
    return sum([await store.payload(key) is not None for key in keys])


async def test_what_is_due_goes_and_the_record_of_it_says_how_much(store: Store) -> None:
    """More than one batch; other payloads stay, and so does what is a moment too young."""
    clock = Clock(START + 30 * DAY)
    old = await decided(store, START - dt.timedelta(microseconds=1), 300)
    young = await decided(store, START, 3)
    assert await InputRetention(store, clock, 30).erase() == 300
    assert (await left(store, old), await left(store, young)) == (0, 3)
    others = [rows.payload("exe_1", hexdigest(str(key[2]))) for key in (*old, *young)]
    assert await left(store, others) == 303
    pruned = await store.leaf(store.size() - 1)
    assert pruned is not None
    body = {"what": WHAT, "before_index": 300, "older_than": rfc3339(START), "count": 300}
    assert read(pruned.leaf).body == body
    found = await store.get(rows.pruned(WHAT))
    assert found is not None
    assert found[1].before_index == 300


async def test_a_pass_goes_on_where_the_last_one_ended_also_after_a_start(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing due is nothing on record; no record is read twice."""
    clock = Clock(START + 30 * DAY)
    await decided(store, START - DAY, 2)
    first = InputRetention(store, clock, 30)
    assert await first.erase() == 2
    size = store.size()
    young = await decided(store, clock.at + DAY, 2)
    looked, leaf = [], store.leaf

    async def spied(index: int) -> Append | None:
        looked.append(index)
        return await leaf(index)

    monkeypatch.setattr(store, "leaf", spied)
    assert await first.erase() == 0
    assert await InputRetention(store, clock, 30).erase() == 0
    assert min(looked) == 2
    assert store.size() == size + 2
    clock.at += 32 * DAY
    assert await InputRetention(store, clock, 30).erase() == 2
    assert await left(store, young) == 0


async def test_a_pass_that_was_cut_short_is_made_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Erased, and not yet on record: the next one finds it gone, erases the rest and counts what it erased."""
    clock = Clock(START + 30 * DAY)
    old = await decided(store, START - DAY, 5)
    delete, budget = store.delete_payload, iter(range(2))

    async def failing(key: Key) -> None:
        if next(budget, None) is None:
            raise OSError("the disk is gone")
        await delete(key)

    retention = InputRetention(store, clock, 30)
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete_payload", failing)
        with pytest.raises(OSError, match="gone"):
            await retention.erase()
    assert await store.get(rows.pruned(WHAT)) is None
    remaining = await left(store, old)
    assert 0 < remaining < 5
    assert await retention.erase() == remaining
    assert await left(store, old) == 0


async def test_zero_days_erase_everything_that_an_earlier_setting_kept(store: Store) -> None:
    keys = await decided(store, START, 3)
    assert await InputRetention(store, Clock(START + dt.timedelta(seconds=1)), 0).erase() == 3
    assert await left(store, keys) == 0


async def test_records_without_inputs_are_gone_through_once(store: Store) -> None:
    """A ledger whose inputs were never kept: the next life begins where this one ended."""
    started = Record(RecordType.DAEMON_STOPPED, rfc3339(START), body={"incarnation": 1}).leaf()
    ticket = await store.commit([], [Append(started)] * PROGRESS_RECORDS)
    await ticket.durable()
    assert await InputRetention(store, Clock(START + DAY), 0).erase() == 0
    found = await store.get(rows.pruned(WHAT))
    assert found is not None
    assert (found[1].before_index, found[1].count) == (PROGRESS_RECORDS, 0)
    size = store.size()
    assert await InputRetention(store, Clock(START + DAY), 0).erase() == 0
    assert store.size() == size
