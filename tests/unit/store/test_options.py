"""The options that count are ours at every open, not those that RocksDB's option file remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kblockd.store.database import open_writable


def written(folder: Path) -> str:
    """The newest option file of a database, which is written at each open."""
    return max(folder.glob("OPTIONS-*"), key=lambda file: file.name).read_text()


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
