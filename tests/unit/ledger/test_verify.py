"""Verification finds every kind of change, and names it without content."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from kblockd.ledger import start
from kblockd.ledger.merkle import MerkleTree, leaf_hash
from kblockd.ledger.verify import MAX_DIFFERENCES, Report, check_rows, stored_rows, verify
from kblockd.store import schema
from kblockd.store.database import open_view, open_writable
from kblockd.store.head import read_head
from kblockd.store.protocol import Key, StoreRefused
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import add, decode, fold, put, record, remove

FREE: Any = {"fold": fold, "decode": decode}
SECRET = "a-word-that-must-not-be-told"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Forty records of all kinds."""
    data = tmp_path / "data"
    data.mkdir()
    store = await RocksStore.open(data, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    for n in range(10):
        key: Key = ("execution", f"e{n}")
        await store.commit([], [record(put(key, state="open", word=SECRET), put(("open", f"e{n}"), of=n))])
        await store.commit([], [record(add(("count", "all")))])
        await store.commit([], [record(put(key, state="closed"), remove(("open", f"e{n}")))])
        ticket = await store.commit([], [record(put(("principal", f"p{n % 3}"), n=n))])
    await ticket.durable()
    await store.close()
    return data


def verified(folder: Path, **options: Any) -> Report:
    head = read_head(folder / "head")
    with open_view(folder / "store") as view:
        return verify(
            view, fold, decode=decode, **{"heads": {head.size: head.root}, "scratch_dir": folder.parent, **options}
        )


def alter(folder: Path, change: Callable[[Rdict], None]) -> None:
    with closing(open_writable(folder / "store")) as database:
        change(database)


def rewrite(key: Key, change: Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]) -> Callable[[Rdict], None]:
    def apply(database: Rdict) -> None:
        version, row = schema.decode_row(key, database.get(schema.encode_key(key)), decode)
        database.put(schema.encode_key(key), schema.encode_row(*change(version, row)))

    return apply


@pytest.mark.parametrize("cached_rows", [1, 4, 20_000])
def test_rcp_04_a_sound_store_verifies_with_any_memory(folder: Path, cached_rows: int) -> None:
    """RCP-04: after a reopen everything still follows from the stored bytes."""
    seen: list[tuple[int, int]] = []
    report = verified(folder, cached_rows=cached_rows, progress=lambda done, size: seen.append((done, size)))
    assert report.ok
    assert (report.size, report.nodes, report.rows) == (40, 40 + 20 + 10 + 5 + 2 + 1, 10 + 1 + 3)
    assert report.root == read_head(folder / "head").root
    assert seen == [(40, 40)]
    assert not list(folder.parent.glob("kblockd-verify-*"))


