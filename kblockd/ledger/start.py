"""What the daemon looks at before it opens its store for writing: the rows that guarantees rest on.

Open executions with their approvals, undecided approvals, locks, and everything that says who may do what. Each is
folded again from the records that it lists (kblockd/store/README.md#start). Finished executions are left to ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import Decode, indexes
from kblockd.ledger.verify import Stored, check_rows, refuse, stored, stored_rows
from kblockd.store.database import StoreView
from kblockd.store.protocol import Fold

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


def inspect(fold: Fold, decode: Decode = rows.decode) -> Callable[[StoreView], None]:
    """For ``RocksStore.open(inspect=...)``; raises ``StoreRefused`` naming the first row that differs."""

    def look(view: StoreView) -> None:
        refuse(check_rows(view, fold, _rows(view, decode)))

    return look


def _rows(view: StoreView, decode: Decode) -> Iterator[Stored]:
    for table in SECURITY_TABLES:
        yield from stored_rows(view, table, decode)
    for entry in stored_rows(view, "approval", decode):
        if entry[2] is None or entry[2].state in _LIVE_APPROVALS:
            yield entry
    for key, version, row in stored_rows(view, "open", decode):
        yield key, version, row
        execution = rows.execution(str(key[1]))
        found = view.raw(execution)
        # A missing row is compared as one that lists what its open row lists.
        yield (execution, version, rows.ListedRow(indexes(row))) if found is None else stored(execution, found, decode)
