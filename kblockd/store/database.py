"""RocksDB as this store uses it: the options in full, opening, and reading.

rocksdict writes its own option file beside the database, so every open passes explicit options. Every iterator ends
inside the function that created it, because RocksDB holds its lock until the last one is gone (LED-13, LED-14).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteOptions,
)

from kblockd.domain.ledger.rows import R
from kblockd.store import schema
from kblockd.store.protocol import Append, Key, RowKey, StoreRefused, StoreUnreadable

_MIB: Final = 1 << 20
_VIEW_CACHE_MIB: Final = 4  # a read-only pass rarely reads the same block twice
_LEAF_PREFIX: Final = schema.encode_key(("leaf",))
_AFTER_PREFIX: Final = b"\xff"  # above every tag of a part


def options(*, create: bool = False, salvage: bool = False, cache_mib: int = 64) -> Options:
    """The one set of options. A corrupted tail of the log is tolerated; the head file shows whether it lost anything.

    With ``salvage``, everything readable is read despite gaps: for an export, never for a store that stays in use.
    """
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(create)
    chosen.set_error_if_exists(create)
    chosen.set_paranoid_checks(not salvage)
    if salvage:
        chosen.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())
    else:
        chosen.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    chosen.set_recycle_log_file_num(0)
    chosen.set_write_buffer_size(32 * _MIB)  # allocated twice while one is being flushed
    chosen.set_max_total_wal_size(256 * _MIB)
    chosen.set_max_background_jobs(2)
    chosen.set_compression_type(DBCompressionType.lz4())
    chosen.set_bottommost_compression_type(DBCompressionType.zstd())
    chosen.set_level_compaction_dynamic_level_bytes(True)
    # Short-lived rows leave tombstones, and a scan steps over each, so a table full of them is compacted at once. The
    # limit keeps a table's overlap with the next level small, and with it the cost of that compaction.
    chosen.add_compact_on_deletion_collector_factory(32_768, 16_384, 0.0)
    chosen.set_max_compaction_bytes(256 * _MIB)
    chosen.set_keep_log_file_num(4)
    chosen.set_max_log_file_size(4 * _MIB)
    chosen.set_stats_dump_period_sec(0)
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(cache_mib * _MIB))
    tables.set_bloom_filter(10, False)
    # Partitioned and in the cache: a whole index is as large as a cache shard and would be read again on every lookup.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    chosen.set_block_based_table_factory(tables)
    return chosen


def open_writable(path: Path, *, create: bool = False) -> Rdict:
    """Raises whatever rocksdict raises.

    Flushes also fill the cache: the newest rows are the most requested, and memory use reaches its plateau within
    minutes. Filled by misses alone, the cache would grow over 10^5 executions and look like a leak.
    """
    database = _opened(path, options(create=create), AccessType.read_write())
    try:
        database.set_options({"block_based_table_factory": "{prepopulate_block_cache=kFlushOnly;}"})
    except BaseException:
        database.close()
        raise
    return database


def _opened(path: Path, chosen: Options, access: AccessType) -> Rdict:
    """Passes the options for the column family too. Otherwise an existing store uses its option file, which has neither
    filters nor cache, and every lookup of a missing row would read and decompress data."""
    return Rdict(str(path), chosen, column_families={"default": chosen}, access_type=access)


def unsynced() -> WriteOptions:
    """Writes to the log and leaves the sync to ``flush_wal``: ``sync=True`` would hold the GIL while it waits."""
    chosen = WriteOptions()
    chosen.sync = False
    return chosen


@contextmanager
def reading() -> Iterator[None]:
    """Turns RocksDB's bare ``Exception`` into ``StoreUnreadable``, to tell it from a defect in our code."""
    try:
        yield
    except Exception as error:
        if type(error) is Exception:
            raise StoreUnreadable(str(error)) from error
        raise


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turns any RocksDB error while opening a database into ``StoreRefused``."""
    try:
        yield
    except (StoreRefused, OSError, MemoryError):
        raise
    except Exception as error:
        raise StoreRefused(
            f"{path} cannot be opened: {error}. Next step: check the owner and the free space of the directory; if "
            "it is damaged, keep it as evidence ('kblockd ledger export' writes what can still be read) and restore "
            "store/ and head together from a backup. Never run a repair tool on it."
        ) from error


class StoreView:
    """Blocking reads over a database, for opening, verification and commands that run without a daemon.

    Every method raises ``StoreUnreadable`` when the files cannot be read.
    """

    def __init__(self, database: Rdict) -> None:
        self._database = database

    def raw(self, key: Key) -> bytes | None:
        """The value as it is on disk."""
        with reading():
            value: bytes | None = self._database.get(schema.encode_key(key))
        return value

    def get(self, key: RowKey[R]) -> tuple[int, R] | None:
        """(version, row), or None; raises ValueError for a row that cannot be read."""
        value = self.raw(key)
        return None if value is None else schema.decode_row(key, value)

    def leaf(self, index: int) -> Append | None:
        """The record, or None."""
        with reading():
            value: bytes | None = self._database.get(schema.leaf_key(index))
        return None if value is None else schema.decode_leaf(value)

    def together(self, encoded: list[bytes]) -> list[bytes | None]:
        """The values of these keys as they are on disk; unlike single reads, this one releases the GIL."""
        database: Any = self._database  # the stubs lack the overload for a list of keys
        with reading():
            values: list[bytes | None] = database.get(encoded)
        return values

    def size(self) -> int:
        """Number of records, always derived from the last record and never from a counter."""
        for encoded, _ in pairs(self._database, _LEAF_PREFIX, reverse=True):
            index = schema.decode_key(encoded)[1]
            return int(index) + 1
        return 0

    def group(self) -> int:
        """Sequence of the head slot that belongs to the last batch; 0 before the first."""
        value = self.raw(schema.GROUP_KEY)
        return 0 if value is None else schema.decode_u64(value)

    def sequence(self) -> int:
        """RocksDB's last sequence number."""
        return int(self._database.latest_sequence_number())

    def rows(self, prefix: RowKey[R]) -> Iterator[tuple[Key, int, R]]:
        """Folded rows under ``prefix`` in key order; exhaust or close the generator."""
        for encoded, value in pairs(self._database, schema.encode_key(prefix)):
            key = schema.decode_key(encoded)
            yield (key, *schema.decode_row(key, value))

    def encoded(self, prefix: Key) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values under ``prefix`` as they are on disk."""
        return pairs(self._database, schema.encode_key(prefix))

    def tables(self) -> list[str]:
        """Names of the tables that hold folded rows."""
        names: list[str] = []
        after = b""
        while (encoded := first_key(self._database, after)) is not None:
            table = str(schema.decode_key(encoded)[0])
            if table not in schema.RAW_TABLES:
                names.append(table)
            after = schema.encode_key((table,)) + _AFTER_PREFIX
        return names


@contextmanager
def open_view(path: Path, *, salvage: bool = False) -> Iterator[StoreView]:
    """A read-only view of the moment it is opened; raises ``StoreRefused`` when it cannot be opened.

    Not for use beside a writing daemon, whose compactions remove files while they are being opened: open a backup.
    """
    if not path.is_dir():
        # RocksDB would create the folder, and an empty store must never replace a lost one.
        raise StoreRefused(f"{path} is missing. Next step: restore store/ and head together from a backup.")
    with _writable(path) as folder:
        with refusing(path):
            chosen = options(salvage=salvage, cache_mib=_VIEW_CACHE_MIB)
            database = _opened(folder, chosen, AccessType.read_only(False))
        try:
            yield StoreView(database)
        finally:
            database.close()


@contextmanager
def _writable(path: Path) -> Iterator[Path]:
    """A folder that rocksdict can write its option file and log to, which it does even for reading: ``path`` itself, or
    a temporary folder with links to the files."""
    if os.access(path, os.W_OK):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kblockd-look-") as name:
        for file in path.iterdir():
            if not file.name.startswith(("LOG", "rocksdict")):
                (Path(name) / file.name).symlink_to(file.resolve())
        yield Path(name)


def first_key(database: Rdict, after: bytes) -> bytes | None:
    """The first key at or after ``after``; raises ``StoreUnreadable``."""
    with reading():
        iterator = database.iter()
        iterator.seek(after)
        if iterator.valid():
            return bytes(iterator.key())
        iterator.status()
    return None


def pairs(
    database: Rdict, prefix: bytes, *, after: bytes | None = None, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Keys that start with ``prefix``, strictly beyond ``after``, with their values.

    Uses the raw iterator and checks ``status`` at the end: the other iterators stop silently at a corrupt block, and
    their bounds give wrong ranges. Raises ``StoreUnreadable``.
    """
    with reading():
        iterator: Any = database.iter()
        if reverse:
            last = prefix + _AFTER_PREFIX
            iterator.seek_for_prev(last if after is None else min(after, last))
        else:
            iterator.seek(prefix if after is None else max(after, prefix))
        while iterator.valid():
            key = iterator.key()
            if not key.startswith(prefix):
                break
            if key != after:
                yield key, iterator.value()
            iterator.prev() if reverse else iterator.next()
        iterator.status()
