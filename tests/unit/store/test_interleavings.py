"""Many callers, a committer that is slow and may fail, and an end at any moment, against a model of what is ordered."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from kblockd.domain.failpoints import FailpointError
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Absent, AtVersion, Conflict, Key, StoreFailed, Ticket
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

KEYS: list[Key] = [("thing", n) for n in range(6)]


class SlowCommitter:
    """Failpoints that hold the committer now and then for a moment, and fail it at one of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = random.Random(chance.random())
        self._left = chance.randrange(1, 120)

    async def reach(self, point: str) -> None:
        raise AssertionError(point)

    def reach_blocking(self, point: str) -> None:
        time.sleep(self._chance.choice([0, 0, 0.0002, 0.001]))
        self._left -= 1
        if self._left == 0:
            raise FailpointError(point)


class Callers:
    """What they do, and what must be true whenever it is done."""

    def __init__(self, store: RocksStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self._ordered: dict[Key, int] = {}
        self.tickets: list[Ticket] = []

    async def call(self) -> None:
        """Until the store takes no more."""
        with suppress(StoreFailed):
            for _ in range(30):
                await turns(self._chance.randrange(4))
                await self._chance.choice([self._commit, self._commit, self._lose, self._scan, self._look])()

    async def _commit(self) -> None:
        """Its condition holds for the model and so for the store; then it waits, or gives up."""
        key = self._chance.choice(KEYS)
        condition = AtVersion(key, self._ordered[key]) if key in self._ordered else Absent(key)
        ticket = await self._store.commit([condition], [record(put(key))], label="random")
        assert ticket.first_index == len(self.tickets)
        self._ordered[key] = ticket.first_index
        self.tickets.append(ticket)
        waiting = asyncio.create_task(ticket.durable())
        if self._chance.random() < 0.5:
            await turns(self._chance.randrange(3))
            waiting.cancel()
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.result()
            assert self._store.size() > ticket.first_index

    async def _lose(self) -> None:
        key = self._chance.choice(KEYS)
        winner = self._ordered.get(key, -1)
        with pytest.raises(Conflict):
            await self._store.commit([AtVersion(key, 10**6)], [record(put(key))])
        assert self._store.size() > winner

    async def _scan(self) -> None:
        ordered = dict(self._ordered)
        assert {key: version for key, version, _ in await self._store.scan(("thing",))} == ordered
        assert self._store.size() > max(ordered.values(), default=-1)

    async def _look(self) -> None:
        index = self._chance.randrange(len(self.tickets) + 1)
        assert await self._store.raw(("node", 0, index)) is None or self._store.size() > index


async def turns(number: int) -> None:
    """So many turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def outcome(ticket: Ticket) -> str:
    """``1 durable``, ``2 unknown`` or ``3 no``: in this order along the ledger."""
    try:
        await ticket.durable()
    except StoreFailed as failed:
        return "2 unknown" if failed.unknown else "3 no"
    return "1 durable"


async def trial(folder: Path, seed: int) -> None:
    """One store, from its open to the next one."""
    chance = random.Random(seed)
    store = await RocksStore.open(
        folder, fold=fold, decode=decode, tree=MerkleTree(), failpoints=SlowCommitter(chance), ballast_bytes=0
    )
    callers = Callers(store, chance)
    calling = [asyncio.create_task(callers.call()) for _ in range(8)]
    if seed % 2:
        await turns(chance.randrange(100))
    else:
        await asyncio.gather(*calling)
    await store.close()
    await asyncio.gather(*calling)
    found = [await outcome(ticket) for ticket in callers.tickets]
    assert found == sorted(found)
    durable, unknown = found.count("1 durable"), found.count("2 unknown")
    assert store.size() == durable
    again = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    assert again.size() in (durable, durable + unknown)
    await again.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_every_interleaving_agrees_with_the_model(
    tmp_path: Path, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    """kblockd/store/README.md#commits, LED-17: one order, durable from the front; after it unknown, after that no;
    nobody hangs."""
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(asyncio.wait_for(trial(folder, seed), 60))
