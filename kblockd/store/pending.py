"""Rows and payloads that are ordered but not yet durable, overlaid on the database.

Conditions and the fold read through it; readers that answer a caller learn from it which group to wait for. Belongs to
the loop.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from rocksdict import Rdict

from kblockd.domain.ledger.rows import Decode, decode
from kblockd.store import schema
from kblockd.store.committer import Group, Versioned
from kblockd.store.database import pairs
from kblockd.store.protocol import Absent, AtVersion, Condition, Key, Row

VersionedRow = tuple[Key, int, Any]
_CACHED_ROWS: Final = 4096


class Overlay:
    """Pending rows and payloads over a database."""

    def __init__(self, database: Rdict, decode: Decode = decode) -> None:
        self._database = database
        self._decode = decode
        self._rows: dict[Key, Versioned] = {}
        self._writers: dict[Key, Group] = {}  # of the same keys
        # Cache of durable rows; None means known to be absent. An OrderedDict, because finding the oldest entry of a
        # plain dict steps over every deleted one.
        self._recent: OrderedDict[Key, Versioned] = OrderedDict()
        self._payloads: dict[Key, tuple[bytes | None, Group]] = {}

    def row(self, key: Key) -> tuple[int, Any] | None:
        """The ordered value, durable or not; raises ValueError for a table that holds no rows."""
        if key in self._rows:
            return self._rows[key]
        if key in self._recent:
            return self._recent[key]
        if key[0] in schema.RAW_TABLES:
            raise ValueError(f"the table {key[0]!r} holds no rows; use raw, leaf or payload")
        value = self._database.get(schema.encode_key(key))
        stored = None if value is None else schema.decode_row(key, value, self._decode)
        self._cache(key, stored)
        return stored

    def writer(self, key: Key) -> Group | None:
        """The group that wrote the ordered value, while it is not durable."""
        return self._writers.get(key)

    def scan(
        self, prefix: Key, after: Key | None, limit: int, reverse: bool
    ) -> tuple[list[VersionedRow], Group | None]:
        """The ordered rows, and the newest group that contributed to them."""
        if prefix[0] in schema.RAW_TABLES:
            raise ValueError(f"the table {prefix[0]!r} holds no rows")
        start = None if after is None else schema.encode_key(after)
        pending = self._under(prefix, start, reverse)
        removed = sum(1 for _, row in pending.values() if row is None)
        stored = pairs(self._database, schema.encode_key(prefix), after=start, reverse=reverse)
        rows: dict[bytes, VersionedRow] = {}
        # Rows whose removal is pending are still in the database, so that many extra must be read from it.
        for encoded, value in itertools.islice(stored, limit + removed):
            if encoded not in pending:
                key = schema.decode_key(encoded)
                rows[encoded] = (key, *schema.decode_row(key, value, self._decode))
        for encoded, (key, row) in pending.items():
            if row is not None:
                rows[encoded] = (key, *row)
        page = [rows[encoded] for encoded in sorted(rows, reverse=reverse)[:limit]]
        # Groups become durable in order, so waiting for the newest one waits for all of them.
        groups = (self._writers[key] for key, _ in pending.values())
        return page, max(groups, key=lambda group: group.number, default=None)

    def _under(self, prefix: Key, start: bytes | None, reverse: bool) -> dict[bytes, tuple[Key, Versioned]]:
        length = len(prefix)
        entries: dict[bytes, tuple[Key, Versioned]] = {}
        for key, row in self._rows.items():
            if key[:length] != prefix:
                continue
            encoded = schema.encode_key(key)
            if start is None or (encoded < start if reverse else encoded > start):
                entries[encoded] = (key, row)
        return entries

    def payload(self, key: Key) -> tuple[bytes | None, Group | None]:
        """The ordered payload, and the group to wait for before it is answered."""
        pending = self._payloads.get(key)
        return (self._database.get(payload_key(key)), None) if pending is None else pending

    def put_rows(self, changed: Mapping[Key, Versioned], group: Group) -> None:
        """Rows, or their absence, as of this group."""
        group.rows.update(changed)
        self._rows.update(changed)
        self._writers.update(dict.fromkeys(changed, group))

    def put_payload(self, key: Key, data: bytes | None, group: Group) -> None:
        """A payload, or its deletion, as of this group."""
        group.payloads[key] = data
        self._payloads[key] = (data, group)

    def settle(self, group: Group) -> None:
        """The group is durable: drops its rows and payloads that no later group has changed."""
        for key in group.rows:
            if self._writers[key] is group:
                del self._writers[key]
                self._cache(key, self._rows.pop(key))
        for key in group.payloads:
            if self._payloads[key][1] is group:
                del self._payloads[key]

    def _cache(self, key: Key, row: Versioned) -> None:
        """A condition usually reads what a stage has just read, so each row is read and parsed once. Safe because this
        process is the only writer. The oldest entry makes room."""
        self._recent[key] = row
        self._recent.move_to_end(key)
        if len(self._recent) > _CACHED_ROWS:
            self._recent.popitem(last=False)


class Staged:
    """What one commit reads and would change; nothing takes effect until the commit joins a group."""

    __slots__ = ("_overlay", "_seen", "changed")

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._seen: dict[Key, Versioned] = {}
        self.changed: dict[Key, Versioned] = {}

    def read(self, key: Key) -> Any:
        """For the fold: this commit's rows first."""
        current = self._versioned(key)
        return None if current is None else current[1]

    def write(self, key: Key, version: int, row: Row | None) -> None:
        """A row from the fold; raises ValueError for a key that cannot be stored."""
        if key[0] in schema.RAW_TABLES:
            raise ValueError(f"the fold may not write the table {key[0]!r}")
        schema.encode_key(key)  # a key without an encoding fails this commit, not the group
        self.changed[key] = self._seen[key] = None if row is None else (version, row)

    def holds(self, condition: Condition) -> bool:
        """Whether the condition holds now."""
        current = self._versioned(condition.key)
        if isinstance(condition, AtVersion):
            return current is not None and current[0] == condition.version
        if isinstance(condition, Absent):
            return current is None
        return current is None or bool(current[1].count <= condition.limit)

    def _versioned(self, key: Key) -> Versioned:
        if key not in self._seen:
            self._seen[key] = self._overlay.row(key)
        return self._seen[key]


def payload_key(key: Key) -> bytes:
    """The encoded key of a payload; raises ValueError for any other key."""
    if key[0] != "payload":
        raise ValueError(f"a payload's key starts with 'payload', not {key[0]!r}")
    return schema.encode_key(key)  # cached: the committer encodes it again
