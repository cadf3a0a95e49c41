"""The sweep: expires what waited too long, takes up what nobody runs, closes what cannot be proved any more.

It never touches a running call: closure needs a dead lease, ``close_after`` since the consumption and, once something
was sent, a look at the upstream in this life of the daemon, however long it was away (UPS-15); or that several runs
failed before they came to look, or nothing would ever end it. ``held`` is left to operators (C3, R456 to R464). One
daemon owns the store, so there is one sweeper by construction.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from typing import Final

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ExecutionRow, LinkRow
from kblockd.domain.states import Phase, ResultClass, State
from kblockd.execution import history
from kblockd.execution.expire import expire_if_due
from kblockd.execution.parts import Parts
from kblockd.execution.recover import Conclusion
from kblockd.execution.resume import journal_of
from kblockd.execution.seal import INTERRUPTED, seal_with
from kblockd.execution.supervisor import Supervisor
from kblockd.store.protocol import Conflict, StoreFailed
from kblockd.telemetry.recorder import Trace

_log = logging.getLogger(__name__)
UNKNOWN: Final = (ResultClass.UNKNOWN_OUTCOME, "interrupted; upstream outcome unknown")
_RUNS: Final = 3


class Sweeper:
    """One pass over the open executions every ``clocks.sweep_seconds``."""

    def __init__(self, parts: Parts, supervisor: Supervisor) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._taken_up: Counter[str] = Counter()  # how often, of open executions

    async def run(self) -> None:
        """Until cancelled; the first pass is at once: the start's reconciliation."""
        while True:
            try:
                await self.sweep()
            except StoreFailed:
                return  # the daemon ends itself
            except Exception:
                # A sweeper that died silently would leave orphans executing for ever.
                _log.exception("the sweep could not go through the open executions")
            await self._parts.clock.sleep(self._parts.clocks.sweep_seconds)

    async def sweep(self) -> None:
        """One pass; a single execution that cannot be handled does not keep the others waiting."""
        after: rows.Key | None = None
        still_open: set[str] = set()
        while True:
            scanned = await self._parts.store.scan(rows.under(LinkRow, "open"), after=after, limit=256)
            for key, _, link in scanned:
                after = key
                still_open.add(link.execution)
                await self._guarded(link.execution)
            if len(scanned) < 256:
                self._taken_up = Counter({it: n for it, n in self._taken_up.items() if it in still_open})
                self._supervisor.adrift &= still_open
                return

    async def _guarded(self, execution_id: str) -> None:
        try:
            await self._one(execution_id)
        except Conflict:
            return
        except StoreFailed:
            raise
        except Exception:
            _log.exception("the sweep could not handle an execution", extra={"execution_id": execution_id})

    async def _one(self, execution_id: str) -> None:
        if self._supervisor.running(execution_id) is not None or self._parts.leases.live(execution_id):
            return
        _, row = await expire_if_due(self._parts, execution_id)
        if row.state != State.EXECUTING:
            return
        looked = execution_id in self._supervisor.adrift or self._taken_up[execution_id] >= _RUNS
        if self._overdue(row) and (looked or not row.marker):
            await self._close(execution_id)
        elif await self._supervisor.take_up(execution_id):
            self._taken_up[execution_id] += 1

    def _overdue(self, row: ExecutionRow) -> bool:
        age = self._parts.clock.now() - parse_rfc3339(row.claimed_at)
        return age >= dt.timedelta(seconds=self._parts.clocks.close_after_seconds)

    async def _close(self, execution_id: str) -> None:
        """INTERRUPTED: before the upstream was called where the missing marker proves it, else unknown (R460, R461)."""
        found = await journal_of(self._parts, execution_id, Trace())
        if found is None or found[1].state != State.EXECUTING:
            return
        journal, row = found
        result_class, detail = closure(row)
        if result_class is ResultClass.FAILED_BEFORE_SIDE_EFFECT and await self._contradicted(row):
            result_class, detail = UNKNOWN
        await seal_with(self._parts, journal, Conclusion(State.FAILED, result_class, INTERRUPTED, detail))

    async def _contradicted(self, row: ExecutionRow) -> bool:
        """Nobody has looked once more at an attempt that was lost (UPS-07), or a late answer says that it was done."""
        return await history.doubted(self._parts, row) or await history.acted(self._parts, row)


def closure(row: ExecutionRow) -> tuple[ResultClass, str]:
    """The class and the words of a closure by age."""
    if not row.marker:
        return ResultClass.NOT_STARTED, "interrupted before the upstream was called"
    proved_absent = row.finding is not None and row.finding.finding == "absent"
    refused = row.phase == Phase.RECOVERING and row.result_class == ResultClass.FAILED_BEFORE_SIDE_EFFECT
    # Claimed again and unsent: it came there only after a proof that the attempt before had no effect.
    if proved_absent or refused or row.phase == Phase.CLAIMED:
        return ResultClass.FAILED_BEFORE_SIDE_EFFECT, "interrupted; the effect is proved not to have happened"
    return UNKNOWN
