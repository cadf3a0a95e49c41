"""What the ledger says of an execution's earlier attempts: a new marker takes it out of the row (``domain.fold``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kblockd.domain.records import RecordType, read
from kblockd.domain.states import ResultClass
from kblockd.execution.absence import Proof
from kblockd.execution.journal import NOTHING, Written
from kblockd.execution.parts import Parts
from kblockd.store.protocol import Row


async def doubted(parts: Parts, row: Row, own: Written = NOTHING) -> bool:
    """Whether any attempt was sent whose own outcome did not prove that nothing happened (UPS-07).

    Its absence may have been proved by a look-up since; that was the upstream's promise, and it may have been wrong.
    """
    sent: set[int] = set()
    proved: set[int] = set()
    async for type_, attempt, body in _events(parts, row, own):
        if type_ is RecordType.SENT:
            sent.add(attempt)
        elif type_ is RecordType.ATTEMPT_OUTCOME and not body["late"]:
            before = body["class"] == ResultClass.FAILED_BEFORE_SIDE_EFFECT
            (proved.add if before else proved.discard)(attempt)
    return bool(sent - proved)


async def at_work(parts: Parts, row: Row, own: Written = NOTHING) -> bool:
    """Whether an answer to any attempt said that the effect may still come; what a ledger of an older version does not
    say counts as no."""
    last: dict[tuple[int, bool], bool] = {}
    async for type_, attempt, body in _events(parts, row, own):
        if type_ is RecordType.ATTEMPT_OUTCOME:
            last[attempt, body["late"]] = bool(body.get("at_work"))
    return any(last.values())


async def acted(parts: Parts, row: Row) -> bool:
    """Whether an answer that came too late to be the attempt's outcome says that the effect was done."""
    if not row.get("late"):
        return False
    done = (ResultClass.COMPLETED_UNVERIFIED, ResultClass.ACCEPTED)
    late = [body async for _, _, body in _events(parts, row, NOTHING) if body.get("late")]
    return any(body["class"] in done for body in late)


async def unbegun(parts: Parts, row: Row) -> set[int]:
    """The attempts that were marked without the adapter being called then; ledgers of older versions name none."""
    if not row["marker"]:
        return set()
    return {attempt async for _, attempt, body in _events(parts, row, NOTHING) if body.get("proof") == Proof.NOT_BEGUN}


async def _events(parts: Parts, row: Row, own: Written) -> AsyncIterator[tuple[RecordType, int, Any]]:
    """Markers and outcomes in their order; ``own`` is what the run that asks has written itself."""
    for index in row["records"]:
        if index in own.records and (leaf := own.records[index].leaf):
            record = read(leaf)
        elif (stored := await parts.store.leaf(index)) is not None:
            record = read(stored.leaf)
        else:
            raise ValueError(f"record {index} of the execution is not in the ledger")
        if record.type in (RecordType.SENT, RecordType.ATTEMPT_OUTCOME):
            yield record.type, record.attempt, record.body
