"""The options that count are ours at every open, not those that RocksDB's option file remembers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Rdict

from kblockd.store.database import open_writable


def written(folder: Path) -> str:
    """The newest option file of a database, which is written at each open."""
    return max(folder.glob("OPTIONS-*"), key=lambda file: file.name).read_text()


def cached(database: Rdict) -> int:
    """Bytes in the block cache."""
    return database.property_int_value("rocksdb.block-cache-usage") or 0


@pytest.mark.parametrize("opens", [1, 2, 3])
def test_filters_and_cache_are_there_again_after_every_open(tmp_path: Path, opens: int) -> None:
    """Without filters a look at a row that is not there, and each commit looks at some, reads whole blocks of data."""
    for number in range(opens):
        database = open_writable(tmp_path / "store", create=number == 0)
        database[b"key"] = b"value"
        database.close()
    text = written(tmp_path / "store")
    assert "filter_policy=bloomfilter" in text
    assert "partition_filters=true" in text
    assert "index_type=kTwoLevelIndexSearch" in text
    log = (tmp_path / "store" / "LOG").read_text()
    assert f"capacity : {64 << 20}" in log
    assert f"write_buffer_size={32 << 20}" in text
    assert f"max_compaction_bytes={256 << 20}" in text


@pytest.mark.parametrize("opens", [1, 2])
def test_what_is_flushed_is_in_the_cache_at_once(tmp_path: Path, opens: int) -> None:
    """So that the cache is full after minutes: memory that grows for hours cannot be told from a leak."""
    for number in range(opens):
        database = open_writable(tmp_path / "store", create=number == 0)
        for row in range(100):
            database[row.to_bytes(4, "big")] = bytes(10_000)
        before = cached(database)
        database.flush()
        after = cached(database)
        database.close()
        assert before < 100_000
        assert after >= 1_000_000
