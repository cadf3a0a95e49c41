"""A data directory worth losing: some thousand executions, closed, pending, held and sent, in tables and in the log.

Made once a session: a real daemon tells a few real stories, and their records are copied under other names, through
the store and the fold, because a thousand calls would take minutes. Two images are kept, as an orderly stop and as a
kill leave them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kblockd.domain.ledger import fold
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.database import open_view
from kblockd.store.head import read_head
from kblockd.store.protocol import Append, Key, Payload
from kblockd.store.rocks import RocksStore
from tests.crash.daemon.story import Story, World
from tests.crash.power.powered import CONTRACTS, PoweredSite, WatchedNursery
from tests.records import RecordType, read
from tests.upstreams.payments import PaymentsServer

OLD = (400, 400, 400)
"""Copied executions that lie in tables, in files of their own."""
PATIENT = {"approval_ttl_seconds": 3600, "close_after_seconds": 3600}
"""What is open in an image stays open, however long the session takes."""
RECENT = 120
"""Copied executions that lie in the log alone, in the image of a kill."""
_NAMES = re.compile(rb'(exe_|apr_|"caller_key":"|"fingerprint":"|"effect_key":"|"twin":")([0-9a-f]{32,64})')


@dataclass
class Estate:
    """The images, and what was acknowledged to somebody outside."""

    world: World
    site: PoweredSite
    images: dict[str, Path]
    stories: dict[str, Story]
    checkpoint: str
    """Handed out when the image of the stop had been continued."""
    effects: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    roots: dict[int, bytes] = field(default_factory=dict)

    def lay(self, image: str) -> Path:
        """A fresh copy of an image as the site's data directory; nothing runs on the old one any more."""
        self.site.kill()
        shutil.rmtree(self.site.data, ignore_errors=True)
        shutil.copytree(self.images[image], self.site.data)
        self.site.disk.begin()
        self.site.log.write_bytes(b"")
        return self.site.data


@contextlib.contextmanager
def make_estate(shim: Path) -> Iterator[Estate]:
    """About fifteen seconds."""
    nursery = WatchedNursery(shim)
    folder = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    site = PoweredSite(folder, nursery, shim)
    try:
        with PaymentsServer.start(folder) as payments:
            site.configure(payments.url, contracts=CONTRACTS, daemon={"clocks": PATIENT})
            site.pin()
            yield _make(World(site, payments), site)
    finally:
        site.kill()
        nursery.close()
        shutil.rmtree(folder, ignore_errors=True)


def _make(world: World, site: PoweredSite) -> Estate:
    site.start()
    closed = Story.new(world)
    closed.tell()
    site.stop()
    copier = Copier(site.data, closed)
    for count in OLD:
        asyncio.run(copier.copy(count))
    stories = {"closed": closed, "pending": Story.new(world), "held": Story.new(world), "sent": Story.new(world)}
    site.start()
    with site.client() as agent:
        stories["pending"].pending = agent.execute(stories["pending"].call)
    world.payments.control(list_lag_seconds=3600.0)
    stories["held"].tell()
    site.stop()
    world.payments.control(list_lag_seconds=0.0)
    images = {"stopped": site.folder / "stopped", "killed": site.folder / "killed"}
    shutil.copytree(site.data, images["stopped"])
    site.start("dispatch:after=kill")
    note = world.keep_checkpoint()
    stories["sent"].tell_until_death()
    asyncio.run(copier.copy(RECENT, images["killed"]))
    estate = Estate(world, site, images, stories, note, len(world.payments.effects()))
    for name, path in images.items():
        head = read_head(path / "head")
        estate.sizes[name] = head.size
        estate.roots[head.size] = head.root
    return estate


class Copier:
    """Writes the records and payloads of one closed execution again and again, under other names."""

    def __init__(self, data: Path, story: Story) -> None:
        assert story.answered is not None
        self._data, self._story = data, story
        self._execution = story.answered.execution_id
        self._numbers = itertools.count(1)
        with open_view(data / "store") as view:
            leaves = [view.leaf(index) for index in range(view.size())]
            self._payloads = [value for _, value in view.encoded(("payload", self._execution))]
        self._records = [one for one in leaves if one is not None and _belongs(one, self._execution)]

    async def copy(self, count: int, image: Path | None = None) -> None:
        """``count`` times; ``image`` gets what a kill would have left at the end."""
        store = await RocksStore.open(self._data, fold=fold, tree=MerkleTree())
        for _ in range(count):
            number = next(self._numbers)
            records = [Append(_renamed(one.leaf, self._story, number), one.aux) for one in self._records]
            name = _renamed(self._execution.encode(), self._story, number).decode()
            keys: list[Key] = [("payload", name, f"{n:064x}") for n in range(len(self._payloads))]
            payloads = [Payload(key, data) for key, data in zip(keys, self._payloads, strict=True)]
            ticket = await store.commit([], records, payloads)
            if number % 20 == 0:
                await ticket.durable()
        await ticket.durable()
        if image is not None:
            shutil.copytree(self._data, image)
        await store.close()


def _belongs(record: Append, execution: str) -> bool:
    found = read(record.leaf)
    return found.execution == execution and found.type != RecordType.CALL_REFUSED


def _renamed(leaf: bytes, story: Story, number: int) -> bytes:
    """Another execution, approval, key and order. Only what the fold makes rows of need differ."""
    order = story.order.encode()
    other = f"C-{number}".encode().ljust(len(order), b"x")[: len(order)]
    return _NAMES.sub(lambda match: match[1] + _name(match[2], number), leaf).replace(order, other)


def _name(name: bytes, number: int) -> bytes:
    return name[:-6] + f"{number:06x}".encode()
