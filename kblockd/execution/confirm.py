"""One more look-up before anything is sealed as "before the effect" over an attempt whose answer was lost (UPS-07).

The absence of that attempt was proved once, by the contract's promise of when it is final. Here the promise is looked
at again at the last moment at which a wrong one can still be mended: what is found now is verified as any effect that
was found, and what cannot be proved is not sealed as absent.
"""

from __future__ import annotations

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import Aborted
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.states import ResultClass
from kblockd.execution import history
from kblockd.execution.action import Run
from kblockd.execution.classify import Classified
from kblockd.execution.consume import Claim
from kblockd.execution.leases import Lease
from kblockd.execution.parts import Parts
from kblockd.execution.reconcile import Standing, reconcile
from kblockd.execution.recover import Adrift, Again, Ending, Hold, recover
from kblockd.execution.verify import verify

_PAUSE_SECONDS = 1.0
NOT_CONFIRMED = "ABSENCE_NOT_CONFIRMED"


async def confirm(parts: Parts, ending: Ending) -> Ending | Hold | Adrift:
    """The same ending where no attempt is in doubt or the look-up says absent again; else what follows from it.

    Raises ``Conflict`` when somebody else has moved the execution.
    """
    run = ending.run
    row = run.journal.row(parts)
    if not await history.doubted(parts, row, run.journal.written):
        return ending
    lease = await _lease(parts, ending)
    if lease is None:
        return _unconfirmed(run)
    settled = await reconcile(parts, await _in_doubt(parts, ending, row, lease))
    if settled.standing is Standing.ABSENT:
        return ending
    if settled.standing is Standing.UNPROVABLE:
        return _unconfirmed(run)
    found = await recover(parts, await verify(parts, settled))
    if isinstance(found, Again):  # a present effect never leads there
        raise TypeError("an effect that was found cannot be attempted again")
    return found


async def _in_doubt(parts: Parts, ending: Ending, row: ExecutionRow, lease: Lease) -> Classified:
    """Finality counts from now: an effect that became visible later than the contract promises has that time again."""
    run = ending.run
    ends = parse_rfc3339(row.deadline_at)
    deadline = parts.clock.monotonic() + (ends - parts.clock.now()).total_seconds()
    claim = Claim(run, lease, row.effect_key, row.approval_id, deadline, ends)
    return Classified(
        claim,
        parts.clock.monotonic(),
        ResultClass.UNKNOWN_OUTCOME,
        ending.code,
        ending.detail,
        None,
        row.operation_id,
        await history.at_work(parts, row, run.journal.written),
    )


async def _lease(parts: Parts, ending: Ending) -> Lease | None:
    """Nothing is sent under it; it keeps the target from those who look at it meanwhile, and waits for them as long as
    for a look-up. None when it was not to be had."""
    action = ending.run.action
    target = rows.target(action.tenant, action.upstream, action.target.type, action.target.id)
    end = parts.clock.monotonic() + parts.clocks.reconcile_seconds
    while True:
        try:
            return parts.leases.acquire(action.execution_id, target)
        except Aborted:
            if parts.clock.monotonic() >= end:
                return None
        await parts.clock.sleep(_PAUSE_SECONDS)


def _unconfirmed(run: Run) -> Hold:
    return Hold(run, NOT_CONFIRMED, keep_lock=True, result_class=ResultClass.UNKNOWN_OUTCOME)
