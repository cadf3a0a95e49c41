"""Refusals on record (``call.refused``), whoever refuses: the entrance, a stage, or a run before its consumption.

Only the first of a kind and minute is kept whole, and only within the principal's share of records and while the disk
has room; all others are counted (``counting``). A refusal must not be a way to fill the ledger (AGT-06, R174).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from kblockd.admission import on_behalf_of
from kblockd.admission import principal as whoever
from kblockd.admission.offload import offload, size_of
from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import KblockError, Reason
from kblockd.domain.ledger import Record
from kblockd.domain.ledger.proposal import CallRefused, RefusalDetails
from kblockd.domain.stages import Stage
from kblockd.execution.counting import Kind, Window
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.store.protocol import Append, Payload, StoreFailed

_log = logging.getLogger(__name__)


async def record(
    parts: Parts,
    reason: Reason,
    *,
    tenant: str,
    execution_id: str = "",
    attempt: int = 0,
    stage: Stage | None = None,
    principal: str = "",
    method: str = "",
    more: RefusalDetails | None = None,
    payloads: Sequence[Payload] = (),
) -> None:
    """Ordered when it returns, or counted. One that cannot be written is not worth failing for: its caller is told
    anyway."""
    who = principal or whoever()
    if not _is_first(parts, Kind(tenant, who, str(reason), method, execution_id)):
        return
    body = CallRefused(reason=str(reason), principal=principal, method=method, **(more or RefusalDetails()))
    at, number = rfc3339(parts.clock.now()), None if stage is None else stage.order
    leaf = Record(body, at, tenant, execution_id, attempt, number).leaf()
    try:
        await parts.store.commit([], [Append(leaf)], payloads)
    except StoreFailed:
        _log.warning("a refusal could not be recorded", extra={"execution_id": execution_id})
        return
    with on_behalf_of(who):
        parts.admission.recorded(1, sum(len(payload.data) for payload in payloads))


def _is_first(parts: Parts, kind: Kind) -> bool:
    """Whether it is to be recorded whole; else it has been counted."""
    now, at = parts.clock.monotonic(), rfc3339(parts.clock.now())
    counts = parts.refused
    if counts.is_open(kind):
        counts.add(kind, at)
        return False
    with on_behalf_of(kind.principal):
        room = parts.admission.may_record() and parts.capacity.has_space()
    if room:
        counts.open(kind, now)
        return True
    every = kind._replace(method="", execution_id="")  # else each execution would have a window and, later, a record
    if not counts.is_open(every):
        counts.open(every, now)
    counts.add(every, at)
    return False


async def keep_counts(parts: Parts) -> None:
    """Writes the counts whose minute has ended, until it is cancelled."""
    while True:
        await parts.clock.sleep(1.0)
        await write_counts(parts, parts.clock.monotonic())


async def write_counts(parts: Parts, now: float = math.inf) -> None:
    """One record for each kind that was counted in a window that has ended by ``now`` (all of them at the stop)."""
    if not parts.capacity.has_space():
        return  # they wait until there is room
    for kind, window in parts.refused.take(now):
        leaf = _count(kind, window, rfc3339(parts.clock.now())).leaf()
        try:
            await parts.store.commit([], [Append(leaf)])
        except StoreFailed:
            _log.warning("%d refusals (%s) could not be recorded", window.count, kind.reason)
            return


def _count(kind: Kind, window: Window, at: str) -> Record:
    body = CallRefused(
        reason=kind.reason,
        principal=kind.principal,
        method=kind.method,
        count=window.count,
        since=window.since,
        until=window.until,
    )
    return Record(body, at, kind.tenant, kind.execution_id)


async def of_decision(
    parts: Parts,
    refusal: KblockError,
    asked: Asked,
    *,
    tenant: str,
    stage: Stage,
    execution_id: str = "",
    attempt: int = 0,
    principal: str = "",
    method: str = "",
    more: RefusalDetails | None = None,
) -> None:
    """With the decision that was made before or that led to it: every decision is in the ledger, its input too.

    Whoever catches ``refusal`` sees that it is on record.
    """
    decided, kept = await offload(0 if execution_id else size_of(asked.document), asked.on_record, parts, execution_id)
    details: RefusalDetails = {**decided, **(more or RefusalDetails())}
    await record(
        parts,
        refusal.reason,
        tenant=tenant,
        execution_id=execution_id,
        attempt=attempt,
        stage=stage,
        principal=principal,
        method=method,
        more=details,
        payloads=kept,
    )
    refusal.on_record = True
