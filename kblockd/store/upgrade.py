"""Upgrades a store of an older format, only on an operator's command and never at a start.

Existing data stays untouched: rows are added, and the last batch changes the format marker. A kill in between leaves a
store of the old format with rows that the old version ignores, and the command can be repeated. Rows that became stale
because the old version kept running in between are removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import Rdict, WriteBatch

from kblockd.store import schema
from kblockd.store.database import StoreView, open_view, open_writable, refusing, unsynced
from kblockd.store.head import HeadFile
from kblockd.store.lock import DirectoryLock
from kblockd.store.opening import check, check_owner
from kblockd.store.scratch import Scratch
from kblockd.store.tree import Tree

_ROWS_A_BATCH: Final = 10_000
Item = TypeVar("Item")

Refold = Callable[[StoreView, Scratch], None]
"""Folds all records into the scratch database; raises ``StoreRefused`` when the store's rows differ."""


def upgrade(data_dir: Path, *, tree: Tree, refold: Refold, tables: Collection[str], scratch_dir: Path | None) -> int:
    """Adds the rows of ``tables``, which the older version did not write; returns how many, 0 for a current store.

    Blocking; raises ``StoreRefused``, also while a daemon is running.
    """
    check_owner(data_dir)
    path = data_dir / "store"
    lock = DirectoryLock(data_dir)
    try:
        with refusing(path), open_view(path) as view:
            if view.raw(schema.FORMAT_KEY) == schema.FORMAT:
                return 0
        size = check(data_dir, tree, None, schema.OLDER_FORMATS)
        with Scratch(scratch_dir) as scratch:
            with refusing(path), open_view(path) as view:
                refold(view, scratch)
            with refusing(path):
                database = open_writable(path)
            try:
                return _write(database, data_dir, size, tree, scratch, tables)
            finally:
                database.close()
    finally:
        lock.release()


def _write(database: Rdict, data_dir: Path, size: int, tree: Tree, scratch: Scratch, tables: Collection[str]) -> int:
    """Writes the head after each batch, as a running daemon does: the store is never more than one batch ahead."""
    head = HeadFile.open(data_dir / "head")
    written = 0
    try:
        for stale in _batches(key for table in sorted(tables) for key in _stale(database, scratch, table)):
            _put(database, head, size, tree, ((key, None) for key in stale))
        for chunk in _batches(row for table in sorted(tables) for row in scratch.pairs((table,))):
            _put(database, head, size, tree, chunk)
            written += len(chunk)
        _put(database, head, size, tree, [(schema.encode_key(schema.FORMAT_KEY), schema.FORMAT)])
    finally:
        head.close()
    return written


def _stale(database: Rdict, scratch: Scratch, table: str) -> Iterator[bytes]:
    """Rows from an interrupted upgrade that the records no longer produce."""
    for key, _ in StoreView(database).encoded((table,)):
        if scratch.read(schema.decode_key(key)) is None:
            yield key


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, _ROWS_A_BATCH)):
        yield chunk


def _put(database: Rdict, head: HeadFile, size: int, tree: Tree, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Writes rows; None deletes one."""
    batch = WriteBatch(raw_mode=True)
    for key, value in rows:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    batch.put(schema.encode_key(schema.GROUP_KEY), schema.encode_u64(head.head.sequence + 1))
    database.write(batch, unsynced())
    database.flush_wal(True)
    head.write(size, int(database.latest_sequence_number()), tree.root())
