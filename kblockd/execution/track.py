"""Stage 13, for an accepted operation: poll until it is done, by its operation id (R212, R654, OUT-10, HTP-03).

The operation id is in the ledger before the first poll (stage 12 awaits its record), so a restart polls on. An error
that refuses the poll (too many of them, no such operation here yet, a gateway's page) says nothing about the work; only
an answer about the operation itself ends it. And an operation whose end was not seen is still at work, so that no
look-up proves an absence.
"""

from __future__ import annotations

import dataclasses

from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass
from kblockd.execution import absence
from kblockd.execution.action import Run
from kblockd.execution.classify import Classified, attempt_record, classify_outcome, outcome_code
from kblockd.execution.parts import Parts
from kblockd.execution.place import UPSTREAM_CHANGED, agreed_upstream
from kblockd.execution.spans import calling, polling
from kblockd.telemetry.context import outgoing
from kblockd.upstream.adapter import Outcome, Sent, ToolCall


async def follow(parts: Parts, classified: Classified) -> Classified:
    """The operation's end as a class; unknown, and still at work, when the bound passes or the record of it is gone."""
    run = classified.claim.run
    verification = run.action.contract.verification
    end = parts.clock.monotonic() + verification.maximum_duration_seconds
    while True:
        with polling(classified.trace):
            outcome = await _poll(parts, classified)
        if _says_ended(outcome, run):
            return await _ended(parts, classified, outcome, at_work=False)
        if parts.clock.monotonic() >= end:
            lost = Outcome(Sent.LOST, code="OPERATION_NOT_ENDED", detail="the accepted operation did not end in time")
            return await _ended(parts, classified, lost, at_work=True)
        await parts.clock.sleep(verification.poll_interval_seconds)


async def _poll(parts: Parts, classified: Classified) -> Outcome:
    action = classified.claim.run.action
    upstream = agreed_upstream(parts, classified.claim.run)
    if upstream is None:
        return Outcome(Sent.NOT_SENT, code=UPSTREAM_CHANGED)
    deadline = parts.clock.monotonic() + action.limits.request_timeout_seconds
    with calling(classified.trace, "poll"):
        trace = outgoing(classified.trace)
        call = ToolCall(action.tool, action.args, classified.claim.effect_key, "none", "", deadline, None, trace)
        return await upstream.write.poll(classified.operation, call)


def _says_ended(outcome: Outcome, run: Run) -> bool:
    """A success, or a whole answer of status 2xx that says that it did not work. What has another status, or is an
    error of JSON-RPC, answers the poll and not the operation, also where it is the tool's own."""
    if outcome.sent is not Sent.ANSWERED or not outcome.is_error:
        return outcome.sent is Sent.ANSWERED
    facts = outcome.facts
    answered = facts.answers_request and facts.status is not None and 200 <= facts.status < 300
    return answered and facts.form != "rpc_error" and not absence.in_progress(outcome, run.action.contract)


async def _ended(parts: Parts, classified: Classified, outcome: Outcome, *, at_work: bool) -> Classified:
    run = classified.claim.run
    contract = run.action.contract
    result_class = classify_outcome(outcome, contract)
    if result_class is ResultClass.FAILED_BEFORE_SIDE_EFFECT:
        # It was accepted, so the operation began: an error at its end is no proof that nothing happened.
        result_class = ResultClass.UNKNOWN_OUTCOME
    entry, payloads = attempt_record(
        parts, run.action.execution_id, contract, outcome, result_class=result_class, at_work=at_work
    )
    ticket = await run.journal.commit(parts, Stage.TRACK, [entry], payloads=payloads)
    await ticket.durable()
    return dataclasses.replace(
        classified,
        sent_by=parts.clock.monotonic(),  # the work went on until now
        result_class=result_class,
        code=outcome_code(outcome, contract),
        detail=outcome.detail,
        output=outcome.output if outcome.output is not None else classified.output,
        at_work=at_work,
    )
