"""What was deleted does not stay in the way of a scan: a start and each sweep go through rows that come and go."""

from __future__ import annotations

import time
from pathlib import Path

from rocksdict import Rdict, WriteBatch

from kblockd.store import schema
from kblockd.store.database import open_writable, pairs

ROWS = 20_000


def deletions(database: Rdict) -> int:
    """Marks of deletion in all tables."""
    return sum(int(file["num_deletions"]) for file in database.live_files())


def passed(database: Rdict) -> None:
    """Rows that were there and are gone again: the marks of it, in one table."""
    for delete in (False, True):
        batch = WriteBatch(raw_mode=True)
        for row in range(ROWS):
            key = schema.encode_key_once(("open", f"ex_{row:032x}"))
            batch.delete(key) if delete else batch.put(key, b"row")
        database.write(batch)
    database.flush()


def test_a_table_full_of_deletions_is_compacted_away(tmp_path: Path) -> None:
    """What stays lies around them; so few tables would wait for more of them."""
    database = open_writable(tmp_path / "store", create=True)
    try:
        database[schema.encode_key_once(("leaf", 1))] = b"record"
        database[schema.encode_key_once(("receipt", "1"))] = b"row"
        database.compact_range(None, None)
        passed(database)
        limit = time.monotonic() + 60
        while deletions(database) and time.monotonic() < limit:
            time.sleep(0.01)
        assert deletions(database) == 0
        assert list(pairs(database, b"")) == [
            (schema.encode_key_once(("leaf", 1)), b"record"),
            (schema.encode_key_once(("receipt", "1")), b"row"),
        ]
    finally:
        database.close()
