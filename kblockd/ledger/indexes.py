"""The rows of the lists for a store that was written before there were any: computed by the fold, from records alone.

For the command that upgrades a store. The daemon opens none that lacks them (``start``): a list that left out what is
older than the upgrade would look complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from kblockd.domain.listing import TABLES
from kblockd.store.database import View
from kblockd.store.protocol import Fold, Key, Row


def lists(view: View, fold: Fold) -> Iterator[tuple[Key, int, Row]]:
    """(key, version, row) of every row of the lists, each key once. Takes memory for one execution at a time, and for
    the names of the agents. Blocks.

    Raises ValueError for an execution whose records are missing or do not fold: verify such a store first.
    """
    agents: set[Key] = set()
    for key, _, execution in view.rows(("execution",)):
        for found, (version, row) in _of_one(view, fold, str(key[1]), execution).items():
            if found[0] == "agent":
                if found in agents:
                    continue
                agents.add(found)
            yield found, version, row


def _of_one(view: View, fold: Fold, execution_id: str, execution: Row) -> dict[Key, tuple[int, Row]]:
    state: dict[Key, Row | None] = {}
    found: dict[Key, tuple[int, Row]] = {}
    for index in execution["records"]:
        record = view.leaf(index)
        if record is None:
            raise ValueError(f"execution {execution_id} lists record {index}, which is missing")
        for key, row in fold(state.get, index, record.leaf):
            state[key] = row
            if key[0] not in TABLES:
                continue
            if row is None:
                found.pop(key, None)
            else:
                found[key] = (index, row)
    return found


def missing(view: View) -> bool:
    """Whether the store has executions and no lists."""
    return next(iter(view.rows(("execution",))), None) is not None and next(iter(view.rows(("agent",))), None) is None
