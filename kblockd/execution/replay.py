"""Stage 2: has this call been made before? Before policy, so that a legitimate repeat gets its stored outcome (C13).

A caller key binds tenant, agent and fingerprint: another fingerprint under it is a conflict (IDM-01). Without a key
the open action of that exact call is resumed (R069); once it has closed, an identical call is new (C29). Another
call with the same intent is refused while the first is unresolved (C10).
"""

from __future__ import annotations

from kblockd.domain.errors import AlreadyExists, FailedPrecondition, Reason
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import R, RowKey
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.action import Admitted
from kblockd.execution.parts import Parts
from kblockd.execution.stages import stage


@value_type(frozen=True, slots=True)
class Existing:
    """The execution that this call belongs to."""

    execution_id: str


@stage(Stage.REPLAY)
async def replay(parts: Parts, admitted: Admitted) -> Existing | None:
    """The execution of this very call, or None for a new one.

    Raises ``AlreadyExists`` (IDEMPOTENCY_CONFLICT) or ``FailedPrecondition`` (TWIN_UNRESOLVED).
    """
    found = await existing(parts, admitted)
    if found is not None:
        return found
    twin = await parts.store.get(rows.twin(admitted.twin))
    if twin is not None:
        raise unresolved(twin[1].execution)
    return None


async def existing(parts: Parts, admitted: Admitted) -> Existing | None:
    """By caller key, else by fingerprint among the open keyless calls."""
    if admitted.caller_key:
        row = await _row(parts, rows.caller_key(admitted.caller_key))
        if row is None:
            return None
        if row.fingerprint != admitted.fingerprint:
            raise AlreadyExists(
                Reason.IDEMPOTENCY_CONFLICT,
                "envelope.caller_key was used for another call (other tool, target or arguments). "
                "Nothing was executed or consumed for this one.",
                next_step="use a key of its own for each business intent",
                execution_id=row.execution,
            )
        return Existing(row.execution)
    link = await _row(parts, rows.open_call(admitted.fingerprint))
    return Existing(link.execution) if link else None


def unresolved(execution_id: str) -> FailedPrecondition:
    """The same deed is in flight, unknown or held: a second one could double it."""
    return FailedPrecondition(
        Reason.TWIN_UNRESOLVED,
        "an action with the same intent is in flight or its outcome is not resolved. "
        "Nothing was executed or consumed for this call.",
        next_step="wait for the other action, or have an operator resolve it",
        execution_id=execution_id,
    )


async def _row(parts: Parts, key: RowKey[R]) -> R | None:
    found = await parts.store.get(key)
    return found[1] if found else None
