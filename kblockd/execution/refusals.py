"""Refusals on record (``call.refused``), whoever refuses: the entrance, a stage, or a run before its consumption."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import KblockError, Reason
from kblockd.domain.records import Record, RecordType
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.execution.stages import Stage
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
    more: Mapping[str, Any] | None = None,
    payloads: Sequence[Payload] = (),
) -> None:
    """Ordered when it returns. One that cannot be written is not worth failing for: its caller is told anyway."""
    body = {"reason": str(reason), "principal": principal, "method": method, **(more or {})}
    at, number = rfc3339(parts.clock.now()), None if stage is None else stage.value
    leaf = Record(RecordType.CALL_REFUSED, at, tenant, execution_id, attempt, number, body).leaf()
    try:
        await parts.store.commit([], [Append(leaf)], payloads)
    except StoreFailed:
        _log.warning("a refusal could not be recorded", extra={"execution_id": execution_id})


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
    more: Mapping[str, Any] | None = None,
) -> None:
    """With the decision that was made before or that led to it: every decision is in the ledger, its input too.

    Whoever catches ``refusal`` sees that it is on record.
    """
    decided, kept = asked.on_record(parts, execution_id)
    await record(
        parts,
        refusal.reason,
        tenant=tenant,
        execution_id=execution_id,
        attempt=attempt,
        stage=stage,
        principal=principal,
        method=method,
        more={**decided, **(more or {})},
        payloads=kept,
    )
    refusal.on_record = True
