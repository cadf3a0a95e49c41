"""The rows by which ``List`` finds its answer: each execution and approval under its tenant, agent and state (AGT-07).

They follow from the changes of the other rows, so one function serves every rule of the fold. A row of a list is
written when the state changes and at no other time; like all rows it carries the records that make it again.
"""

from __future__ import annotations

from typing import Final

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ApprovalRow, Changes, ExecutionRow, ListedRow, Read, RowKey

TABLES: Final = frozenset({"listed_execution", "listed_approval", "agent"})


def lists(read: Read, index: int, changes: Changes) -> Changes:
    """What the record at ``index`` changes in the lists, given what it changes elsewhere."""
    found: Changes = []
    for _, row in changes:
        if isinstance(row, ExecutionRow):
            before = read(rows.execution(row.id))
            found += [] if before is not None else _agent(read, index, row)
            found += _moved(before, row)
        elif isinstance(row, ApprovalRow):
            found += _moved(read(rows.approval(row.approval_id)), row)
    return found


def _moved(before: ExecutionRow | ApprovalRow | None, row: ExecutionRow | ApprovalRow) -> Changes:
    if before is None:
        return [(_place(row), ListedRow(row.records))]
    return [] if before.state == row.state else [(_place(before), None), (_place(row), ListedRow(row.records))]


def _place(row: ExecutionRow | ApprovalRow) -> RowKey[ListedRow]:
    if isinstance(row, ExecutionRow):
        return rows.listed_execution(row.tenant, row.agent, row.state, row.id)
    return rows.listed_approval(row.tenant, row.agent, row.state, row.approval_id)


def _agent(read: Read, index: int, execution: ExecutionRow) -> Changes:
    """Whose executions there are: by its first one."""
    key = rows.agent(execution.tenant, execution.agent)
    return [] if read(key) is not None else [(key, ListedRow((index,)))]
