"""Expiry is in the check itself, not only in a sweep: what has passed its time cannot be approved or run (APR-04)."""

from __future__ import annotations

from typing import Final

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import NotFound, Reason
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.closing import ExecutionExpired
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.stages import Stage
from kblockd.domain.states import State
from kblockd.execution.journal import Entry, Journal
from kblockd.execution.parts import Parts
from kblockd.store.protocol import Conflict
from kblockd.telemetry.recorder import Trace

WAITING: Final = (State.PENDING_APPROVAL, State.APPROVED)


async def expire_if_due(parts: Parts, execution_id: str) -> tuple[int, ExecutionRow]:
    """(version, row) after an expiry that was due has been recorded durably; raises ``NotFound``."""
    version, row = await _current(parts, execution_id)
    if row.state not in WAITING or parts.clock.now() < parse_rfc3339(row.not_after):
        return version, row
    journal = Journal(execution_id, row.tenant, Trace(), version)
    try:
        ticket = await journal.commit(parts, Stage.AWAIT_APPROVAL, [Entry(ExecutionExpired(code="TASK_EXPIRED"))])
        await ticket.durable()
    except Conflict:
        pass  # somebody was faster: the row says what happened
    return await _current(parts, execution_id)


async def _current(parts: Parts, execution_id: str) -> tuple[int, ExecutionRow]:
    found = await parts.store.get(rows.execution(execution_id))
    if found is None:
        raise NotFound(Reason.NOT_FOUND, f"there is no execution {execution_id[:80]!r}")
    return found
