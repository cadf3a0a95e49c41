"""What the rules of the fold are made of: a row moved by the table, touched, counted, taken, given up."""

from __future__ import annotations

from typing import Any

from kblockd.domain import rows
from kblockd.domain.records import Record
from kblockd.domain.rows import Changes, Key, Read, Row
from kblockd.domain.states import Event, Phase, State, advance


def existing(read_row: Read, key: Key) -> Row:
    """Raises ValueError when no record made the row."""
    row = read_row(key)
    if row is None:
        raise ValueError(f"a record refers to {key[0]} {key[-1]}, which does not exist")
    return row


def touched(read_row: Read, index: int, record: Record, **changes: Any) -> dict[str, Any]:
    """The execution's row with this record in its list, where it stood."""
    row = existing(read_row, rows.execution(record.execution))
    return {**row, **changes, "records": [*row["records"], index]}


def moved(read_row: Read, index: int, record: Record, event: Event, **changes: Any) -> dict[str, Any]:
    """The execution's row with this record in its list, moved by the table; raises ``IllegalTransition``."""
    row = existing(read_row, rows.execution(record.execution))
    state, phase = advance((State(row["state"]), Phase(row["phase"])), event)
    return {**row, **changes, "state": str(state), "phase": str(phase), "records": [*row["records"], index]}


def check(holds: bool, record: Record, otherwise: str) -> None:
    """Raises ValueError saying why the record contradicts the rows."""
    if not holds:
        raise ValueError(f"{record.type} of {record.execution}: {otherwise}")


def counted(read_row: Read, key: Key, by: int) -> tuple[Key, Row | None]:
    """A counter; its row goes at zero. Raises ValueError below."""
    row = read_row(key)
    count = (row["count"] if row else 0) + by
    if count < 0:
        raise ValueError(f"the counter {key!r} would fall below zero")
    return (key, {"count": count} if count else None)


def taken(read_row: Read, key: Key, row: Row) -> tuple[Key, Row]:
    """A row that nobody else may have; the commit's conditions say so first, with an answer for the caller."""
    if read_row(key) is not None:
        raise ValueError(f"{key[0]} {key[-1]} is taken already")
    return (key, row)


def given_up(read_row: Read, key: Key, execution_id: str) -> Changes:
    """A guard that is still this execution's is freed; after a hold or a disposition somebody else may have it."""
    row = read_row(key)
    return [(key, None)] if row is not None and row["execution"] == execution_id else []
