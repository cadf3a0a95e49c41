"""RocksStore: the embedded store. One asyncio loop decides, one thread commits.

The loop checks conditions and folds, over the pending rows first and the database after; a group closes at the end of
a loop turn and goes to ``kblockd.store.committer``, one at a time. ``commit`` never awaits between checking conditions
and joining the group, so a check cannot be invalidated (LED-04). Source: kblockd/store/README.md#commits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from kblockd.domain.failpoints import Failpoints, NoFailpoints
from kblockd.domain.ledger.rows import Decode, R, decode
from kblockd.store import opening, schema
from kblockd.store.committer import Committer, Group, OnHead
from kblockd.store.database import StoreView, open_view
from kblockd.store.head import Head, read_head
from kblockd.store.pending import Overlay, Staged, payload_key
from kblockd.store.protocol import (
    Append,
    AtMost,
    Condition,
    Conflict,
    Fold,
    Key,
    Payload,
    RowKey,
    StoreFailed,
    StoreUnreadable,
    Ticket,
)
from kblockd.store.tree import Tree

_COMMIT_UNKNOWN: Final = "the store failed while this commit was being written; the next start decides from disk"
_NOT_WRITTEN: Final = "the store failed before this commit was written"
_EXPORT: Final = (
    "Next step: keep the directory as evidence, run 'kblockd ledger verify', restore store/ and head together from a "
    "backup; 'kblockd ledger export' writes what can still be read"
)


class _Ticket:
    """A place in a group."""

    __slots__ = ("_group", "first_index")

    def __init__(self, first_index: int, group: Group) -> None:
        self.first_index = first_index
        self._group = group

    async def durable(self) -> None:
        """See ``Ticket.durable``."""
        await self._group.durable()


class RocksStore:
    """A ``kblockd.store.protocol.Store``; made by ``open``. Belongs to the loop it was opened on."""

    def __init__(
        self,
        opened: opening.OpenDirectory,
        *,
        fold: Fold,
        tree: Tree,
        failpoints: Failpoints,
        on_failure: Callable[[str], None],
        decode: Decode,
    ) -> None:
        self._opened = opened
        self._database = opened.database
        self._fold = fold
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._committer = Committer(opened.database, tree, opened.head_file, failpoints, self)
        self._overlay = Overlay(opened.database, decode)
        self._head = opened.head_file.head
        self._next = self._head.size
        self._numbers = itertools.count()
        self._group: Group | None = None
        self._waiting: deque[Group] = deque()
        self._failure = ""
        self._distrusted = ""
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._stopped = self._loop.create_future()
        self.incarnation: Final = self._head.incarnation
        """Counts opens of this directory; on disk before the store is handed out (fencing tokens)."""
        self.created: Final = opened.created
        """True when this open created the store."""
        self.clean: Final = opened.clean
        """False when the last stop was not orderly: a full verification is due."""

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        fold: Fold,
        tree: Tree,
        failpoints: Failpoints | None = None,
        on_failure: Callable[[str], None] | None = None,
        inspect: Callable[[StoreView], None] | None = None,
        ballast_bytes: int = opening.BALLAST_BYTES,
        decode: Decode = decode,
    ) -> RocksStore:
        """Takes the lock, checks the store read-only, compares it with its head, then opens it for writing.

        ``data_dir`` must exist; a directory without a store gets an empty one. ``tree`` is a fresh
        ``kblockd.ledger.merkle.MerkleTree``; its ``append`` is the protocol's ``OnAppend``. ``inspect`` runs over the
        read-only view after the built-in checks and refuses the start by raising ``StoreRefused``
        (``kblockd.ledger.start.inspect``). ``on_failure`` is called on the loop with the reason (RocksDB's message, for
        the log only) when a write or a read has failed, and again when a write fails after a read: the process must
        end. Raises ``StoreRefused`` with numbers and the next step.
        """
        opened = await opening.opened_directory(Path(data_dir), tree=tree, inspect=inspect, ballast_bytes=ballast_bytes)
        store = cls(
            opened,
            fold=fold,
            tree=tree,
            failpoints=failpoints or NoFailpoints(),
            on_failure=on_failure or (lambda reason: None),
            decode=decode,
        )
        store._committer.start()
        return store

    # Reading ---------------------------------------------------------------------------------------------------

    async def get(self, key: RowKey[R]) -> tuple[int, R] | None:
        """See ``Store.get``."""
        self._check_serving()
        try:
            row, writer = self._overlay.row(key), self._overlay.writer(key)
        except Exception as error:
            self._cannot_read(error)
        if writer is not None:
            await writer.seen()
        return row

    def ordered(self, key: RowKey[R]) -> tuple[int, R] | None:
        """See ``Store.ordered``."""
        self._check_serving()
        try:
            return self._overlay.row(key)
        except Exception as error:
            self._cannot_read(error)

    async def scan(
        self, prefix: RowKey[R], *, after: Key | None = None, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[Key, int, R]]:
        """See ``Store.scan``; ``kblockd.store.schema`` defines the key order. With ``reverse``, keys below ``after``.
        Blocks the loop while it reads, a few microseconds per row."""
        self._check_serving()
        try:
            rows, writer = self._overlay.scan(prefix, after, limit, reverse)
        except Exception as error:
            self._cannot_read(error)
        if writer is not None:
            await writer.seen()
        return rows

    async def payload(self, key: Key) -> bytes | None:
        """See ``Store.payload``."""
        self._check_serving()
        try:
            data, writer = self._overlay.payload(key)
        except Exception as error:
            self._cannot_read(error)
        if writer is not None:
            await writer.seen()
        return data

    async def leaf(self, index: int) -> Append | None:
        """See ``Store.leaf``; raises ValueError when a durable record cannot be read."""
        self._check_serving()
        if not 0 <= index < self._head.size:
            return None
        try:
            value: bytes | None = self._database.get(schema.leaf_key(index))
        except Exception as error:
            self._cannot_read(error)
        if value is None:
            raise ValueError(f"record {index} of {self._head.size} is missing from the store")
        return schema.decode_leaf(value)

    async def raw(self, key: Key) -> bytes | None:
        """See ``Store.raw``."""
        self._check_serving()
        try:
            value: bytes | None = self._database.get(schema.encode_key_once(key))
        except Exception as error:
            self._cannot_read(error)
        # The read comes first: the committer publishes a group's nodes before it writes them.
        for group in self._waiting:
            if key in group.nodes:
                await group.seen()
                break
        return value

    def size(self) -> int:
        """See ``Store.size``."""
        return self._head.size

    def head(self) -> Head:
        """The head file's content: size and root belong together."""
        return self._head

    def when_headed(self, on_head: OnHead) -> None:
        """Calls it in the committer's thread from now on."""
        self._committer.on_head = on_head

    def free_bytes(self) -> int:
        """Free space for this user on the file system of the data directory; raises OSError."""
        figures = os.statvfs(self._opened.data_dir)
        return figures.f_bavail * figures.f_frsize

    # Committing ------------------------------------------------------------------------------------------------

    async def commit(
        self,
        conditions: Sequence[Condition],
        records: Sequence[Append],
        payloads: Sequence[Payload] = (),
        *,
        label: str = "",
    ) -> Ticket:
        """See ``Store.commit``. Does not suspend unless it raises ``Conflict``.

        Raises ValueError for a record beyond 65,535 bytes or a key without an encoding, and whatever the fold raises;
        nothing is written in either case. A row that has no JSON is a defect that fails the store.
        """
        self._check_committing()
        try:
            staged, failed = self._stage(conditions, records)
        except Exception as error:
            self._cannot_read(error)
        if failed is not None:
            await self._conflict(failed)
        for payload in payloads:
            payload_key(payload.key)
        return self._place(staged, records, payloads, label)

    def _stage(self, conditions: Sequence[Condition], records: Sequence[Append]) -> tuple[Staged, Condition | None]:
        """The changes that the records would make, and the first condition that does not hold."""
        staged = Staged(self._overlay)
        afterwards = [condition for condition in conditions if isinstance(condition, AtMost)]
        for condition in conditions:
            if not isinstance(condition, AtMost) and not staged.holds(condition):
                return staged, condition
        for index, record in enumerate(records, self._next):
            if len(record.leaf) > schema.MAX_LEAF_BYTES:
                raise ValueError(f"record of {len(record.leaf)} bytes exceeds the limit of {schema.MAX_LEAF_BYTES}")
            for key, row in self._fold(staged.read, index, record.leaf):
                staged.write(key, index, row)
        for condition in afterwards:
            if not staged.holds(condition):
                return staged, condition
        return staged, None

    def _place(self, staged: Staged, records: Sequence[Append], payloads: Sequence[Payload], label: str) -> _Ticket:
        group = self._open_group()
        first_index = self._next
        self._next += len(records)
        group.records.extend(records)
        self._overlay.put_rows(staged.changed, group)
        for payload in payloads:
            self._overlay.put_payload(payload.key, payload.data, group)
        if label:
            group.labels.add(label)
        return _Ticket(first_index, group)

    async def _conflict(self, condition: Condition) -> NoReturn:
        writer = self._overlay.writer(condition.key)
        if writer is not None:
            await writer.seen()
        raise Conflict(condition)

    async def delete_payload(self, key: Key) -> None:
        """See ``Store.delete_payload``. The next compaction of their files removes the bytes from disk."""
        self._check_committing()
        payload_key(key)
        group = self._open_group()
        self._overlay.put_payload(key, None, group)
        await group.durable()

    async def backup(self, target: str) -> None:
        """See ``Store.backup``: ``store/`` and ``head`` of one instant, between two batches.

        Raises FileExistsError when ``target`` exists, OSError or RuntimeError when the copy fails; the store itself
        continues.
        """
        self._check_committing()
        folder = Path(target)
        await asyncio.to_thread(folder.mkdir, mode=0o700)
        self._check_committing()
        group = self._open_group()
        copied: list[Exception | None] = []
        group.actions.append(partial(opening.copy_to, self._database, folder, copied))
        await group.durable()
        if copied[0] is not None:
            raise copied[0]

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[tuple[StoreView, Head]]:
        """A blocking view of one instant and its head beside the running store, for a verification in a thread.

        A hard-linked backup in the data directory, deleted at the end (after a kill, by the next open). Raises what
        ``backup`` raises.
        """
        copy = self._opened.data_dir / f"{opening.FROZEN}{self.incarnation}-{next(self._numbers)}"
        try:
            await self.backup(str(copy))
            with open_view(copy / "store") as view:
                yield view, read_head(copy / "head")
        finally:
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)

    def _open_group(self) -> Group:
        """The group that accepts commits now. It closes once the callbacks that are ready have run; if another group is
        being written, one turn after that one's waiters wake, because their next commits would otherwise miss this
        flush."""
        if self._group is None:
            self._group = Group(next(self._numbers), self._next)
            if not self._waiting:
                self._loop.call_soon(self._close_group)
            self._waiting.append(self._group)
        return self._group

    def _close_group(self) -> None:
        group, self._group = self._group, None
        if group is not None and not self._failure:
            self._committer.put(group)

    def distrust(self, reason: str) -> None:
        """Refuses further commits, so that nothing is sent; reads still work. The stop will not count as orderly."""
        self._distrusted = self._distrusted or reason

    def _cannot_read(self, error: Exception) -> NoReturn:
        """RocksDB's own errors fail the store, so that nobody continues on partial data; other errors are re-raised.

        Commits that were already ordered are still written: they were decided from data that could be read.
        """
        if type(error) is not Exception and not isinstance(error, StoreUnreadable):
            raise error
        if not self._failure:
            self._close_group()
            self._failure = f"the store cannot be read: {error}. {_EXPORT}"
            self._committer.put(None)
            self._on_failure(self._failure)
        raise StoreFailed("the store cannot be read", unknown=False) from error

    # CommitListener, on the loop -------------------------------------------------------------------------------

    def on_durable(self, group: Group, head: Head, learn: Callable[[], None] | None) -> None:
        """The group is on disk; the next one may follow."""
        self._head = head
        try:
            if learn is not None:
                learn()
            self._overlay.settle(group)
        except Exception as error:
            # A defect: without this, no later group would be handed over and every waiter would hang.
            self._committer.put(None)
            self.on_failed(group, f"{type(error).__name__}: {error}", True)
            return
        self._waiting.popleft()
        group.answer()
        if self._group is not None:
            self._loop.call_soon(self._close_group)

    def on_failed(self, group: Group, reason: str, unknown: bool) -> None:
        """The store has failed: commits of the written group are *unknown*, all others were definitely not written."""
        # A compaction reads old files, so a write can hit old damage.
        self._failure = reason = f"{reason}. {_EXPORT}" if "Corruption" in reason else reason
        for waiting in self._waiting:
            waiting.answer((_COMMIT_UNKNOWN, True) if waiting is group and unknown else (_NOT_WRITTEN, False))
        self._waiting.clear()
        self.on_stopped()
        self._on_failure(reason)

    def on_stopped(self) -> None:
        """The thread has ended."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    # Ending ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """See ``Store.close``. Closing a failed store releases what it can and does not mark the stop as orderly."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if not self._failure:
            self._close_group()
            self._committer.put(None)
        await self._stopped
        self._closed = True
        await asyncio.to_thread(self._committer.join)
        await asyncio.to_thread(self._opened.close, clean=not (self._failure or self._distrusted))

    def _check_serving(self) -> None:
        if self._failure:
            raise StoreFailed("the store has failed and no longer answers", unknown=False)
        if self._closed:
            raise StoreFailed("the store is closed", unknown=False)

    def _check_committing(self) -> None:
        self._check_serving()
        if self._distrusted:
            raise StoreFailed("the ledger does not verify, so the store refuses commits", unknown=False)
        if self._closing is not None:
            raise StoreFailed("the store is closing", unknown=False)
