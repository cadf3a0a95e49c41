"""Brings a store of an older format to this one, once, at an operator's word and never at a start.

Nothing that the older version wrote is touched: rows are added, and the format marker changes in the last batch. A kill
in between leaves a store of the old format with rows that its version ignores, and the command can be repeated. If that
version went on meanwhile, some of these rows are no longer true: they are taken out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import Rdict, WriteBatch

from kblockd.store import schema
from kblockd.store.database import View, look, open_writable, refusing, unsynced
from kblockd.store.head import HeadFile
from kblockd.store.lock import DirectoryLock
from kblockd.store.opening import check, check_owner
from kblockd.store.scratch import Scratch
from kblockd.store.tree import Tree

_ROWS_A_BATCH: Final = 10_000
Item = TypeVar("Item")

Refold = Callable[[View, Scratch], None]
"""Leaves every row that the records make in the scratch database; raises ``StoreRefused`` for a store that differs."""


def upgrade(data_dir: Path, *, tree: Tree, refold: Refold, tables: Collection[str], scratch_dir: Path | None) -> int:
    """Adds the rows of ``tables``, which the older version did not write; returns how many, 0 for a store of today.

    Blocking; raises ``StoreRefused``, also beside a running daemon.
    """
    check_owner(data_dir)
    path = data_dir / "store"
    lock = DirectoryLock(data_dir)
    try:
        with refusing(path), look(path) as view:
            if view.raw(schema.FORMAT_KEY) == schema.FORMAT:
                return 0
        size = check(data_dir, tree, None, schema.OLDER_FORMATS)
        with Scratch(scratch_dir) as scratch:
            with refusing(path), look(path) as view:
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
    """Each batch is followed by its head, as a running daemon's are: the store is never more than one ahead."""
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
    """Rows of an upgrade that was interrupted, which the records do not make any more."""
    for key, _ in View(database).encoded((table,)):
        if scratch.read(schema.decode_key(key)) is None:
            yield key


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    left = iter(items)
    while chunk := list(itertools.islice(left, _ROWS_A_BATCH)):
        yield chunk


def _put(database: Rdict, head: HeadFile, size: int, tree: Tree, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Rows, or None for one that is taken out."""
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
