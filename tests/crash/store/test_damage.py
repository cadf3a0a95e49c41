"""A store that lost or changed anything is refused with the numbers, and nothing of it is touched."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from kblockd.ledger.merkle import MerkleTree
from kblockd.store import schema
from kblockd.store.database import open_writable
from kblockd.store.head import Head, HeadFile, read_head
from kblockd.store.protocol import StoreRefused
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

RECORDS = 1000


async def opened(folder: Path, **options: Any) -> RocksStore:
    return await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0, **options)


async def refusal(folder: Path) -> str:
    """The message of a refusal that left every file of the store as it was, and the lock free."""
    before = contents(folder)
    with pytest.raises(StoreRefused) as raised:
        await opened(folder)
    assert contents(folder) == before
    with pytest.raises(StoreRefused) as again:
        await opened(folder)
    assert str(again.value) == str(raised.value)
    return str(raised.value)


def contents(folder: Path) -> dict[str, str]:
    """Everything but the logs of RocksDB and the option file of rocksdict."""
    kept = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("LOG", "rocksdict"))]
    kept.remove(folder / "lock")  # says who took it last
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """What a kill leaves: a thousand records in the log, head in step."""
    source, target = tmp_path / "source", tmp_path / "killed"
    source.mkdir()
    store = await opened(source)
    for n in range(RECORDS):
        ticket = await store.commit([], [record(put(("thing", n), n=n))])
        if n % 10 == 0:
            await ticket.durable()
    await ticket.durable()
    shutil.copytree(source, target)
    await store.close()
    return target


@pytest.fixture
async def stopped(tmp_path: Path) -> Path:
    """What an orderly stop leaves: twelve records in files."""
    folder = tmp_path / "stopped"
    folder.mkdir()
    store = await opened(folder)
    for n in range(12):
        await (await store.commit([], [record(put(("thing", n), n=n))])).durable()
    await store.close()
    return folder


def log_of(folder: Path) -> Path:
    return max((folder / "store").glob("*.log"), key=lambda path: path.stat().st_size)


def cut(folder: Path, to: Callable[[int], int]) -> None:
    log = log_of(folder)
    with log.open("r+b") as file:
        file.truncate(to(log.stat().st_size))


async def test_the_copy_of_a_running_store_opens(killed: Path) -> None:
    store = await opened(killed)
    assert (store.size(), store.clean, store.incarnation) == (RECORDS, False, 2)
    assert len(await store.scan(("thing",), limit=10**6)) == RECORDS
    await store.close()


@pytest.mark.parametrize(
    "to", [lambda size: size - 1, lambda size: size // 2, lambda size: 0], ids=["1", "half", "all"]
)
async def test_rcp_01_led_10_a_cut_log_is_refused_with_the_numbers(killed: Path, to: Callable[[int], int]) -> None:
    """RCP-01, LED-10: RocksDB itself opens these without a word."""
    cut(killed, to)
    message = await refusal(killed)
    assert "is behind its head" in message
    assert f"the head file says {RECORDS} records" in message
    assert "Next step: restore" in message


async def test_led_10_a_deleted_log_is_refused(killed: Path) -> None:
    log_of(killed).unlink()
    assert "it holds 0 records" in await refusal(killed)


async def test_led_10_one_flipped_byte_amid_the_log_is_refused(killed: Path) -> None:
    log = log_of(killed)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    message = await refusal(killed)
    assert "cannot be opened" in message
    assert "Never run a repair tool" in message


async def test_led_10_flipped_bytes_of_the_manifest_never_lose_anything_silently(stopped: Path) -> None:
    """A flip is refused, or everything is there; 7 of 504 such flips open a RocksDB with records missing."""
    manifest = next((stopped / "store").glob("MANIFEST-*"))
    sound = manifest.read_bytes()
    refused = 0
    for at in range(0, len(sound), 5):
        target = stopped.with_name(f"flip-{at}")
        shutil.copytree(stopped, target)
        flipped = bytearray(sound)
        flipped[at] ^= 0x10
        (target / "store" / manifest.name).write_bytes(flipped)
        try:
            store = await opened(target)
        except StoreRefused:
            refused += 1
            continue
        assert store.size() == 12
        assert len(await store.scan(("thing",))) == 12
        await store.close()
    assert refused > 0


async def test_rcp_01_an_older_store_under_a_newer_head_is_refused(stopped: Path) -> None:
    older = stopped.with_name("older")
    shutil.copytree(stopped / "store", older)
    store = await opened(stopped)
    await (await store.commit([], [record(put(("thing", 12), n=12))])).durable()
    await store.close()
    shutil.rmtree(stopped / "store")
    older.rename(stopped / "store")
    message = await refusal(stopped)
    assert "it holds 12 records" in message
    assert "the head file says 13 records" in message


async def test_a_lost_batch_without_records_is_seen_too(tmp_path: Path) -> None:
    """A deletion of a payload is no record; RocksDB's sequence number shows that it is gone."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    store = await opened(source)
    await (await store.commit([], [record()])).durable()
    await store.delete_payload(("payload", "x", "y"))
    shutil.copytree(source, target)
    await store.close()
    cut(target, lambda size: size - 1)
    assert "is behind its head" in await refusal(target)


