"""The thread that makes groups durable: hash, one batch, one flush, the head, then one answer to the loop.

The loop hands over one group at a time; commits that arrive while the thread is busy form the next one, with no
artificial delay. Only when the store closes is the last group queued behind the one in flight. A failure before the
write leaves nothing behind; from the write on the outcome is unknown. Either way the thread ends and the next start
decides from disk. Source: kblockd/store/README.md#commits.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rocksdict import Rdict, WriteBatch

from kblockd.domain.failpoints import Failpoints
from kblockd.store import schema
from kblockd.store.database import unsynced
from kblockd.store.head import Head, HeadFile
from kblockd.store.protocol import Append, Key, StoreFailed
from kblockd.store.tree import Tree

Versioned = tuple[int, Any] | None
"""Version and row; None for one that is not there."""


@dataclass(slots=True, eq=False)
class Group:
    """Commits that become durable together. The loop fills it, the thread reads it, the loop answers its waiters."""

    number: int
    first_index: int
    records: list[Append] = field(default_factory=list)
    rows: dict[Key, Versioned] = field(default_factory=dict)
    payloads: dict[Key, bytes | None] = field(default_factory=dict)
    nodes: dict[Key, bytes] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    actions: list[Callable[[Head], None]] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    done: bool = False
    failure: tuple[str, bool] | None = None

    async def durable(self) -> None:
        """For members of the group: waits until it is on disk; raises ``StoreFailed``."""
        await self._ended()
        if self.failure is not None:
            message, unknown = self.failure
            raise StoreFailed(message, unknown=unknown)

    async def seen(self) -> None:
        """For readers of its rows: waits until it is on disk; raises ``StoreFailed`` with ``unknown`` false, since
        the reader has no commit at stake."""
        await self._ended()
        if self.failure is not None:
            raise StoreFailed("the store failed before the answer was durable", unknown=False)

    async def _ended(self) -> None:
        """Each waiter has its own future, so cancelling one does not cancel the others."""
        if not self.done:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            await waiter

    def answer(self, failure: tuple[str, bool] | None = None) -> None:
        """On the loop: wakes all waiters."""
        self.done, self.failure = True, failure
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class CommitListener(Protocol):
    """Called by the thread, on the loop through ``call_soon_threadsafe``."""

    def on_durable(self, group: Group, head: Head, learn: Callable[[], None] | None) -> None:
        """The group is on disk and in the head; ``learn`` is what ``on_head`` answered."""
        ...

    def on_failed(self, group: Group, reason: str, unknown: bool) -> None:
        """The group failed; no later group is written."""
        ...

    def on_stopped(self) -> None:
        """The thread has ended in order; everything queued is durable."""
        ...


OnHead = Callable[[Head, set[str]], Callable[[], None] | None]
"""Called by the thread with each head that it has synced and the labels of its commits; answers what the loop is to do
once it knows of that head. It must not fail."""


class Committer:
    """Owns the database for writing, the tree and the head file while it runs."""

    def __init__(
        self, database: Rdict, tree: Tree, head: HeadFile, failpoints: Failpoints, listener: CommitListener
    ) -> None:
        self._database = database
        self._tree = tree
        self._head = head
        self._failpoints = failpoints
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kblockd-committer", daemon=True)
        self._written = False
        self.on_head: OnHead = lambda head, labels: None
        self._write_options = unsynced()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def put(self, group: Group | None) -> None:
        """Queues a group; None ends the thread after everything before it."""
        self._queue.put(group)

    def join(self) -> None:
        """Blocks until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        while (group := self._queue.get()) is not None:
            if not self._commit(group):
                return
        self._notify(self._listener.on_stopped)

    def _commit(self, group: Group) -> bool:
        self._written = False
        try:
            head = self._write(group)
            learn = self.on_head(head, group.labels)
        except BaseException as error:
            # BaseException: RocksDB raises bare exceptions, and a panic below Python is not even an Exception. The
            # process cannot go on after any of them, and a thread that died silently would leave everybody waiting.
            reason = f"{type(error).__name__}: {error}"
            self._notify(self._listener.on_failed, group, reason, self._written)
            return False
        self._notify(self._listener.on_durable, group, head, learn)
        return True

    def _write(self, group: Group) -> Head:
        labels = sorted(group.labels)
        size = group.first_index + len(group.records)
        batch = self._batch(group)
        self._written = True
        self._database.write(batch, self._write_options)
        self._reach(labels, "written")
        self._database.flush_wal(True)
        self._reach(labels, "flushed")
        head = self._head.write(size, self._database.latest_sequence_number(), self._tree.root())
        self._reach(labels, "headed")
        for action in group.actions:
            action(head)
        return head

    def _batch(self, group: Group) -> WriteBatch:
        """The only place where rows are serialized."""
        batch = WriteBatch(raw_mode=True)
        for key, row in group.rows.items():
            if row is None:
                batch.delete(schema.encode_key(key))
            else:
                batch.put(schema.encode_key(key), schema.encode_row(*row))
        for key, data in group.payloads.items():
            if data is None:
                batch.delete(schema.encode_key(key))
            else:
                batch.put(schema.encode_key(key), data)
        if group.records:
            # The loop must know them before the write makes them readable.
            group.nodes = self._put_records(batch, group.first_index, group.records)
        batch.put(schema.encode_key(schema.GROUP_KEY), schema.encode_u64(self._head.head.sequence + 1))
        return batch

    def _put_records(self, batch: WriteBatch, first_index: int, records: list[Append]) -> dict[Key, bytes]:
        for index, record in enumerate(records, first_index):
            aux = record.aux if record.sign is None else record.sign()
            batch.put(schema.leaf_key(index), schema.encode_leaf(record.leaf, aux))
        nodes = dict(self._tree.append(first_index, [record.leaf for record in records]))
        for key, value in nodes.items():
            batch.put(schema.encode_key_once(key), value)
        return nodes

    def _reach(self, labels: list[str], place: str) -> None:
        for label in labels:
            self._failpoints.reach_blocking(f"{label}:{place}")

    def _notify(self, method: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *arguments)
        except RuntimeError:
            # The loop is closed, so nobody is waiting; the next start decides from disk.
            return
