"""What the daemon looks at before it opens its store for writing: the rows that guarantees rest on.

Open executions with their approvals, undecided approvals, locks, and everything that says who may do what. Each is
folded again from the records that it lists (kblockd/store/README.md#start). Finished executions are left to ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kblockd.domain import rows
from kblockd.ledger.verify import check_rows, refuse
from kblockd.store.database import StoreView
from kblockd.store.protocol import Fold, Key, Row

SECURITY_TABLES: Final = (
    "principal",
    "key",
    "active_key",
    "policy",
    "contract",
    "upstream",
    "open_call",
    "twin",
    "target",
)
_LIVE_APPROVALS: Final = frozenset({"pending", "approved"})


def inspect(fold: Fold) -> Callable[[StoreView], None]:
    """For ``RocksStore.open(inspect=...)``; raises ``StoreRefused`` naming the first row that differs."""

    def look(view: StoreView) -> None:
        refuse(check_rows(view, fold, _rows(view)))

    return look


def _rows(view: StoreView) -> Iterator[tuple[Key, int, Row]]:
    for table in SECURITY_TABLES:
        yield from view.rows((table,))
    for entry in view.rows(("approval",)):
        if entry[2].get("state") in _LIVE_APPROVALS:
            yield entry
    for key, version, row in view.rows(("open",)):
        yield key, version, row
        execution = rows.execution(str(key[1]))
        found = view.get(execution)
        # A missing row is compared as an empty one that lists what its open row lists.
        yield (execution, *found) if found else (execution, version, {"records": row.get("records")})
