"""What the ledger says of an execution's earlier attempts: a new marker takes it out of the row (``domain.ledger``)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kblockd.domain.ledger import read
from kblockd.domain.ledger.attempt import AttemptOutcome
from kblockd.domain.ledger.claim import Sent
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.states import ResultClass
from kblockd.execution.absence import Proof
from kblockd.execution.journal import NOTHING, Written
from kblockd.execution.parts import Parts


async def doubted(parts: Parts, row: ExecutionRow, own: Written = NOTHING) -> bool:
    """Whether any attempt was sent whose own outcome did not prove that nothing happened (UPS-07).

    Its absence may have been proved by a look-up since; that was the upstream's promise, and it may have been wrong.
    """
    sent: set[int] = set()
    proved: set[int] = set()
    async for attempt, body in _events(parts, row, own):
        if isinstance(body, Sent):
            sent.add(attempt)
        elif not body.late:
            before = body.result_class is ResultClass.FAILED_BEFORE_SIDE_EFFECT
            (proved.add if before else proved.discard)(attempt)
    return bool(sent - proved)


async def at_work(parts: Parts, row: ExecutionRow, own: Written = NOTHING) -> bool:
    """Whether an answer to any attempt said that the effect may still come; what a ledger of an older version does not
    say counts as no."""
    last: dict[tuple[int, bool], bool] = {}
    async for attempt, body in _events(parts, row, own):
        if isinstance(body, AttemptOutcome):
            last[attempt, body.late] = body.at_work
    return any(last.values())


async def acted(parts: Parts, row: ExecutionRow) -> bool:
    """Whether an answer that came too late to be the attempt's outcome says that the effect was done."""
    if not row.late:
        return False
    done = (ResultClass.COMPLETED_UNVERIFIED, ResultClass.ACCEPTED)
    outcomes = [body async for _, body in _events(parts, row, NOTHING) if isinstance(body, AttemptOutcome)]
    return any(body.late and body.result_class in done for body in outcomes)


async def unbegun(parts: Parts, row: ExecutionRow) -> set[int]:
    """The attempts that were marked without the adapter being called then; ledgers of older versions name none."""
    if not row.marker:
        return set()
    return {
        attempt
        async for attempt, body in _events(parts, row, NOTHING)
        if isinstance(body, AttemptOutcome) and body.proof == Proof.NOT_BEGUN
    }


async def _events(parts: Parts, row: ExecutionRow, own: Written) -> AsyncIterator[tuple[int, Sent | AttemptOutcome]]:
    """Markers and outcomes in their order; ``own`` is what the run that asks has written itself."""
    for index in row.records:
        if index in own.records and (leaf := own.records[index].leaf):
            record = read(leaf)
        elif (stored := await parts.store.leaf(index)) is not None:
            record = read(stored.leaf)
        else:
            raise ValueError(f"record {index} of the execution is not in the ledger")
        if isinstance(record.body, Sent | AttemptOutcome):
            yield record.attempt, record.body
