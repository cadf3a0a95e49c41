"""The inputs of policy questions are kept for so many days, then erased; the records that name them stay (C17).

A pass goes through the records from where the last one ended, oldest first. What was erased is on record
(``store.pruned``) after it is gone: a pass that is cut short erases again what is no longer there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from kblockd.domain.clock import Clock, parse_rfc3339, rfc3339
from kblockd.domain.ledger import Record, read, rows
from kblockd.domain.ledger.configuration import StorePruned
from kblockd.store.protocol import Append, Key, Store, StoreFailed

WHAT: Final = "policy_inputs"
PASS_SECONDS: Final = 3600.0
PROGRESS_RECORDS: Final = 4096
"""So many records without an input are worth a record of their own: the next start does not go through them again."""
_BATCH: Final = 256
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class InputRetention:
    """Over one ledger; ``days`` 0 means that inputs are not kept, so that those of earlier settings go as well."""

    store: Store
    clock: Clock
    days: int
    _from: int = 0

    async def run(self) -> None:
        """Until cancelled: at once, then every hour."""
        while True:
            try:
                await self.erase()
            except StoreFailed:
                return  # the daemon ends itself
            except Exception:
                _log.exception("inputs of policy questions that are due could not be erased")
            await self.clock.sleep(PASS_SECONDS)

    async def erase(self) -> int:
        """Erases what is due; the number of inputs that were there. Durable when it returns; raises ``StoreFailed``."""
        before = self.clock.now() - dt.timedelta(days=self.days)
        found = await self.store.get(rows.pruned(WHAT))
        recorded = found[1].before_index if found else 0
        self._from = max(self._from, recorded)
        erased = 0
        async for keys in self._due(before):
            there = [key for key in keys if await self.store.payload(key) is not None]
            await asyncio.gather(*map(self.store.delete_payload, there))
            erased += len(there)
        if erased or self._from - recorded >= PROGRESS_RECORDS:
            await self._record(before, erased)
        return erased

    async def _due(self, before: dt.datetime) -> AsyncIterator[list[Key]]:
        """Keys of the inputs of records older than ``before``, in batches; moves on once a batch was taken."""
        keys: list[Key] = []
        index = self._from
        while (stored := await self.store.leaf(index)) is not None:
            record = read(stored.leaf)
            if parse_rfc3339(record.at) >= before:
                break
            index += 1
            if digest := getattr(record.body, "input_payload", ""):
                keys.append(rows.policy_input(record.execution, digest))
            if index % _BATCH == 0:
                yield keys
                self._from, keys = index, []
                await self.clock.sleep(0)
        yield keys
        self._from = index

    async def _record(self, before: dt.datetime, erased: int) -> None:
        body = StorePruned(what=WHAT, before_index=self._from, older_than=rfc3339(before), count=erased)
        leaf = Record(body, rfc3339(self.clock.now())).leaf()
        ticket = await self.store.commit([], [Append(leaf)])
        await ticket.durable()
