"""RocksDB as this store uses it: the options in full, opening, and reading.

rocksdict writes an option file of its own beside the database, so every open passes explicit options. All iterators
end inside the function that made them: the lock of RocksDB lives as long as the last of them (LED-13, LED-14).
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

from kblockd.store import schema
from kblockd.store.protocol import Append, Key, Row, StoreRefused, Unreadable

_MIB: Final = 1 << 20
_LOOK_CACHE_MIB: Final = 4  # a look goes through everything in order, or here and there: little of it comes again
_LEAF_PREFIX: Final = schema.encode_key(("leaf",))
_AFTER_PREFIX: Final = b"\xff"  # above every tag of a part


def options(*, create: bool = False, salvage: bool = False, cache_mib: int = 64) -> Options:
    """The one set of options. A corrupted tail of the log is tolerated; the head file shows what it took away.

    With ``salvage`` whatever can be read is, holes and all: for an export, never for a store that goes on.
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
    chosen.set_write_buffer_size(32 * _MIB)  # taken up to twice, while one is flushed
    chosen.set_max_total_wal_size(256 * _MIB)
    chosen.set_max_background_jobs(2)
    chosen.set_compression_type(DBCompressionType.lz4())
    chosen.set_bottommost_compression_type(DBCompressionType.zstd())
    chosen.set_level_compaction_dynamic_level_bytes(True)
    # Rows that come and go leave marks of their deletion, and a scan steps over each: a table full of them is compacted
    # at once. A table that overlaps little of the next level, as these bytes make it, is compacted for little.
    chosen.add_compact_on_deletion_collector_factory(32_768, 16_384, 0.0)
    chosen.set_max_compaction_bytes(256 * _MIB)
    chosen.set_keep_log_file_num(4)
    chosen.set_max_log_file_size(4 * _MIB)
    chosen.set_stats_dump_period_sec(0)
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(cache_mib * _MIB))
    tables.set_bloom_filter(10, False)
    # In pieces, and within the cache: whole ones are as large as a shard of it, and would be read anew at every look.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    chosen.set_block_based_table_factory(tables)
    return chosen


def open_writable(path: Path, *, create: bool = False) -> Rdict:
    """Raises whatever rocksdict raises.

    Flushes fill the cache, too: the newest rows are the ones that are asked for, and within minutes the daemon takes
    the memory that it will take for good. By misses alone the cache would fill over 10^5 executions, as a leak grows.
    """
    database = _opened(path, options(create=create), AccessType.read_write())
    try:
        database.set_options({"block_based_table_factory": "{prepopulate_block_cache=kFlushOnly;}"})
    except BaseException:
        database.close()
        raise
    return database


def _opened(path: Path, chosen: Options, access: AccessType) -> Rdict:
    """The options for the column family as well: without them an existing store takes those of its option file, which
    keeps neither filters nor cache, so that every look at a row that is not there reads and unpacks data."""
    return Rdict(str(path), chosen, column_families={"default": chosen}, access_type=access)


def unsynced() -> WriteOptions:
    """Written into the log, synced by ``flush_wal``: ``sync=True`` would hold the interpreter's lock meanwhile."""
    chosen = WriteOptions()
    chosen.sync = False
    return chosen


@contextmanager
def reading() -> Iterator[None]:
    """RocksDB's errors are bare exceptions with a text: as ``Unreadable`` they can be told from defects."""
    try:
        yield
    except Exception as error:
        if type(error) is Exception:
            raise Unreadable(str(error)) from error
        raise


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """While a database is being opened, whatever RocksDB says is a refusal."""
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


class View:
    """Blocking reads over a database, for the opening, the verification and whatever runs without a daemon.

    Every method raises ``Unreadable`` when the files do not give what they should.
    """

    def __init__(self, database: Rdict) -> None:
        self._database = database

    def raw(self, key: Key) -> bytes | None:
        """The value as it is on disk."""
        with reading():
            value: bytes | None = self._database.get(schema.encode_key(key))
        return value

    def get(self, key: Key) -> tuple[int, Row] | None:
        """(version, row), or None; raises ValueError for a row that cannot be read."""
        value = self.raw(key)
        return None if value is None else schema.decode_row(value)

    def leaf(self, index: int) -> Append | None:
        """The record, or None."""
        with reading():
            value: bytes | None = self._database.get(schema.leaf_key(index))
        return None if value is None else schema.decode_leaf(value)

    def together(self, encoded: list[bytes]) -> list[bytes | None]:
        """The values of these keys as they are on disk; other threads run meanwhile, which no single read allows."""
        database: Any = self._database  # its stubs know no list of answers
        with reading():
            values: list[bytes | None] = database.get(encoded)
        return values

    def size(self) -> int:
        """One more than the index of the last record: always from the records, never from a counter."""
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

    def rows(self, prefix: Key) -> Iterator[tuple[Key, int, Row]]:
        """Folded rows under ``prefix`` in key order; take them all or close the generator."""
        for encoded, value in pairs(self._database, schema.encode_key(prefix)):
            yield (schema.decode_key(encoded), *schema.decode_row(value))

    def encoded(self, prefix: Key) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values under ``prefix`` as they are on disk."""
        return pairs(self._database, schema.encode_key(prefix))

    def tables(self) -> list[str]:
        """Names of the tables that hold folded rows."""
        found: list[str] = []
        after = b""
        while (encoded := first_key(self._database, after)) is not None:
            table = str(schema.decode_key(encoded)[0])
            if table not in schema.RAW_TABLES:
                found.append(table)
            after = schema.encode_key((table,)) + _AFTER_PREFIX
        return found


@contextmanager
def look(path: Path, *, salvage: bool = False) -> Iterator[View]:
    """A read-only view, fixed at the moment it is opened; raises ``StoreRefused`` when it cannot be opened.

    Not beside a daemon that writes: its compactions take files away while they are being opened. Look at a backup.
    """
    if not path.is_dir():
        # RocksDB would make the folder, and an empty store is the last thing to put where one is lost.
        raise StoreRefused(f"{path} is missing. Next step: restore store/ and head together from a backup.")
    with _writable(path) as folder:
        with refusing(path):
            chosen = options(salvage=salvage, cache_mib=_LOOK_CACHE_MIB)
            database = _opened(folder, chosen, AccessType.read_only(False))
        try:
            yield View(database)
        finally:
            database.close()


@contextmanager
def _writable(path: Path) -> Iterator[Path]:
    """rocksdict writes an option file and a log even to look: beside links to the files where it may not."""
    if os.access(path, os.W_OK):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kblockd-look-") as name:
        for file in path.iterdir():
            if not file.name.startswith(("LOG", "rocksdict")):
                (Path(name) / file.name).symlink_to(file.resolve())
        yield Path(name)


def first_key(database: Rdict, after: bytes) -> bytes | None:
    """The first key at or behind ``after``; raises ``Unreadable``."""
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

    The raw iterator and ``status`` at the end: the others end silently at a corrupt block, and their bounds give
    wrong ranges. Raises ``Unreadable``.
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
