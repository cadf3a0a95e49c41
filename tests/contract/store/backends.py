"""Implementations of ``Store`` under the contract suite: to run another one through it, add a class to ``ALL``."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Protocol

from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Store
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold


class Backend(Protocol):
    """One durable place, opened again and again."""

    def __init__(self, folder: Path) -> None: ...

    async def open(self) -> Store:
        """The store, with the fold of the suite."""
        ...

    async def open_copy(self, target: str) -> Store:
        """What ``Store.backup`` wrote to ``target``."""
        ...

    def hold(self) -> None:
        """From now on nothing labelled ``held`` becomes durable."""
        ...

    def release(self) -> None:
        """The opposite."""
        ...


class Gate:
    """Failpoints that stop the committer between its write and its flush."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._reached = threading.Event()

    def hold(self) -> None:
        self._open.clear()
        self._reached.clear()

    async def reached(self) -> None:
        """Returns when the committer stands at the gate."""
        assert await asyncio.to_thread(self._reached.wait, 60)

    def release(self) -> None:
        self._open.set()

    async def reach(self, point: str) -> None:
        raise AssertionError("the store reaches its failpoints in its own thread")

    def reach_blocking(self, point: str) -> None:
        if point == "held:written":
            self._reached.set()
            assert self._open.wait(60)


class RocksBackend:
    """The embedded store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._gate = Gate()

    async def open(self) -> Store:
        return await RocksStore.open(
            self.folder, fold=fold, decode=decode, tree=MerkleTree(), failpoints=self._gate, ballast_bytes=0
        )

    async def open_copy(self, target: str) -> Store:
        return await RocksStore.open(Path(target), fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)

    def hold(self) -> None:
        self._gate.hold()

    def release(self) -> None:
        self._gate.release()


ALL: list[type[Backend]] = [RocksBackend]
