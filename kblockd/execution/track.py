"""Stage 13, for an accepted operation: poll until it is done, by its operation id (R212, R654, OUT-10, HTP-03).

The operation id is in the ledger before the first poll (stage 12 awaits its record), so a restart polls on.
"""

from __future__ import annotations

import dataclasses

from kblockd.domain.states import ResultClass
from kblockd.execution.classify import Classified, attempt_record, classify_outcome
from kblockd.execution.parts import Parts
from kblockd.execution.spans import calling, polling
from kblockd.execution.stages import Stage
from kblockd.telemetry.context import outgoing
from kblockd.upstream.adapter import Call, Outcome, Sent


async def follow(parts: Parts, classified: Classified) -> Classified:
    """The operation's end as a class; unknown when the bound passes or the record of it is gone."""
    verification = classified.claim.run.action.contract.verification
    end = parts.clock.monotonic() + verification.maximum_duration_seconds
    while True:
        with polling(classified.trace):
            outcome = await _poll(parts, classified)
        if outcome.sent is Sent.ANSWERED:
            return await _ended(parts, classified, outcome)
        if parts.clock.monotonic() >= end:
            lost = Outcome(Sent.LOST, code="OPERATION_NOT_ENDED", detail="the accepted operation did not end in time")
            return await _ended(parts, classified, lost)
        await parts.clock.sleep(verification.poll_interval_seconds)


async def _poll(parts: Parts, classified: Classified) -> Outcome:
    action = classified.claim.run.action
    deadline = parts.clock.monotonic() + action.limits.request_timeout_seconds
    with calling(classified.trace, "poll"):
        trace = outgoing(classified.trace)
        call = Call(action.tool, action.args, classified.claim.effect_key, "none", "", deadline, None, trace)
        return await parts.upstreams[action.upstream].write.poll(classified.operation, call)


async def _ended(parts: Parts, classified: Classified, outcome: Outcome) -> Classified:
    run = classified.claim.run
    result_class = classify_outcome(outcome, run.action.contract)
    if result_class is ResultClass.FAILED_BEFORE_SIDE_EFFECT:
        # It was accepted, so the operation began: an error at its end is no proof that nothing happened.
        result_class = ResultClass.UNKNOWN_OUTCOME
    code = outcome.code or ("UPSTREAM_ERROR" if outcome.is_error else "")
    entry, payloads = attempt_record(parts, run.action.execution_id, outcome, result_class, code, late=False)
    ticket = await run.journal.commit(parts, Stage.RECONCILE, [entry], payloads=payloads)
    await ticket.durable()
    return dataclasses.replace(
        classified,
        result_class=result_class,
        code=code,
        detail=outcome.detail,
        output=outcome.output if outcome.output is not None else classified.output,
    )
