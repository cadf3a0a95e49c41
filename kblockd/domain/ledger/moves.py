"""What the rules of the fold are made of: a row moved by the table, touched, counted, taken, given up."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.record import Record
from kblockd.domain.ledger.rows import Changes, CounterRow, ExecutionRow, LinkRow, R, Read, RowKey
from kblockd.domain.states import TERMINAL, Event, advance

Made = TypeVar("Made", bound=msgspec.Struct)


def existing(read: Read, key: RowKey[R]) -> R:
    """Raises ValueError when no record made the row."""
    row = read(key)
    if row is None:
        raise ValueError(f"a record refers to {key[0]} {key[-1]}, which does not exist")
    return row


def touched(read: Read, index: int, record: Record, **changes: Any) -> ExecutionRow:
    """The execution's row with this record in its list, where it stood."""
    row = existing(read, rows.execution(record.execution))
    return msgspec.structs.replace(row, **changes, records=(*row.records, index))


def moved(read: Read, index: int, record: Record, event: Event, **changes: Any) -> ExecutionRow:
    """The execution's row with this record in its list, moved by the table; raises ``IllegalTransition``."""
    row = existing(read, rows.execution(record.execution))
    state, phase = advance((row.state, row.phase), event)
    return msgspec.structs.replace(row, **changes, state=state, phase=phase, records=(*row.records, index))


def check(holds: bool, record: Record, otherwise: str) -> None:
    """Raises ValueError saying why the record contradicts the rows."""
    if not holds:
        raise ValueError(f"{record.type} of {record.execution}: {otherwise}")


def counted(read: Read, key: RowKey[CounterRow], by: int) -> tuple[RowKey[CounterRow], CounterRow | None]:
    """A counter; its row goes at zero. Raises ValueError below."""
    row = read(key)
    count = (row.count if row else 0) + by
    if count < 0:
        raise ValueError(f"the counter {key!r} would fall below zero")
    return (key, CounterRow(count) if count else None)


def taken(read: Read, key: RowKey[R], row: R) -> tuple[RowKey[R], R]:
    """A row that nobody else may have; the commit's conditions say so first, with an answer for the caller."""
    if read(key) is not None:
        raise ValueError(f"{key[0]} {key[-1]} is taken already")
    return (key, row)


def given_up(read: Read, key: RowKey[LinkRow], execution_id: str) -> Changes:
    """A guard that is still this execution's is freed; after a hold or a disposition somebody else may have it."""
    row = read(key)
    return [(key, None)] if row is not None and row.execution == execution_id else []


def only(record: Record, row: ExecutionRow) -> Changes:
    """The execution's row and no other."""
    return [(rows.execution(record.execution), row)]


def released(execution: ExecutionRow) -> Changes:
    """What a closed execution gives up: its place among the open ones, and the keyless call's guard."""
    assert execution.state in TERMINAL  # noqa: S101 - a defect of this module, never of data
    changes: Changes = [(rows.open_execution(execution.id), None)]
    if not execution.caller_key:
        changes.append((rows.open_call(execution.fingerprint), None))
    return changes


def target_key(execution: ExecutionRow) -> RowKey[LinkRow]:
    """Of the lock on what the execution acts on."""
    return rows.target(execution.tenant, execution.upstream, execution.target.type, execution.target.id)


def running_key(execution: ExecutionRow) -> RowKey[CounterRow]:
    """Of the counter of the actions of its contract."""
    return rows.running(execution.tenant, execution.operation, execution.environment)


def derived(made: type[Made], source: msgspec.Struct, **more: Any) -> Made:
    """A value with the fields that it shares with ``source``, and ``more``."""
    return made(**{name: getattr(source, name) for name in _shared(made, type(source))}, **more)


@functools.cache
def _shared(made: type[msgspec.Struct], source: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in made.__struct_fields__ if name in source.__struct_fields__)