async def test_an_older_head_over_a_newer_store_is_refused(stopped: Path) -> None:
    head = (stopped / "head").read_bytes()
    store = await opened(stopped)
    for n in range(3):
        await (await store.commit([], [record(put(("more", n), n=n))])).durable()
    await store.close()
    (stopped / "head").write_bytes(head)
    message = await refusal(stopped)
    assert "batches ahead of its head" in message
    assert "15 records, the head file says 12" in message


@pytest.mark.parametrize("newest", [True, False])
async def test_a_head_with_one_broken_slot_still_opens(stopped: Path, newest: bool) -> None:
    head = read_head(stopped / "head")
    content = bytearray((stopped / "head").read_bytes())
    content[4096 * ((head.sequence + (0 if newest else 1)) % 2) + 50] ^= 1
    (stopped / "head").write_bytes(content)
    store = await opened(stopped)
    assert store.size() == 12
    assert store.clean is not newest
    await (await store.commit([], [record()])).durable()
    await store.close()


async def test_a_head_with_two_broken_slots_is_refused(stopped: Path) -> None:
    content = bytearray((stopped / "head").read_bytes())
    content[50] ^= 1
    content[4096 + 50] ^= 1
    (stopped / "head").write_bytes(content)
    assert "both slots of the head file are invalid" in await refusal(stopped)


async def test_a_head_of_another_root_is_refused(stopped: Path) -> None:
    head = read_head(stopped / "head")
    HeadFile.create(stopped / "head", Head(head.sequence, 1, head.size, head.rocks, bytes(32))).close()
    message = await refusal(stopped)
    assert f"the head file says {bytes(32).hex()}" in message
    assert f"the root over 12 records is {head.root.hex()}" in message


@pytest.mark.parametrize("part", ["head", "store"])
async def test_a_missing_part_is_a_loss_and_never_a_beginning(stopped: Path, part: str) -> None:
    path = stopped / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert f"{stopped}/{part} is missing" in await refusal(stopped)
    assert not path.exists()


def alter(folder: Path, change: Callable[[Rdict], None]) -> None:
    database = open_writable(folder / "store")
    change(database)
    database.close()


async def test_rcp_01_records_removed_by_raw_access_are_refused(stopped: Path) -> None:
    """RCP-01: the last three, with their tree nodes, so that the rest is a sound tree of nine."""

    def remove(database: Rdict) -> None:
        for index in (9, 10, 11):
            database.delete(schema.leaf_key(index))
            database.delete(schema.encode_key(("node", 0, index)))

    alter(stopped, remove)
    message = await refusal(stopped)
    assert "it holds 9 records" in message
    assert "the head file says 12 records" in message


async def test_a_changed_record_is_refused(stopped: Path) -> None:
    alter(stopped, lambda db: db.put(schema.leaf_key(4), schema.encode_leaf(b'{"ops":[]}', b"")))
    assert "record 4 of 12 does not have the hash" in await refusal(stopped)


async def test_a_record_missing_in_the_middle_is_refused(stopped: Path) -> None:
    alter(stopped, lambda db: db.delete(schema.leaf_key(4)))
    assert "record 4 of 12 is missing" in await refusal(stopped)


