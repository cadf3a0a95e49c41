"""A process that commits until it is killed, and says on stdout what it was promised.

``{"ack": id, "index": n}``: durable, so it may never be lost. ``{"size": n, "root": hex}``: a head that was handed out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from kblockd.failpoints import EnvironmentFailpoints
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Absent, AtVersion, Key, Payload
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import add, decode, fold, put, record

WORKERS = 8


def say(**line: object) -> None:
    """One write a line, so that a kill cannot tear it."""
    os.write(1, json.dumps(line).encode() + b"\n")


async def execution(store: RocksStore, name: str) -> None:
    key: Key = ("execution", name)
    opened = [record(put(key, state="open"), put(("open", name))), record(add(("count", "all")))]
    ticket = await store.commit([Absent(key)], opened, [Payload(("payload", name, "d"), b"p" * 500)], label="decide")
    ticket = await store.commit(
        [AtVersion(key, ticket.first_index)], [record(put(key, state="sent"))], label="mark_sent"
    )
    await ticket.durable()
    say(ack=name, index=ticket.first_index, state="sent")
    sealed = [record(put(key, state="sealed"), aux=b"s" * 100), record({"op": "remove", "key": ("open", name)})]
    ticket = await store.commit([AtVersion(key, ticket.first_index)], sealed, label="seal")
    await ticket.durable()
    say(ack=name, index=ticket.first_index, state="sealed")
    head = store.head()
    say(size=head.size, root=head.root.hex())


async def main(folder: Path) -> None:
    failpoints = EnvironmentFailpoints(os.environ.get("KBLOCKD_FAILPOINT", ""))
    store = await RocksStore.open(
        folder, fold=fold, decode=decode, tree=MerkleTree(), failpoints=failpoints, ballast_bytes=0
    )
    say(incarnation=store.incarnation, clean=store.clean)

    async def work(worker: int) -> None:
        for n in range(10**6):
            await execution(store, f"{store.incarnation}-{worker}-{n}")

    await asyncio.gather(*[work(worker) for worker in range(WORKERS)])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
