"""A store that meets damage while it runs stops at once; one that is distrusted takes no more commits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kblockd.ledger.merkle import MerkleTree
from kblockd.store import opening
from kblockd.store.protocol import Absent, StoreFailed
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

RECORDS = 400


async def opened(folder: Path, **options: object) -> RocksStore:
    return await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0, **options)  # type: ignore[arg-type]  # passed on


@pytest.fixture
async def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records in a table of many blocks, one of which is bad, where a start does not look."""
    store = await opened(tmp_path)
    for n in range(RECORDS):
        ticket = await store.commit([], [record(put(("thing", n), text=f"{n}-" * 300))])
    await ticket.durable()
    await store.close()
    await (await opened(tmp_path)).close()  # what was in the log is a table now
    table = max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) * 3 // 4] ^= 1  # rows lie behind records
    table.write_bytes(content)
    monkeypatch.setattr(opening, "CHECKED_TAIL", 1)
    monkeypatch.setattr(opening, "CHECKED_EVERY", RECORDS)
    return tmp_path


async def first_fault(store: RocksStore) -> StoreFailed:
    """From whatever read meets the block."""

    async def read() -> None:
        for n in range(RECORDS):
            await store.leaf(n)
            await store.raw(("node", 0, n))
            await store.get(("thing", n))

    with pytest.raises(StoreFailed) as raised:
        await read()
    return raised.value


async def test_led_10_a_read_that_meets_damage_fails_the_store(damaged: Path) -> None:
    """LED-10: once, with RocksDB's words for the log and none of them for the caller; what was ordered before is kept;
    the stop is no orderly one, so the next start verifies."""
    reasons: list[str] = []
    store = await opened(damaged, on_failure=reasons.append)
    ordered = await store.commit([Absent(("thing", "last"))], [record(put(("thing", "last"), n=1))])
    fault = await first_fault(store)
    assert not fault.unknown
    assert "/" not in str(fault)
    assert len(reasons) == 1
    assert "Corruption" in reasons[0]
    assert "Next step" in reasons[0]
    await ordered.durable()
    for refused in (store.get(("thing", "last")), store.commit([], [record()])):
        with pytest.raises(StoreFailed):
            await refused
    assert len(reasons) == 1
    await store.close()
    again = await opened(damaged)
    assert not again.clean
    assert again.size() == RECORDS + 1
    assert await again.get(("thing", "last")) is not None
    await again.close()


async def test_led_10_a_condition_that_cannot_be_read_commits_nothing(damaged: Path) -> None:
    """LED-10: a condition over a bad block neither holds nor fails."""
    store = await opened(damaged)

    async def commit() -> None:
        for n in range(RECORDS):
            await store.commit([], [record(put(("thing", n), text="new"))])

    with pytest.raises(StoreFailed) as raised:
        await commit()
    assert not raised.value.unknown
    await store.close()


async def test_led_10_a_distrusted_store_can_be_read_and_takes_no_commit(tmp_path: Path) -> None:
    """LED-10: nothing can be sent without a commit; a look is still possible; no mark of an orderly stop."""
    store = await opened(tmp_path)
    await (await store.commit([], [record(put(("thing", 1), n=1))])).durable()
    pending = asyncio.ensure_future((await store.commit([], [record(put(("thing", 2), n=2))])).durable())
    store.distrust("a row differs")
    await pending
    with pytest.raises(StoreFailed, match="does not verify") as raised:
        await store.commit([], [record()])
    assert not raised.value.unknown
    assert await store.get(("thing", 2)) is not None
    await store.close()
    again = await opened(tmp_path)
    assert not again.clean
    await again.close()
