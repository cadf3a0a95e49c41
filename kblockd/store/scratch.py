"""A temporary row store for verifications and upgrades whose rows exceed memory.

Maps keys to rows, with the newest in memory and the rest in a temporary database; nothing in it is durable or trusted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocksdict import WriteBatch, WriteOptions

from kblockd.domain.ledger.rows import Decode, decode
from kblockd.store import schema
from kblockd.store.database import open_writable, pairs
from kblockd.store.protocol import Key, Row

CACHED_ROWS: Final = 20_000


class Scratch:
    """Created in a new folder under ``parent`` (default: the system's temporary folder); raises OSError."""

    def __init__(self, parent: Path | None = None, *, cached_rows: int = CACHED_ROWS, decode: Decode = decode) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kblockd-verify-", dir=parent))
        self._database = open_writable(self._folder / "rows", create=True)
        self._cached_rows = cached_rows
        self.decode = decode
        self._rows: dict[Key, tuple[int, Row | None]] = {}
        self._options = WriteOptions()
        # The stubs declare a method; in rocksdict 0.3.29 it is a property.
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, key: Key) -> Any:
        """The row as last put, or None."""
        cached = self._rows.get(key)
        if cached is not None:
            return cached[1]
        value = self._database.get(schema.encode_key_once(key))
        return None if value is None else schema.decode_row(key, value, self.decode)[1]

    def put(self, key: Key, version: int, row: Row | None) -> None:
        """Stores a row, or its absence."""
        self._rows[key] = (version, row)
        if len(self._rows) > self._cached_rows:
            self._spill()

    def pairs(self, prefix: Key) -> Iterator[tuple[bytes, bytes]]:
        """Encoded rows under ``prefix``, in key order."""
        self._spill()
        return pairs(self._database, schema.encode_key(prefix))

    def tables(self) -> set[str]:
        """Names of the tables that hold a row."""
        self._spill()
        return {str(schema.decode_key(encoded)[0]) for encoded, _ in pairs(self._database, b"")}

    def close(self) -> None:
        """Deletes everything."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spill(self) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, (version, row) in self._rows.items():
            if row is None:
                batch.delete(schema.encode_key_once(key))
            else:
                batch.put(schema.encode_key_once(key), schema.encode_row(version, row))
        self._database.write(batch, self._options)
        self._rows.clear()
