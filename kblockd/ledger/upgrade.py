"""What ``kblockd ledger upgrade`` adds to a ledger of an older version, and what it refuses to touch.

The rows come from the records, by the same fold that the daemon uses, after everything that the older version wrote
was verified against them: an upgrade never launders a row that does not follow from its records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kblockd.domain.ledger import listing
from kblockd.ledger.verify import Progress, refold, refuse
from kblockd.store.database import StoreView
from kblockd.store.protocol import Fold
from kblockd.store.scratch import Scratch
from kblockd.store.upgrade import Refold

ADDED_TABLES: Final = listing.TABLES
"""What the fold writes today and did not in ``kblockd.store/1``; those of ``kblockd.store/2`` are made again."""


def refolding(
    fold: Fold, heads: Mapping[int, bytes], tables: Collection[str] = ADDED_TABLES, progress: Progress | None = None
) -> Refold:
    """For ``kblockd.store.upgrade.upgrade``; what it makes raises ``StoreRefused`` naming the first difference."""

    def run(view: StoreView, scratch: Scratch) -> None:
        refuse(refold(view, fold, scratch, heads=heads, progress=progress, unmade=tables).differences)

    return run