CLOSED: Key = ("execution", "e3")
CHANGES: dict[str, tuple[Callable[[Rdict], None], str]] = {
    "field": (
        rewrite(CLOSED, lambda v, r: (v, {**r, "state": SECRET})),
        "row ('execution', 'e3'): differs from the fold in state",
    ),
    "new field": (
        rewrite(CLOSED, lambda v, r: (v, {**r, "x": 1})),
        "row ('execution', 'e3'): differs from the fold in x",
    ),
    "version": (
        rewrite(CLOSED, lambda v, r: (v + 1, r)),
        "row ('execution', 'e3'): written by record 15, by the fold it is 14",
    ),
    "counter": (
        rewrite(("count", "all"), lambda v, r: (v, {"count": 9})),
        "row ('count', 'all'): differs from the fold in count",
    ),
    "missing": (lambda db: db.delete(schema.encode_key(CLOSED)), "row ('execution', 'e3'): missing"),
    "unreadable": (
        lambda db: db.put(schema.encode_key(CLOSED), b"\0" * 8 + b'{"a'),
        "row ('execution', 'e3'): cannot be read",
    ),
    "back again": (
        lambda db: db.put(schema.encode_key(("open", "e3")), schema.encode_row(12, {"of": 3, "records": [12]})),
        "row ('open', 'e3'): made by no record",
    ),
    "other table": (
        lambda db: db.put(schema.encode_key(("zzz",)), schema.encode_row(0, {})),
        "row ('zzz',): made by no record",
    ),
    "node": (
        lambda db: db.put(schema.encode_key(("node", 2, 4)), bytes(32)),
        "tree node at level 2, index 4: is not the hash",
    ),
    "missing node": (
        lambda db: db.delete(schema.encode_key(("node", 0, 7))),
        "tree node at level 0, index 7: is not the hash",
    ),
    "surplus node": (
        lambda db: db.put(schema.encode_key(("node", 9, 9)), bytes(32)),
        "tree: 1 nodes that belong to no record",
    ),
    "missing record": (
        lambda db: db.delete(schema.leaf_key(20)),
        "record 20: missing; nothing behind it can be folded",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_found_and_named_without_content(folder: Path, name: str) -> None:
    change, expected = CHANGES[name]
    alter(folder, change)
    report = verified(folder)
    assert not report.ok
    assert any(str(difference).startswith(expected) for difference in report.differences), report.differences
    assert SECRET not in str(report.differences)


def test_rcp_01_a_tail_cut_off_with_its_nodes_is_found_by_the_head(folder: Path) -> None:
    """RCP-01: what is left is a sound tree; only the head that was written, or a checkpoint, tells."""

    def cut(database: Rdict) -> None:
        for index in (38, 39):
            database.delete(schema.leaf_key(index))
            database.delete(schema.encode_key(("node", 0, index)))
        for level in (1, 2, 3):
            database.delete(schema.encode_key(("node", level, 39 >> level)))

    alter(folder, cut)
    report = verified(folder)
    assert "ledger of 38 records: a head over 40 records was handed out" in map(str, report.differences)


def test_a_record_rewritten_together_with_its_tree_is_found_by_the_root(folder: Path) -> None:
    """The leaf and every node above it: only the roots that were handed out remember."""
    forged = b'{"ops":[]}'

    def forge(database: Rdict) -> None:
        tree = MerkleTree()
        for index in range(40):
            leaf = forged if index == 2 else schema.decode_leaf(database.get(schema.leaf_key(index))).leaf
            for key, value in tree.append(index, [leaf]):
                database.put(schema.encode_key(key), value)
        database.put(schema.leaf_key(2), schema.encode_leaf(forged, b""))

    old = read_head(folder / "head").root
    alter(folder, forge)
    report = verified(folder, heads={40: old})
    assert any(d.where == "root over 40 records" for d in report.differences)
    assert leaf_hash(forged) not in (None, old)


def test_earlier_checkpoints_must_lie_on_the_history(folder: Path) -> None:
    with open_view(folder / "store") as view:
        roots = {size: MerkleTree().root_at(size, view.raw) for size in range(41)}
    assert verified(folder, heads=roots).ok
    for size in (0, 1, 17, 40):
        report = verified(folder, heads={**roots, size: bytes(32)})
        assert [d.where for d in report.differences] == [f"root over {size} records"]


async def test_a_record_that_does_not_fold_is_a_difference_not_an_end(folder: Path) -> None:
    def strict(read: Any, index: int, leaf: bytes) -> Any:
        if index == 5:
            raise ValueError(SECRET)
        return fold(read, index, leaf)

    with open_view(folder / "store") as view:
        report = verify(view, strict, heads={})
    assert str(report.differences[0]) == "record 5: does not fold (ValueError)"
    assert str(report.differences[-1]) == "row ('count', 'all'): differs from the fold in count"
    assert report.faults == 2


def test_differences_are_counted_beyond_those_that_are_kept(folder: Path) -> None:
    with open_view(folder / "store") as view:
        report = verify(view, lambda read, index, leaf: [], heads={n: bytes(32) for n in range(41, 300)})
    assert report.faults == 259 + 14
    assert len(report.differences) == MAX_DIFFERENCES


def test_rows_are_folded_again_from_the_records_that_they_list(folder: Path) -> None:
    def faults() -> list[str]:
        with open_view(folder / "store") as view:
            return [str(d) for d in check_rows(view, fold, stored_rows(view, "execution", decode))]

    assert faults() == []
    cases: list[tuple[Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]], str]] = [
        (lambda v, r: (v, {**r, "state": "open"}), "differs from the fold in state"),
        (lambda v, r: (v, {**r, "records": [12, 13, 14]}), "differs from the fold in records"),
        (lambda v, r: (v, {**r, "records": []}), "written by record 14, but that is not the last record that it lists"),
        (lambda v, r: (13, r), "written by record 13, but that is not the last record that it lists"),
        (lambda v, r: (v, {**r, "records": [14, 12]}), "written by record 14, but that is not the last"),
        (lambda v, r: (v, {**r, "records": "12"}), "written by record 14, but that is not the last"),
        (lambda v, r: (99, {**r, "records": [12, 99]}), "lists record 99, which is missing"),
        (lambda v, r: (15, {**r, "records": [15]}), "is not made by the records that it lists"),
    ]
    key = schema.encode_key(CLOSED)
    with closing(open_writable(folder / "store")) as database:
        sound = database.get(key)
    for change, expected in cases:
        alter(folder, rewrite(CLOSED, change))
        (fault,) = faults()
        assert fault.startswith(f"row ('execution', 'e3'): {expected}")
        alter(folder, lambda db: db.put(key, sound))


