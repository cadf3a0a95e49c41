"""Stage 6: the lease and the target's lock, before anything is read that must not change under us."""

from __future__ import annotations

import datetime as dt

from kblockd.domain.ledger import rows
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.leases import Lease, busy
from kblockd.execution.parts import Parts
from kblockd.execution.preflight import Preflighted, Raced
from kblockd.execution.stages import stage
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class Leased:
    """Preflighted, with exclusive authority over execution and target."""

    preflighted: Preflighted
    lease: Lease

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.preflighted.trace


@stage(Stage.LEASE)
async def lease(parts: Parts, preflighted: Preflighted) -> Leased:
    """Raises ``Aborted`` (TARGET_BUSY) while another execution has the target; the action stays approved.

    And ``Raced`` when the tool's definition was looked at longer ago than a lease lasts, by whatever stopped the daemon
    since: from here on the lease itself bounds how old is what was looked at.
    """
    action = preflighted.run.action
    key = rows.target(action.tenant, action.upstream, action.target.type, action.target.id)
    granted = parts.leases.acquire(action.execution_id, key)
    if parts.clock.now() - preflighted.described_at >= dt.timedelta(seconds=parts.leases.ttl):
        raise Raced
    row = await parts.store.get(key)
    if row is not None and row[1].execution != action.execution_id:
        parts.leases.release(granted)
        raise busy(row[1].execution)
    return Leased(preflighted, granted)
