"""Expiry is in the check itself, not only in a sweep: what has passed its time cannot be approved or run (APR-04)."""

from __future__ import annotations

from typing import Final

from kblockd.domain import rows
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import NotFound, Reason
from kblockd.domain.records import RecordType
from kblockd.domain.states import State
from kblockd.execution.journal import Entry, Journal
from kblockd.execution.parts import Parts
from kblockd.execution.stages import Stage
from kblockd.store.protocol import Conflict, Row
from kblockd.telemetry.recorder import Trace

WAITING: Final = (State.PENDING_APPROVAL, State.APPROVED)


async def expire_if_due(parts: Parts, execution_id: str) -> tuple[int, Row]:
    """(version, row) after an expiry that was due has been recorded durably; raises ``NotFound``."""
    version, row = await _current(parts, execution_id)
    if row["state"] not in WAITING or parts.clock.now() < parse_rfc3339(row["not_after"]):
        return version, row
    journal = Journal(execution_id, row["tenant"], Trace(), version)
    body = {"code": "TASK_EXPIRED", "policy_revision": "", "reasons": []}
    try:
        ticket = await journal.commit(parts, Stage.AWAIT_APPROVAL, [Entry(RecordType.EXPIRED, body)])
        await ticket.durable()
    except Conflict:
        pass  # somebody was faster: the row says what happened
    return await _current(parts, execution_id)


async def _current(parts: Parts, execution_id: str) -> tuple[int, Row]:
    found = await parts.store.get(rows.execution(execution_id))
    if found is None:
        raise NotFound(Reason.NOT_FOUND, f"there is no execution {execution_id[:80]!r}")
    return found
