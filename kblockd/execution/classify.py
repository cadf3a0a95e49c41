"""Stage 12: adapter outcome and contract to a result class. Pure but for its record; never raises on an outcome.

An outcome that proves that nothing happened (``absence.proof``): failed before the side effect. accepted: tracked.
answered: to be verified. Everything else, any other error answer among it: unknown
(kblockd/execution/README.md#from-outcome-to-class; R210 to R226, MCP-06, HTP-08).
"""

from __future__ import annotations

from typing import Any, Final

from kblockd.domain.contract import ActionContract
from kblockd.domain.ledger import identifier
from kblockd.domain.ledger.attempt import AttemptOutcome, OperationAccepted
from kblockd.domain.stages import Stage
from kblockd.domain.states import BEFORE_EFFECT, ResultClass
from kblockd.domain.values import value_type
from kblockd.execution import absence
from kblockd.execution.absence import Proof
from kblockd.execution.consume import Claim
from kblockd.execution.dispatch import Dispatched
from kblockd.execution.journal import Entry, payload
from kblockd.execution.parts import Parts
from kblockd.execution.stages import stage
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent

_AWAITED: Final = (ResultClass.ACCEPTED, ResultClass.UNKNOWN_OUTCOME)


@value_type(frozen=True, slots=True)
class Classified:
    """The attempt, classified. ``sent_by`` is monotonic: nothing of the call left after it, unless its task outlives it
    (``absence.Finality``). ``at_work``: an answer said that the effect may still come."""

    claim: Claim
    sent_by: float
    result_class: ResultClass
    code: str
    detail: str
    output: Any
    operation: str
    at_work: bool = False

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.claim.trace


def classify_outcome(outcome: Outcome, contract: ActionContract) -> ResultClass:
    """The class of one attempt from what the adapter can prove, never from what an answer claims."""
    if absence.proof(outcome, contract) is not Proof.NONE:
        return ResultClass.FAILED_BEFORE_SIDE_EFFECT
    if outcome.sent is Sent.ACCEPTED:
        return ResultClass.ACCEPTED
    if outcome.sent is Sent.ANSWERED and not outcome.is_error:
        return ResultClass.COMPLETED_UNVERIFIED
    return ResultClass.UNKNOWN_OUTCOME


@stage(Stage.CLASSIFY)
async def classify(parts: Parts, dispatched: Dispatched) -> Classified:
    """Records the attempt; durable when it returns where the caller's next step depends on it."""
    claim, outcome = dispatched.marked.claim, dispatched.outcome
    action = claim.run.action
    result_class = classify_outcome(outcome, action.contract)
    entry, payloads = attempt_record(parts, action.execution_id, action.contract, outcome)
    entries = [entry]
    if result_class is ResultClass.ACCEPTED:
        # In the ledger before the first poll: a restart polls on and never calls again (MCP-17).
        entries.append(Entry(OperationAccepted(operation=(outcome.operation or "")[:512])))
    ticket = await claim.run.journal.commit(parts, Stage.CLASSIFY, entries, payloads=payloads)
    if result_class in _AWAITED:
        await ticket.durable()
    return Classified(
        claim,
        parts.clock.monotonic(),  # behind a wait, in which the loop has closed what was aborted
        result_class,
        outcome_code(outcome, action.contract),
        outcome.detail,
        outcome.output,
        outcome.operation or "",
        absence.at_work(outcome, action.contract),
    )


def outcome_code(outcome: Outcome, contract: ActionContract) -> str:
    """The code of the attempt's record: the adapter's, but for what only the contract can tell."""
    if absence.in_progress(outcome, contract):
        return absence.IN_PROGRESS
    return outcome.code or ("UPSTREAM_ERROR" if outcome.is_error else "")


def attempt_record(
    parts: Parts,
    execution_id: str,
    contract: ActionContract,
    outcome: Outcome,
    *,
    late: bool = False,
    result_class: ResultClass | None = None,
    at_work: bool | None = None,
) -> tuple[Entry, list[Any]]:
    """attempt.outcome with its payloads: the output (if any) and the upstream's own words.

    ``proof`` says which way of ``absence`` the class rests on, ``at_work`` that the effect may still come, ``answer_*``
    hold the facts that were judged. ``result_class`` and ``at_work`` are given where more than the outcome decides.
    """
    if result_class is None:
        result_class = classify_outcome(outcome, contract)
    if at_work is None:
        at_work = absence.at_work(outcome, contract)
    payloads = []
    output_sha256 = ""
    if outcome.output is not None:
        output_sha256, kept = payload(parts, execution_id, "output", outcome.output)
        payloads.append(kept)
    said_sha256 = ""
    if outcome.detail:
        said_sha256, said = payload(parts, execution_id, "detail", outcome.detail)
        payloads.append(said)
    body = AttemptOutcome(
        sent=outcome.sent.value,
        is_error=outcome.is_error,
        result_class=result_class,
        code=outcome_code(outcome, contract)[:64],
        operation=(outcome.operation or "")[:512],
        output_sha256=output_sha256,
        detail_sha256=said_sha256,
        raw_sha256=outcome.raw_sha256[:64],
        request_ids={identifier(k)[:64]: str(v)[:256] for k, v in list(outcome.request_ids.items())[:16]},
        late=late,
        proof=str(absence.proof(outcome, contract)) if result_class in BEFORE_EFFECT else "",
        at_work=at_work,
        answer_form=outcome.facts.form,
        answer_status=outcome.facts.status or 0,
        answer_media_type=outcome.facts.media_type,
        answer_rpc_code=outcome.facts.rpc_code or 0,
    )
    return Entry(body), payloads
