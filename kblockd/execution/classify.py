"""Stage 12: adapter outcome and contract to a result class. Pure but for its record; never raises on an outcome.

not_sent and rejected: nothing happened. An error answer: nothing happened only where the contract says that errors
are effect-free, else unknown. lost: unknown. accepted: tracked. answered: to be verified (interfaces.md section 3;
R210 to R226, MCP-06, HTP-08).
"""

from __future__ import annotations

from typing import Any, Final

from kblockd.domain.contract import ActionContract
from kblockd.domain.records import RecordType
from kblockd.domain.states import ResultClass
from kblockd.domain.values import value_type
from kblockd.execution.consume import Claim
from kblockd.execution.dispatch import Dispatched
from kblockd.execution.journal import Entry, payload
from kblockd.execution.parts import Parts
from kblockd.execution.stages import Stage, stage
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent

_AWAITED: Final = (ResultClass.ACCEPTED, ResultClass.UNKNOWN_OUTCOME)


@value_type(frozen=True, slots=True)
class Classified:
    """The attempt, classified. ``sent_by`` is monotonic: nothing of the call left after it, finality counts from it."""

    claim: Claim
    sent_by: float
    result_class: ResultClass
    code: str
    detail: str
    output: Any
    operation: str

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.claim.trace


def classify_outcome(outcome: Outcome, contract: ActionContract) -> ResultClass:
    """The class of one attempt from what the adapter can prove, never from what an answer claims."""
    if outcome.sent in (Sent.NOT_SENT, Sent.REJECTED):
        return ResultClass.FAILED_BEFORE_SIDE_EFFECT
    if outcome.sent is Sent.ACCEPTED:
        return ResultClass.ACCEPTED
    if outcome.sent is Sent.ANSWERED and not outcome.is_error:
        return ResultClass.COMPLETED_UNVERIFIED
    if outcome.sent is Sent.ANSWERED and contract.tool.errors_are_effect_free:
        return ResultClass.FAILED_BEFORE_SIDE_EFFECT
    return ResultClass.UNKNOWN_OUTCOME


@stage(Stage.CLASSIFY)
async def classify(parts: Parts, dispatched: Dispatched) -> Classified:
    """Records the attempt; durable when it returns where the caller's next step depends on it."""
    claim, outcome = dispatched.marked.claim, dispatched.outcome
    action = claim.run.action
    result_class = classify_outcome(outcome, action.contract)
    code = outcome.code or ("UPSTREAM_ERROR" if outcome.is_error else "")
    entry, payloads = attempt_record(parts, action.execution_id, outcome, result_class, code, late=False)
    entries = [entry]
    if result_class is ResultClass.ACCEPTED:
        # In the ledger before the first poll: a restart polls on and never calls again (MCP-17).
        entries.append(Entry(RecordType.OPERATION_ACCEPTED, {"operation": (outcome.operation or "")[:512]}))
    ticket = await claim.run.journal.commit(parts, Stage.CLASSIFY, entries, payloads=payloads)
    if result_class in _AWAITED:
        await ticket.durable()
    return Classified(
        claim,
        parts.clock.monotonic(),  # behind a wait, in which the loop has closed what was aborted
        result_class,
        code,
        outcome.detail,
        outcome.output,
        outcome.operation or "",
    )


def attempt_record(
    parts: Parts, execution_id: str, outcome: Outcome, result_class: ResultClass, code: str, *, late: bool
) -> tuple[Entry, list[Any]]:
    """attempt.outcome with its payloads: the output (if any) and the upstream's own words."""
    payloads = []
    output_sha256 = ""
    if outcome.output is not None:
        output_sha256, kept = payload(parts, execution_id, "output", outcome.output)
        payloads.append(kept)
    said_sha256 = ""
    if outcome.detail:
        said_sha256, said = payload(parts, execution_id, "detail", outcome.detail)
        payloads.append(said)
    body = {
        "sent": outcome.sent.value,
        "is_error": outcome.is_error,
        "class": str(result_class),
        "code": code[:64],
        "operation": (outcome.operation or "")[:512],
        "output_sha256": output_sha256,
        "detail_sha256": said_sha256,
        "raw_sha256": outcome.raw_sha256[:64],
        "request_ids": {str(k)[:64]: str(v)[:256] for k, v in list(outcome.request_ids.items())[:16]},
        "late": late,
    }
    return Entry(RecordType.ATTEMPT_OUTCOME, body), payloads