@pytest.fixture
async def open_executions(folder: Path) -> Path:
    """Two executions that are still open, one with an approval that is pending."""
    store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    for n in (10, 11):
        await store.commit([], [record(put(("execution", f"e{n}"), state="open"), put(("open", f"e{n}")))])
    await store.commit([], [record(put(("approval", "a1"), state="pending"))])
    await store.commit([], [record(put(("agent", "acme", "a")))])  # a store with executions has lists of them
    ticket = await store.commit([], [record(put(("approval", "a2"), state="denied"))])
    await ticket.durable()
    await store.close()
    return folder


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        (("execution", "e10"), True),
        (("open", "e11"), True),
        (("principal", "p1"), True),
        (("approval", "a1"), True),
        (("approval", "a2"), False),
        (("execution", "e1"), False),
    ],
)
async def test_the_start_looks_at_open_executions_and_security_rows(
    open_executions: Path, key: Key, refused: bool
) -> None:
    """kblockd/store/README.md#start: what is closed is left to the full verification, which finds it."""
    alter(open_executions, rewrite(key, lambda v, r: (v, {**r, "forged": 1})))
    opening = RocksStore.open(
        open_executions,
        fold=fold,
        decode=decode,
        tree=MerkleTree(),
        ballast_bytes=0,
        inspect=start.inspect(fold, decode),
    )
    if refused:
        with pytest.raises(StoreRefused, match=r"1 row does not follow from its records.*ledger verify"):
            await opening
    else:
        await (await opening).close()
    assert [d.where for d in verified(open_executions).differences] == [f"row {key!r}"]


async def test_a_denied_approval_that_is_turned_into_an_approved_one_refuses_the_start(open_executions: Path) -> None:
    alter(open_executions, rewrite(("approval", "a2"), lambda v, r: (v, {**r, "state": "approved"})))
    with pytest.raises(StoreRefused, match="approval"):
        await RocksStore.open(
            open_executions,
            fold=fold,
            decode=decode,
            tree=MerkleTree(),
            ballast_bytes=0,
            inspect=start.inspect(fold, decode),
        )


async def test_an_open_execution_without_its_row_refuses_the_start(open_executions: Path) -> None:
    alter(open_executions, lambda db: db.delete(schema.encode_key(("execution", "e10"))))
    with pytest.raises(StoreRefused, match="execution"):
        await RocksStore.open(
            open_executions,
            fold=fold,
            decode=decode,
            tree=MerkleTree(),
            ballast_bytes=0,
            inspect=start.inspect(fold, decode),
        )
