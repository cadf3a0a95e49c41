"""Stage 14: independent reads until expected, tolerated, prohibited or the bound; Rego judges, code compares nothing.

Lack of evidence is never evidence of success: a failed read, an undefined policy and a malformed answer are all
inconclusive (R239 to R268, VER-01, VER-04, VER-06).
"""

from __future__ import annotations

from typing import Any

from kblockd.domain import pointer
from kblockd.domain.contract import VerifyRead, resolve
from kblockd.domain.ledger.attempt import FindingVerified
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass
from kblockd.domain.values import value_type
from kblockd.execution import questions
from kblockd.execution.journal import Entry, payload
from kblockd.execution.load import value_of
from kblockd.execution.parts import Parts
from kblockd.execution.place import UPSTREAM_CHANGED, agreed_upstream
from kblockd.execution.questions import NOT_ASKED, Asked, unanswered
from kblockd.execution.reading import read_tool
from kblockd.execution.reconcile import EffectStanding, Settled
from kblockd.execution.spans import polling
from kblockd.execution.stages import stage
from kblockd.policy.deciding import PolicyFailure, entrypoints
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent

_DECISIVE = ("expected", "tolerated", "prohibited")
SKIPPED = "skipped"
_READ_SECONDS = 10.0  # for one read, and at the bound at least one second


@value_type(frozen=True, slots=True)
class Judged:
    """Settled, with the verdict of the authoritative system: one of Rego's four, or ``skipped``."""

    settled: Settled
    verdict: str
    code: str

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.settled.trace


@value_type(frozen=True, slots=True)
class _Reading:
    verdict: str
    code: str
    read: Any
    asked: Asked | None = None
    unanswered: PolicyFailure | None = None


@value_type(frozen=True, slots=True)
class _Known:
    """What the verification starts from: the snapshot, and the payloads that hold it and the output."""

    snapshot: Any
    snapshot_sha256: str
    output_sha256: str


@stage(Stage.VERIFY)
async def verify(parts: Parts, settled: Settled) -> Judged:
    """Never raises on what upstream or policy do."""
    contract = settled.claim.run.action.contract
    if settled.standing not in (EffectStanding.ANSWERED, EffectStanding.PRESENT) or contract.reads.verify is None:
        return Judged(settled, SKIPPED, "")
    known = await _known(parts, settled)
    reading = await _until_decisive(parts, settled, contract.reads.verify, known.snapshot)
    await _record(parts, settled, reading, known)
    return Judged(settled, reading.verdict, reading.code)


async def _until_decisive(parts: Parts, settled: Settled, wanted: VerifyRead, snapshot: Any) -> _Reading:
    verification = settled.claim.run.action.contract.verification
    end = parts.clock.monotonic() + verification.maximum_duration_seconds
    if verification.consistency_delay_seconds:
        await parts.clock.sleep(verification.consistency_delay_seconds)
    while True:
        left = end - parts.clock.monotonic()
        with polling(settled.trace):
            reading = await _read_once(parts, settled, wanted, snapshot, min(_READ_SECONDS, max(1.0, left)))
        if reading.verdict in _DECISIVE:
            return reading
        left = end - parts.clock.monotonic()
        if left <= 0:
            return reading
        await parts.clock.sleep(min(verification.poll_interval_seconds, left))


async def _read_once(
    parts: Parts, settled: Settled, wanted: VerifyRead, snapshot: Any, timeout_seconds: float
) -> _Reading:
    action = settled.claim.run.action
    known: dict[str, Any] = {
        "args": action.args,
        "execution_id": action.execution_id,
        "effect_key": settled.claim.effect_key,
        "snapshot": snapshot,
    }
    if settled.output is not None:
        known["output"] = settled.output
    if settled.operation:
        known["operation"] = settled.operation
    try:
        arguments = resolve(wanted.arguments, known)
    except pointer.PointerMissing as missing:
        return _Reading("inconclusive", "READ_ARGUMENT_MISSING", {"missing": missing.pointer})
    upstream = agreed_upstream(parts, settled.claim.run)
    if upstream is None:
        return _Reading("inconclusive", UPSTREAM_CHANGED, None)
    outcome = await read_tool(
        parts,
        upstream,
        wanted.tool,
        arguments,
        settled.trace,
        timeout_seconds=timeout_seconds,
        numbers=wanted.numbers,
    )
    if outcome.sent is not Sent.ANSWERED or outcome.is_error:
        return _Reading("inconclusive", outcome.code or "READ_FAILED", None)
    return await _judge(parts, settled, outcome, snapshot)


async def _judge(parts: Parts, settled: Settled, outcome: Outcome, snapshot: Any) -> _Reading:
    action = settled.claim.run.action
    document = questions.document(
        parts,
        questions.requester(parts, action),
        action,
        snapshot=snapshot,
        read=outcome.output,
        outcome=outcome_document(settled),
        finding={"finding": settled.standing.value, "verdict": ""},
    )
    try:
        decision = await parts.engine.evaluate(entrypoints.VERIFICATION, document)
    except PolicyFailure as failure:
        return _Reading("inconclusive", str(failure.reason), outcome.output, unanswered=failure)
    answer = entrypoints.verification(decision.result)
    asked = Asked(document, decision, tuple(entrypoints.codes(answer.reasons)))
    return _Reading(answer.verdict, next(iter(asked.codes), ""), outcome.output, asked)


def outcome_document(settled: Settled) -> dict[str, Any]:
    """``input.outcome`` for verification and recovery; ``attempts`` are those that count, as in ``may_repeat``."""
    run = settled.claim.run
    return {
        "class": str(settled.result_class),
        "code": settled.code,
        "attempts": run.attempt - run.unbegun,
        "maximum_attempts": run.action.limits.maximum_attempts,
        "marker": True,
        "irreversible": run.action.contract.recovery.irreversible_step,
        "output": settled.output,
        "effect_key": settled.claim.effect_key,
    }


async def _known(parts: Parts, settled: Settled) -> _Known:
    run = settled.claim.run
    row = run.journal.row(parts)
    snapshot = await value_of(parts, run.action.execution_id, row.snapshot_sha256, run.journal.written)
    return _Known(snapshot, row.snapshot_sha256, row.output_sha256)


async def _record(parts: Parts, settled: Settled, reading: _Reading, known: _Known) -> None:
    run = settled.claim.run
    execution_id = run.action.execution_id
    digest, kept = "", []
    if reading.read is not None:
        digest, stored = payload(parts, execution_id, "verification", reading.read)
        kept.append(stored)
    decided = unanswered(reading.unanswered) if reading.unanswered else NOT_ASKED
    if reading.asked:
        held = {"snapshot": known.snapshot_sha256, "read": digest, "output": known.output_sha256}
        decided, inputs = reading.asked.on_record(parts, execution_id, **held)
        kept += inputs
    body = FindingVerified(
        verdict=reading.verdict,
        source="authoritative_read",
        read_sha256=digest,
        code=reading.code[:64],
        result_class=_verified_class(settled, reading.verdict),
        **decided,
    )
    await run.journal.commit(parts, Stage.VERIFY, [Entry(body)], payloads=kept)


def _verified_class(settled: Settled, verdict: str) -> ResultClass:
    if verdict in ("expected", "tolerated"):
        return ResultClass.COMPLETED_VERIFIED
    return ResultClass.FAILED_AFTER_SIDE_EFFECT if verdict == "prohibited" else settled.result_class
