"""A fold of our own for the suites: a record is a list of row operations, so a test can say anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kblockd.store.protocol import Append, Key, Read, Row


class FoldDefect(Exception):
    """What the operation ``raise`` does."""


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


def fold(read: Read, index: int, leaf: bytes) -> Sequence[tuple[Key, Row | None]]:
    """See the module; every row but a counter lists its records."""
    changes: dict[Key, Row | None] = {}
    for operation in orjson.loads(leaf)["ops"]:
        key = tuple(operation["key"])
        before = changes[key] if key in changes else read(key)
        match operation["op"]:
            case "put":
                records = [r for r in before["records"] if r != index] if before else []
                changes[key] = {**operation["row"], "records": [*records, index]}
            case "remove":
                changes[key] = None
            case "add":
                changes[key] = {"count": (before["count"] if before else 0) + operation["by"]}
            case _:
                raise FoldDefect
    return list(changes.items())
