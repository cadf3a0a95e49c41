"""Brings a store of an older format to this one, once, at an operator's word and never at a start.

Nothing that is there is touched: rows are added, and the format marker changes in the last batch. A kill in between
leaves a store of the old format with rows that its version ignores, and the command can be repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from rocksdict import Rdict, WriteBatch

from kblockd.store import schema
from kblockd.store.database import View, look, open_writable, refusing, unsynced
from kblockd.store.head import HeadFile
from kblockd.store.lock import DirectoryLock
from kblockd.store.opening import check, check_owner
from kblockd.store.scratch import Scratch
from kblockd.store.tree import Tree

_ROWS_A_BATCH: Final = 10_000

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
        rows = itertools.chain.from_iterable(scratch.pairs((table,)) for table in sorted(tables))
        while chunk := list(itertools.islice(rows, _ROWS_A_BATCH)):
            _put(database, head, size, tree, chunk)
            written += len(chunk)
        _put(database, head, size, tree, [(schema.encode_key(schema.FORMAT_KEY), schema.FORMAT)])
    finally:
        head.close()
    return written


def _put(database: Rdict, head: HeadFile, size: int, tree: Tree, rows: Iterable[tuple[bytes, bytes]]) -> None:
    batch = WriteBatch(raw_mode=True)
    for key, value in rows:
        batch.put(key, value)
    batch.put(schema.encode_key(schema.GROUP_KEY), schema.encode_u64(head.head.sequence + 1))
    database.write(batch, unsynced())
    database.flush_wal(True)
    head.write(size, int(database.latest_sequence_number()), tree.root())
