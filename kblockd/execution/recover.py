"""Stage 15: what happens with an execution that did not end well, chosen by Rego, bounded by code, recorded first.

Here: another attempt of what provably never happened, containment (hold, lock kept) and manual (hold). Code keeps the
choice within what the contract permits and what is proved; an engine that fails means manual (R281 to R291, C14).
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET

from kblockd.domain.contract import FaultKind, permitted_recoveries
from kblockd.domain.ledger.attempt import RecoveryPlanned
from kblockd.domain.ledger.values import DecisionFields
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass, State
from kblockd.domain.values import value_type
from kblockd.execution import questions
from kblockd.execution.action import Run
from kblockd.execution.consume import Claim
from kblockd.execution.journal import Entry
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked, unanswered
from kblockd.execution.reconcile import EffectStanding, Settled
from kblockd.execution.spans import planned
from kblockd.execution.stages import stage
from kblockd.execution.verify import SKIPPED, Judged, outcome_document
from kblockd.policy.deciding import PolicyFailure, entrypoints
from kblockd.store.protocol import Payload
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class Conclusion:
    """As what an execution is sealed."""

    state: State
    result_class: ResultClass
    code: str  # precise: what the caller sees
    detail: str


@value_type(frozen=True, slots=True)
class Ending:
    """The execution is to be sealed."""

    run: Run
    state: State
    result_class: ResultClass
    code: str
    detail: str

    @property
    def conclusion(self) -> Conclusion:
        """As what."""
        return Conclusion(self.state, self.result_class, self.code, self.detail)

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.run.trace


@value_type(frozen=True, slots=True)
class Hold:
    """The execution waits for an operator; containment keeps the target's lock. ``result_class`` is the class from here
    on, None for the one that it has."""

    run: Run
    code: str
    keep_lock: bool
    result_class: ResultClass | None = None

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.run.trace


@value_type(frozen=True, slots=True)
class Again:
    """Attempt n+1: back in at stage 5, under the same consumption and effect key."""

    run: Run


@value_type(frozen=True, slots=True)
class Adrift:
    """An execution of an earlier life whose outcome cannot be proved yet: the sweep looks again, and closes it."""

    run: Run


Recovered = Ending | Hold | Again | Adrift


@stage(Stage.RECOVER)
async def recover(parts: Parts, judged: Judged) -> Recovered:
    """Durable before anything is done about it."""
    settled = judged.settled
    run = settled.claim.run
    standing = settled.standing
    if judged.verdict in ("expected", "tolerated"):
        return _succeeded(run, ResultClass.COMPLETED_VERIFIED, settled)
    if judged.verdict == "prohibited":
        return await _after_effect(parts, judged)
    if standing in (EffectStanding.NOT_SENT, EffectStanding.ABSENT):
        return await _before_effect(parts, judged)
    if standing is EffectStanding.UNPROVABLE:
        if settled.claim.interrupted:
            return Adrift(run)
        return await _unknown(parts, judged)
    if run.action.contract.verification.required:
        return Hold(run, "VERIFICATION_INCONCLUSIVE", keep_lock=True)
    return _succeeded(run, ResultClass.COMPLETED_UNVERIFIED, settled)


def _succeeded(run: Run, result_class: ResultClass, settled: Settled) -> Ending:
    return Ending(run, State.SUCCEEDED, result_class, settled.code, settled.detail)


async def _after_effect(parts: Parts, judged: Judged) -> Recovered:
    word = await _plan(parts, judged, "verification_failure", ResultClass.FAILED_AFTER_SIDE_EFFECT)
    return Hold(judged.settled.claim.run, judged.code or "PROHIBITED_OUTCOME", keep_lock=word == "containment")


async def _unknown(parts: Parts, judged: Judged) -> Recovered:
    word = await _plan(parts, judged, "unknown_outcome", ResultClass.UNKNOWN_OUTCOME)
    return Hold(judged.settled.claim.run, judged.settled.code or "OUTCOME_UNKNOWN", keep_lock=word == "containment")


async def _before_effect(parts: Parts, judged: Judged) -> Recovered:
    """Nothing happened, and that is proved: another attempt, or the end."""
    settled = judged.settled
    run = settled.claim.run
    failed = Ending(
        run, State.FAILED, ResultClass.FAILED_BEFORE_SIDE_EFFECT, settled.code or "UPSTREAM_FAILED", settled.detail
    )
    if not may_repeat(parts, settled.claim):
        return failed
    word = await _plan(parts, judged, "transient_failure", ResultClass.FAILED_BEFORE_SIDE_EFFECT)
    if word == "retry":
        deadline = settled.claim.deadline
        return Again(replace(run, attempt=run.attempt + 1, again=True, described_at=None, deadline=deadline))
    return Hold(run, settled.code or "FAILED_BEFORE_SIDE_EFFECT", keep_lock=word == "containment")


def may_repeat(parts: Parts, claim: Claim) -> bool:
    """An attempt is left, and time; an execution that outlived its machine's boot is never sent again."""
    attempts_left = claim.run.attempt - claim.run.unbegun < claim.run.action.limits.maximum_attempts
    same_boot = not claim.new_boot
    return attempts_left and same_boot and not claim.over(parts.clock)


async def _plan(parts: Parts, judged: Judged, fault: FaultKind, result_class: ResultClass) -> str:
    """Asks, bounds and records; returns the recovery that is followed."""
    settled = judged.settled
    run = settled.claim.run
    word, decided, inputs = await _ask(parts, judged, result_class)
    provable = settled.standing in (EffectStanding.NOT_SENT, EffectStanding.ABSENT)
    permitted = permitted_recoveries(run.action.contract, fault) - (set() if provable else {"retry"})
    refused = UNSET if word in permitted else word
    word = word if word in permitted else "manual"
    entry = Entry(RecoveryPlanned(recovery=word, result_class=result_class, refused=refused, **decided))
    ticket = await run.journal.commit(parts, Stage.RECOVER, [entry], payloads=inputs)
    await ticket.durable()
    planned(settled.trace, word)
    return word


async def _ask(parts: Parts, judged: Judged, result_class: ResultClass) -> tuple[str, DecisionFields, list[Payload]]:
    """The word, and what the record holds of the decision, with its input."""
    settled = judged.settled
    action = settled.claim.run.action
    verdict = "" if judged.verdict == SKIPPED else judged.verdict
    document = questions.document(
        parts,
        questions.requester(parts, action),
        action,
        outcome={**outcome_document(settled), "class": str(result_class)},
        finding={"finding": settled.standing.value, "verdict": verdict},
    )
    try:
        decision = await parts.engine.evaluate(entrypoints.RECOVERY, document)
    except PolicyFailure as failure:
        return "manual", unanswered(failure), []
    answer = entrypoints.recovery(decision.result)
    asked = Asked(document, decision, tuple(entrypoints.codes(answer.reasons)))
    output = settled.claim.run.journal.row(parts).output_sha256
    return answer.recovery, *asked.on_record(parts, action.execution_id, output=output)
