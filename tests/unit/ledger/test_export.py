"""Records out of a store, whole or damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from kblockd.ledger.export import Condition, Exported, export
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import verify
from kblockd.store import schema
from kblockd.store.database import open_view, open_writable
from kblockd.store.head import read_head
from kblockd.store.protocol import Append, StoreRefused
from kblockd.store.rocks import RocksStore
from kblockd.store.salvage import salvage
from tests.contract.store.folding import decode, fold, put, record

RECORDS = 20


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    store = await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    for n in range(RECORDS):
        ticket = await store.commit([], [record(put(("thing", n), n=n), aux=b"aux%d" % n)])
    await ticket.durable()
    await store.close()
    return tmp_path


def exported(folder: Path, head_size: int = RECORDS) -> tuple[Exported, dict[int, tuple[Append, Condition]], str]:
    found: dict[int, tuple[Append, Condition]] = {}
    with salvage(folder / "store", folder) as (view, how):
        result = export(view, head_size, lambda index, one, condition: found.update({index: (one, condition)}))
    assert not list(folder.glob("kblockd-export-*"))
    return result, found, how


def alter(folder: Path, change: Callable[[Rdict], None]) -> None:
    database = open_writable(folder / "store")
    change(database)
    database.close()


def test_a_sound_store_is_exported_whole(folder: Path) -> None:
    result, found, how = exported(folder)
    assert (result.whole, result.written, how) == (True, RECORDS, "the store as it is")
    tree = MerkleTree()
    tree.append(0, [found[n][0].leaf for n in range(RECORDS)])
    assert tree.root() == read_head(folder / "head").root
    assert [found[n][0].aux for n in range(RECORDS)] == [b"aux%d" % n for n in range(RECORDS)]


def test_each_record_that_is_not_right_is_named(folder: Path) -> None:
    def change(database: Rdict) -> None:
        database.delete(schema.leaf_key(3))
        database.put(schema.leaf_key(5), schema.encode_leaf(b"{}", b""))
        database.put(schema.leaf_key(6), b"x")
        database.delete(schema.encode_key(("node", 0, 7)))

    alter(folder, change)
    result, found, _ = exported(folder, RECORDS + 2)
    assert not result.whole
    assert result.written == RECORDS - 2 == len(found)
    assert result.ranges(Condition.MISSING) == [(3, 3), (RECORDS, RECORDS + 1)]
    assert result.ranges(Condition.ALTERED) == [(5, 5)]
    assert result.ranges(Condition.UNREADABLE) == [(6, 6)]
    assert result.ranges(Condition.UNPROVED) == [(7, 7)]


def test_a_store_that_does_not_open_is_put_together_from_its_files(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "store").glob("*.*") if path.name != "LOG"}
    (folder / "store" / "CURRENT").write_bytes(b"")
    result, _, how = exported(folder)
    assert result.whole
    assert "does not open" in how
    after = {path.name: path.read_bytes() for path in (folder / "store").glob("*.*") if path.name != "LOG"}
    assert after == before


def test_nothing_readable_is_said(folder: Path) -> None:
    for path in (folder / "store").iterdir():
        path.unlink()
    result, found, _ = exported(folder)
    assert result.ranges(Condition.MISSING) == [(0, RECORDS - 1)]
    assert found == {}


def test_looking_makes_no_store(tmp_path: Path) -> None:
    """A read-only open of RocksDB would leave an empty folder where a store is lost."""
    with pytest.raises(StoreRefused, match="is missing"), open_view(tmp_path / "store"):
        pass
    assert not (tmp_path / "store").exists()


async def test_verification_names_what_cannot_be_read(folder: Path) -> None:
    """LED-10: a corrupt block is a difference like any other, not a traceback."""
    store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    await store.close()
    for table in (folder / "store").glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[30] ^= 1
        table.write_bytes(content)
    with open_view(folder / "store") as view:
        head = read_head(folder / "head")
        report = verify(view, fold, decode=decode, heads={head.size: head.root})
    assert not report.ok
    assert "cannot be read" in str(report.differences[0])
