"""The rows by which ``List`` finds its answer: each execution and approval under its tenant, agent and state (AGT-07).

They follow from the changes of the other rows, so one function serves every rule of the fold. A row of a list is
written when the state changes and at no other time; like all rows it carries the records that make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kblockd.domain import rows
from kblockd.domain.rows import Changes, Key, Read, Row

LISTS: Final[Mapping[str, Callable[[str, str, str, str], Key]]] = {
    "execution": rows.listed_execution,
    "approval": rows.listed_approval,
}
"""By the table whose rows are listed."""
TABLES: Final = frozenset({"listed_execution", "listed_approval", "agent"})


def lists(read_row: Read, index: int, changes: Changes) -> Changes:
    """What the record at ``index`` changes in the lists, given what it changes elsewhere."""
    found: Changes = []
    for key, row in changes:
        if row is None or key[0] not in LISTS:
            continue
        before = read_row(key)
        if before is not None and before["state"] == row["state"]:
            continue
        if before is not None:
            found.append((_place(key, before), None))
        elif key[0] == "execution":
            found += _agent(read_row, index, row)
        found.append((_place(key, row), {"records": row["records"]}))
    return found


def _place(key: Key, row: Row) -> Key:
    return LISTS[str(key[0])](row["tenant"], row["agent"], row["state"], str(key[1]))


def _agent(read_row: Read, index: int, execution: Row) -> Changes:
    """Whose executions there are: by its first one."""
    key = rows.agent(execution["tenant"], execution["agent"])
    return [] if read_row(key) is not None else [(key, {"records": [index]})]
