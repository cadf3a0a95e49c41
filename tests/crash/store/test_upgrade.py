"""The upgrade of a store: what it adds, what it refuses to touch, and a death in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.upgrade import refolding
from kblockd.ledger.verify import verify
from kblockd.store import schema, upgrade
from kblockd.store.database import open_view, open_writable
from kblockd.store.head import HeadFile, read_head
from kblockd.store.lock import DirectoryLock
from kblockd.store.protocol import StoreRefused
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

RECORDS = 40
SEEN = {"seen"}


def fold_of_today(read: Any, index: int, leaf: bytes) -> Any:
    """The old rules, and a table that they did not have."""
    return [*fold(read, index, leaf), (("seen", index), {"records": [index]})]


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """A store of the older format, after an orderly stop."""
    folder = tmp_path / "old"
    folder.mkdir()
    store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    for n in range(RECORDS):
        await (await store.commit([], [record(put(("thing", n), n=n))])).durable()
    await store.close()
    _write(folder, schema.FORMAT_KEY, b"kblockd.store/1")
    return folder


def _write(folder: Path, key: Any, value: bytes) -> None:
    """Somebody's hand."""
    database = open_writable(folder / "store")
    database.put(schema.encode_key(key), value)
    database.flush()
    head = HeadFile.open(folder / "head")
    head.write(head.head.size, int(database.latest_sequence_number()), head.head.root)
    head.close()
    database.close()


def upgraded(folder: Path) -> int:
    head = read_head(folder / "head")
    refold = refolding(fold_of_today, {head.size: head.root}, SEEN)
    return upgrade.upgrade(folder, tree=MerkleTree(), refold=refold, tables=SEEN, scratch_dir=None)


def faults(folder: Path) -> list[str]:
    """What a verification by today's rules finds."""
    head = read_head(folder / "head")
    with open_view(folder / "store") as view:
        return [str(one) for one in verify(view, fold_of_today, heads={head.size: head.root}).differences]


def marker(folder: Path) -> bytes | None:
    with open_view(folder / "store") as view:
        return view.raw(schema.FORMAT_KEY)


async def test_an_older_store_is_refused_until_it_is_upgraded(old: Path) -> None:
    """LED-15: then it opens, with the rows of the new table, and everything that it held."""
    with pytest.raises(StoreRefused, match="kblockd ledger upgrade"):
        await RocksStore.open(old, fold=fold_of_today, tree=MerkleTree(), ballast_bytes=0)
    assert upgraded(old) == RECORDS
    assert faults(old) == []
    store = await RocksStore.open(old, fold=fold_of_today, tree=MerkleTree(), ballast_bytes=0)
    assert await store.get(("thing", 7)) == (7, {"n": 7, "records": [7]})
    assert await store.get(("seen", 7)) == (7, {"records": [7]})
    assert not store.clean  # the head moved on: the first life of the new version verifies everything
    await store.close()
    assert upgraded(old) == 0


async def test_a_row_that_does_not_follow_from_its_records_is_not_laundered(old: Path) -> None:
    _write(old, ("thing", 3), schema.encode_row(3, {"n": 4, "records": [3]}))
    with pytest.raises(StoreRefused, match="does not follow from its records"):
        upgraded(old)
    assert marker(old) == b"kblockd.store/1"


async def test_rows_of_an_interrupted_upgrade_that_are_no_longer_true_are_taken_out(old: Path) -> None:
    """The older version went on after the interruption, and ignored them."""
    for n in (3, RECORDS + 1, RECORDS + 2):
        _write(old, ("seen", n), schema.encode_row(n, {"records": [n]}))
    assert upgraded(old) == RECORDS
    assert faults(old) == []
    store = await RocksStore.open(old, fold=fold_of_today, tree=MerkleTree(), ballast_bytes=0)
    assert await store.get(("seen", RECORDS + 1)) is None
    await store.close()


async def test_a_store_behind_its_head_is_refused(old: Path) -> None:
    head = HeadFile.open(old / "head")
    head.write(RECORDS + 1, head.head.rocks, head.head.root)
    head.close()
    with pytest.raises(StoreRefused, match="behind its head"):
        upgraded(old)
    assert marker(old) == b"kblockd.store/1"


async def test_nobody_upgrades_beside_a_daemon(old: Path) -> None:
    lock = DirectoryLock(old)
    with pytest.raises(StoreRefused, match="in use"):
        upgraded(old)
    lock.release()
    assert upgraded(old) == RECORDS


@pytest.mark.parametrize("death", range(5))
async def test_a_death_at_any_batch_leaves_a_store_that_can_be_upgraded(
    old: Path, monkeypatch: pytest.MonkeyPatch, death: int
) -> None:
    """The marker changes in the last batch, and the head follows each of them."""
    monkeypatch.setattr(upgrade, "_ROWS_A_BATCH", 10)
    write = HeadFile.write
    deaths: Iterator[int] = iter(range(10))

    def dying(self: HeadFile, size: int, rocks: int, root: bytes) -> Any:
        if next(deaths) == death:
            raise KeyboardInterrupt
        return write(self, size, rocks, root)

    monkeypatch.setattr(HeadFile, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        upgraded(old)
    monkeypatch.setattr(HeadFile, "write", write)
    # The last batch was written, its head was not: as after a kill between the two, the store is of today.
    assert marker(old) == (schema.FORMAT if death == 4 else b"kblockd.store/1")
    assert upgraded(old) == (0 if death == 4 else RECORDS)
    assert faults(old) == []
    await (await RocksStore.open(old, fold=fold_of_today, tree=MerkleTree(), ballast_bytes=0)).close()
