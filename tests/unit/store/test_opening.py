"""Whoever stops waiting for a store to open leaves it to the next one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kblockd.domain.ledger import fold
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.database import StoreView
from kblockd.store.rocks import RocksStore


async def test_led_06_an_open_that_is_cancelled_gives_the_lock_back(tmp_path: Path) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def inspect(_: StoreView) -> None:
        looking.set()
        go_on.wait(60)

    await (await RocksStore.open(tmp_path, fold=fold, tree=MerkleTree())).close()
    opening = asyncio.create_task(RocksStore.open(tmp_path, fold=fold, tree=MerkleTree(), inspect=inspect))
    await asyncio.to_thread(looking.wait, 60)
    opening.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    store = await RocksStore.open(tmp_path, fold=fold, tree=MerkleTree())
    assert store.clean, "nothing was written, so nothing is to be verified"
    await store.close()
