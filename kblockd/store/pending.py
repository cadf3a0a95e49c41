"""What is ordered but not durable yet, laid over the database.

Conditions and the fold look through it; readers that answer the outside learn from it for which group they must wait.
Belongs to the loop.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Final, NamedTuple

from rocksdict import Rdict

from kblockd.store import schema
from kblockd.store.committer import Group
from kblockd.store.database import pairs
from kblockd.store.protocol import Absent, AtMost, AtVersion, Condition, Key, Row

Found = tuple[Key, int, Row]
_REMEMBERED: Final = 4096


class _Entry(NamedTuple):
    version: int
    row: Row | None
    group: Group


class Overlay:
    """Pending rows and payloads over a database."""

    def __init__(self, database: Rdict) -> None:
        self._database = database
        self._rows: dict[Key, _Entry] = {}
        # Durable, as the database has them; or has not. In a plain dict the way to the first leads past all that left.
        self._recent: OrderedDict[Key, tuple[int, Row] | None] = OrderedDict()
        self._payloads: dict[Key, tuple[bytes | None, Group]] = {}

    def row(self, key: Key) -> tuple[int, Row] | None:
        """The ordered value, durable or not; raises ValueError for a table that holds no rows."""
        pending = self._rows.get(key)
        if pending is not None:
            return None if pending.row is None else (pending.version, pending.row)
        if key[0] in schema.RAW_TABLES:
            raise ValueError(f"the table {key[0]!r} holds no rows; use raw, leaf or payload")
        if key in self._recent:
            return self._recent[key]
        value = self._database.get(schema.encode_key(key))
        found = None if value is None else schema.decode_row(value)
        self._remember(key, found)
        return found

    def writer(self, key: Key) -> Group | None:
        """The group that made the ordered value, while it is not durable."""
        pending = self._rows.get(key)
        return None if pending is None else pending.group

    def scan(self, prefix: Key, after: Key | None, limit: int, reverse: bool) -> tuple[list[Found], Group | None]:
        """The ordered rows, and the newest group that had a part in the answer."""
        if prefix[0] in schema.RAW_TABLES:
            raise ValueError(f"the table {prefix[0]!r} holds no rows")
        start = None if after is None else schema.encode_key(after)
        pending = self._under(prefix, start, reverse)
        removed = sum(1 for _, entry in pending.values() if entry.row is None)
        stored = pairs(self._database, schema.encode_key(prefix), after=start, reverse=reverse)
        found: dict[bytes, Found] = {}
        # Rows that are pending as removed are still in the database, so as many more must be taken from it.
        for encoded, value in itertools.islice(stored, limit + removed):
            if encoded not in pending:
                found[encoded] = (schema.decode_key(encoded), *schema.decode_row(value))
        for encoded, (key, entry) in pending.items():
            if entry.row is not None:
                found[encoded] = (key, entry.version, entry.row)
        answer = [found[encoded] for encoded in sorted(found, reverse=reverse)[:limit]]
        # Groups become durable in order, so the newest one has all the others before it.
        groups = (entry.group for _, entry in pending.values())
        return answer, max(groups, key=lambda group: group.number, default=None)

    def _under(self, prefix: Key, start: bytes | None, reverse: bool) -> dict[bytes, tuple[Key, _Entry]]:
        length = len(prefix)
        found: dict[bytes, tuple[Key, _Entry]] = {}
        for key, entry in self._rows.items():
            if key[:length] != prefix:
                continue
            encoded = schema.encode_key(key)
            if start is None or (encoded < start if reverse else encoded > start):
                found[encoded] = (key, entry)
        return found

    def payload(self, key: Key) -> tuple[bytes | None, Group | None]:
        """The ordered payload, and the group that it must wait for."""
        pending = self._payloads.get(key)
        return (self._database.get(payload_key(key)), None) if pending is None else pending

    def put_row(self, key: Key, version: int, row: Row | None, group: Group) -> None:
        """A row, or its absence, as of this group."""
        group.rows[key] = (version, row)
        self._rows[key] = _Entry(version, row, group)

    def put_payload(self, key: Key, data: bytes | None, group: Group) -> None:
        """A payload, or its deletion, as of this group."""
        group.payloads[key] = data
        self._payloads[key] = (data, group)

    def settle(self, group: Group) -> None:
        """The group is durable: what no later group has changed is the database's now."""
        for key in group.rows:
            entry = self._rows[key]
            if entry.group is group:
                del self._rows[key]
                self._remember(key, None if entry.row is None else (entry.version, entry.row))
        for key in group.payloads:
            if self._payloads[key][1] is group:
                del self._payloads[key]

    def _remember(self, key: Key, found: tuple[int, Row] | None) -> None:
        """Rows that come again are read and parsed once, those that are not there are looked for once: a condition
        asks again for what a stage has just asked for. Nobody else writes. Those remembered longest ago make room."""
        self._recent[key] = found
        self._recent.move_to_end(key)
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)


class Staged:
    """What one commit sees and would change; nothing of it counts until the commit is placed."""

    __slots__ = ("_overlay", "_seen", "changed")

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._seen: dict[Key, tuple[int, Row] | None] = {}
        self.changed: dict[Key, tuple[int, Row | None]] = {}

    def read(self, key: Key) -> Row | None:
        """For the fold: this commit's rows first."""
        found = self._versioned(key)
        return None if found is None else found[1]

    def write(self, key: Key, version: int, row: Row | None) -> None:
        """A row that the fold made; raises ValueError for a key that cannot be stored."""
        if key[0] in schema.RAW_TABLES:
            raise ValueError(f"the fold may not write the table {key[0]!r}")
        schema.encode_key(key)  # a key without an encoding fails this commit, not the group
        self.changed[key] = (version, row)
        self._seen[key] = None if row is None else (version, row)

    def holds(self, condition: Condition) -> bool:
        """Whether the condition holds now."""
        found = self._versioned(condition.key)
        match condition:
            case Absent():
                return found is None
            case AtVersion():
                return found is not None and found[0] == condition.version
            case AtMost():
                return found is None or bool(found[1].get(condition.field, 0) <= condition.limit)

    def _versioned(self, key: Key) -> tuple[int, Row] | None:
        try:
            return self._seen[key]
        except KeyError:
            found = self._seen[key] = self._overlay.row(key)
            return found


def payload_key(key: Key) -> bytes:
    """The encoded key of a payload; raises ValueError for any other key."""
    if key[0] != "payload":
        raise ValueError(f"a payload's key starts with 'payload', not {key[0]!r}")
    return schema.encode_key(key)  # asked for again when it is written
