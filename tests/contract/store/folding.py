"""A fold of our own for the suites: a record is a list of row operations, so a test can say anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kblockd.store.protocol import Append, Key, Read


class FoldDefect(Exception):
    """What the operation ``raise`` does."""


class Free(dict[str, Any]):
    """A row of any shape, which is read like one that has a type."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def decode(table: str, data: bytes) -> Any:
    """For ``RocksStore.open`` and ``verify``: no table's rows have a type here."""
    return Free(orjson.loads(data))


def put(key: Key, **row: Any) -> dict[str, Any]:
    """The row becomes this."""
    return {"op": "put", "key": key, "row": row}


def remove(key: Key) -> dict[str, Any]:
    """The row goes."""
    return {"op": "remove", "key": key}


def add(key: Key, by: int = 1) -> dict[str, Any]:
    """A counter: no list of records."""
    return {"op": "add", "key": key, "by": by}


def defect() -> dict[str, Any]:
    """The fold raises."""
    return {"op": "raise", "key": ["defect"]}


def record(*operations: dict[str, Any], aux: bytes = b"") -> Append:
    """One record."""
    return Append(orjson.dumps({"ops": operations}), aux)


def fold(read: Read, index: int, leaf: bytes) -> Sequence[tuple[Key, Any]]:
    """See the module; every row but a counter lists its records."""
    changes: dict[Key, Any] = {}
    for operation in orjson.loads(leaf)["ops"]:
        key = tuple(operation["key"])
        before = changes[key] if key in changes else read(key)
        match operation["op"]:
            case "put":
                records = [r for r in before["records"] if r != index] if before else []
                changes[key] = Free({**operation["row"], "records": [*records, index]})
            case "remove":
                changes[key] = None
            case "add":
                changes[key] = Free({"count": (before["count"] if before else 0) + operation["by"]})
            case _:
                raise FoldDefect
    return list(changes.items())
