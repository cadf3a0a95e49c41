"""LED-01: the order of syncs, and who is told when."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import verify
from kblockd.store import opening
from kblockd.store.rocks import RocksStore
from tests.contract.store.backends import Gate
from tests.contract.store.folding import decode, fold, put, record


class Recorded:
    """The real database; what the committer asks of it is noted."""

    def __init__(self, database: Any, calls: list[str]) -> None:
        self._database = database
        self._calls = calls

    def write(self, batch: Any, options: Any) -> None:
        self._calls.append(f"write sync={options.sync}")
        self._database.write(batch, options)

    def flush_wal(self, sync: bool) -> None:
        self._calls.append(f"flush_wal {sync}")
        self._database.flush_wal(sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


async def test_led_01_log_and_head_are_synced_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LED-01. One write, one flush, one head, then the answer; never ``sync=True`` (it holds the interpreter)."""
    calls: list[str] = []
    real_open, real_sync = opening.open_writable, os.fdatasync
    monkeypatch.setattr(opening, "open_writable", lambda path, **options: Recorded(real_open(path, **options), calls))

    def synced(descriptor: int) -> None:
        calls.append("fdatasync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(opening, "StoreView", lambda database: _ORIGINAL_VIEW(database._database))
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    calls.clear()
    for n in range(3):
        ticket = await store.commit([], [record(put(("thing", n), n=n))])
    assert calls == []
    await ticket.durable()
    calls.append("told")
    assert calls == ["write sync=False", "flush_wal True", "fdatasync head", "told"]
    await store.close()


_ORIGINAL_VIEW = opening.StoreView


async def test_what_is_committed_during_a_flush_shares_the_next_with_those_who_waited_for_it(tmp_path: Path) -> None:
    """kblockd/store/README.md#commits: a second caller comes while the first one's group is written; the first goes on
    as soon as it is durable. Their next commits become durable by one flush, not by one each."""
    gate = Gate()
    store = await RocksStore.open(
        tmp_path, fold=fold, decode=decode, tree=MerkleTree(), failpoints=gate, ballast_bytes=0
    )
    before = store.head().sequence
    gate.hold()
    first = await store.commit([], [record(put(("thing", 1), n=1))], label="held")

    async def goes_on() -> None:
        await first.durable()
        await (await store.commit([], [record(put(("thing", 1), n=2))])).durable()

    async def comes_later() -> None:
        await (await store.commit([], [record(put(("thing", 2), n=1))])).durable()

    tasks = [asyncio.create_task(goes_on())]
    await gate.reached()
    tasks.append(asyncio.create_task(comes_later()))
    for _ in range(5):
        await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(*tasks)
    assert store.head().sequence == before + 2
    await store.close()


async def test_the_incarnation_counts_opens_and_is_on_disk_before_the_store_is(tmp_path: Path) -> None:
    """kblockd/store/README.md#head: fencing token = (incarnation, counter). LSE-03: no clock of another process is in
    it."""
    for expected in (1, 2, 3):
        store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
        assert store.incarnation == expected == opening.read_head(tmp_path / "head").incarnation
        assert (store.created, store.clean) == (expected == 1, True)
        await store.close()


async def test_a_stop_is_clean_only_with_the_mark_of_this_head(tmp_path: Path) -> None:
    async def opened() -> RocksStore:
        return await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)

    store = await opened()
    await store.close()
    mark = (tmp_path / "clean").read_bytes()
    store = await opened()
    await (await store.commit([], [record()])).durable()
    await store.close()
    (tmp_path / "clean").write_bytes(mark)
    store = await opened()
    assert not store.clean
    await store.close()
    (tmp_path / "clean").unlink()
    store = await opened()
    assert not store.clean
    await store.close()
    store = await opened()
    assert store.clean
    await store.close()


async def test_free_space_and_ballast(tmp_path: Path) -> None:
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=1 << 20)
    assert (tmp_path / "ballast").stat().st_size == 1 << 20
    assert 0 < store.free_bytes() <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    await store.close()
    opening.release_ballast(tmp_path)
    assert not (tmp_path / "ballast").exists()
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=1 << 20)
    assert (tmp_path / "ballast").exists()
    await store.close()


async def test_a_frozen_view_verifies_while_the_store_goes_on(tmp_path: Path) -> None:
    """kblockd/store/README.md#start: after an unclean stop the full verification runs in the background."""
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    running = True

    async def write() -> None:
        while running:
            await (await store.commit([], [record(put(("thing", store.size() % 50), n=store.size()))])).durable()

    writer = asyncio.create_task(write())
    for _ in range(5):
        target = store.size() + 50
        while store.size() < target:
            await asyncio.sleep(0.001)
        async with store.frozen() as (view, head):
            report = await asyncio.to_thread(verify, view, fold, heads={head.size: head.root})
            assert (report.ok, report.size) == (True, head.size), report.differences
    running = False
    await writer
    await store.close()
    assert not list(tmp_path.glob("frozen-*"))


async def test_what_a_killed_verification_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "frozen-1-7" / "store").mkdir(parents=True)
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    assert not list(tmp_path.glob("frozen-*"))
    await store.close()