@pytest.mark.parametrize("together", [1, 2, 5])
async def test_the_first_of_several_changed_records_is_named(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Whichever of the readers comes first."""
    monkeypatch.setattr("kblockd.store.opening._TOGETHER", together)

    def change(database: Rdict) -> None:
        database.put(schema.encode_key(("node", 0, 5)), bytes(32))
        database.delete(schema.leaf_key(6))
        database.put(schema.leaf_key(10), schema.encode_leaf(b'{"ops":[]}', b""))

    alter(stopped, change)
    assert "record 5 of 12 does not have the hash" in await refusal(stopped)


async def test_a_changed_tree_is_refused(stopped: Path) -> None:
    alter(stopped, lambda db: db.put(schema.encode_key(("node", 3, 0)), bytes(32)))
    assert "The store was changed" in await refusal(stopped)
    alter(stopped, lambda db: db.delete(schema.encode_key(("node", 3, 0))))
    assert "tree node at level 3, index 0 is missing" in await refusal(stopped)


@pytest.mark.parametrize(("marker", "said"), [(b"kblockd.store/9", "'kblockd.store/9'"), (None, "no format marker")])
async def test_led_15_another_format_is_refused(stopped: Path, marker: bytes | None, said: str) -> None:
    """LED-15."""
    key = schema.encode_key(schema.FORMAT_KEY)
    alter(stopped, lambda db: db.delete(key) if marker is None else db.put(key, marker))
    message = await refusal(stopped)
    assert said in message
    assert schema.FORMAT.decode() in message


async def test_led_15_a_database_of_another_encoding_is_refused(stopped: Path) -> None:
    """LED-15: rocksdict's default mode pickles."""
    shutil.rmtree(stopped / "store")
    database = Rdict(str(stopped / "store"))
    database["thing"] = {"n": 1}
    database.close()
    with pytest.raises(StoreRefused, match=r"cannot be opened: .*comparator"):
        await opened(stopped)


@pytest.mark.parametrize("step", ["database begun", "database made", "head written"])
async def test_an_initialisation_that_was_killed_starts_again(tmp_path: Path, step: str) -> None:
    done, half = tmp_path / "done", tmp_path / "half"
    done.mkdir()
    half.mkdir()
    await (await opened(done)).close()
    if step == "database begun":
        (half / "store.new").mkdir()
    else:
        shutil.copytree(done / "store", half / "store.new")
    if step == "head written":
        HeadFile.create(half / "head", Head(1, 0, 0, 0, hashlib.sha256().digest())).close()
    store = await opened(half)
    assert (store.created, store.size(), store.incarnation) == (True, 0, 1)
    await (await store.commit([], [record(put(("thing", 1), n=1))])).durable()
    await store.close()
    assert not (half / "store.new").exists()
    store = await opened(half)
    assert (store.created, store.size(), store.incarnation) == (False, 1, 2)
    await store.close()


async def test_inspect_refuses_before_anything_is_opened_for_writing(stopped: Path) -> None:
    def inspect(view: Any) -> None:
        assert [row["n"] for _, _, row in view.rows(("thing",))] == list(range(12))
        assert view.tables() == ["thing"]
        raise StoreRefused("a row differs")

    before = contents(stopped)
    with pytest.raises(StoreRefused, match="a row differs"):
        await opened(stopped, inspect=inspect)
    assert contents(stopped) == before
    await (await opened(stopped)).close()


async def test_a_start_looks_at_the_tail_whole_and_at_samples_before_it(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kblockd.store.opening.CHECKED_TAIL", 3)
    monkeypatch.setattr("kblockd.store.opening.CHECKED_EVERY", 4)
    looked: list[int] = []

    class Tree(MerkleTree):
        def holds(self, index: int, leaf: bytes, raw: Any) -> bool:
            looked.append(index)
            return super().holds(index, leaf, raw)

    store = await RocksStore.open(stopped, fold=fold, decode=decode, tree=Tree(), ballast_bytes=0)
    await store.close()
    assert looked == [0, 4, 8, 9, 10, 11]
