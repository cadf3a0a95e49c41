"""The daemon's store: opening it over the fold and the tree, and verifying it after an unclean stop."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from pathlib import Path

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.failpoints import Failpoints
from kblockd.domain.ledger import envelope, fold
from kblockd.ending import Shutdown
from kblockd.ledger import start
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import verify
from kblockd.store.protocol import StoreFailed
from kblockd.store.rocks import RocksStore

_log = logging.getLogger(__name__)


async def open_store(data_dir: Path, tree: MerkleTree, failpoints: Failpoints, ending: Shutdown) -> RocksStore:
    """Raises ``StoreRefused`` with the numbers and the next step."""
    return await RocksStore.open(
        data_dir,
        fold=fold,
        tree=tree,
        failpoints=failpoints,
        on_failure=ending.fail,
        inspect=start.inspect(fold),
    )


async def last_record_time(store: RocksStore) -> dt.datetime | None:
    """The time in the newest record; None for an empty ledger."""
    record = await store.leaf(store.size() - 1) if store.size() else None
    return parse_rfc3339(envelope(record.leaf).at) if record else None


async def verify_after_unclean_stop(store: RocksStore, ending: Shutdown) -> None:
    """Verifies the whole ledger against its rows and tree. A difference, or a ledger that cannot be verified, means
    NOT_SERVING and no further commits, so nothing is sent."""
    try:
        async with store.frozen() as (view, head):
            report = await asyncio.to_thread(verify, view, fold, heads={head.size: head.root})
    except StoreFailed:
        return  # the daemon is ending
    except Exception as error:
        _distrust(store, ending, f"the ledger cannot be verified: {error}")
        return
    if report.ok:
        _log.info("the ledger of %d records verifies after the unclean stop", report.size)
    else:
        _distrust(store, ending, f"the ledger does not verify, {report.faults} differences: {report.differences[0]}")


def _distrust(store: RocksStore, ending: Shutdown, reason: str) -> None:
    store.distrust(reason)
    ending.distrust(reason)
