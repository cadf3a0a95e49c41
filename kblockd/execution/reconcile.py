"""Stage 13: an unknown outcome is looked up, an accepted operation is followed; never is anything sent again.

*Present* is proof only by effect key or operation id. *Absent* is proof only as ``absence.Finality`` says: where the
contract declares a strongly consistent lookup with ``absent_final_after_seconds``, and it came that long after the last
task of the call had ended (after a restart, counted anew). All else is unprovable and allows no attempt. Only the place
that the action digest names is asked (R186 to R195, C2, VER-01, VER-04, UPS-07, UPS-08, UPS-14).
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Any

from kblockd.domain import pointer
from kblockd.domain.contract import Lookup, present, resolve
from kblockd.domain.ledger.attempt import FindingReconciled
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass
from kblockd.domain.values import value_type
from kblockd.execution import absence
from kblockd.execution.absence import Finality
from kblockd.execution.classify import Classified, attempt_record, classify_outcome
from kblockd.execution.consume import Claim
from kblockd.execution.journal import Entry, payload
from kblockd.execution.parts import Parts
from kblockd.execution.place import UPSTREAM_CHANGED, agreed_upstream
from kblockd.execution.spans import calling, polling
from kblockd.execution.stages import stage
from kblockd.execution.track import follow
from kblockd.telemetry.context import outgoing
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent, ToolCall

_PAUSE_SECONDS = 1.0
_READ_SECONDS = 10.0
_MARGIN_SECONDS = 0.05
_PROOFS = {"effect_key": "effect key", "operation": "operation id", "late_answer": "late answer"}


class EffectStanding(enum.Enum):
    """What is known of the effect when stage 13 ends."""

    ANSWERED = "answered"  # the upstream said that it was done
    PRESENT = "present"  # proved by effect key or operation id
    ABSENT = "absent"  # proved
    NOT_SENT = "not_sent"  # proved
    UNPROVABLE = "unprovable"


@value_type(frozen=True, slots=True)
class Settled:
    """The attempt after reconciliation."""

    claim: Claim
    standing: EffectStanding
    result_class: ResultClass
    code: str
    detail: str
    output: Any
    operation: str

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.claim.trace


@value_type(frozen=True, slots=True)
class _Found:
    standing: EffectStanding
    by: str
    read: Any
    code: str


@stage(Stage.RECONCILE)
async def reconcile(parts: Parts, classified: Classified) -> Settled:
    """Never raises on what an upstream does."""
    if classified.result_class is ResultClass.ACCEPTED:
        classified = await follow(parts, classified)
    if classified.result_class is ResultClass.FAILED_BEFORE_SIDE_EFFECT:
        return _settled(classified, EffectStanding.NOT_SENT)
    if classified.result_class is ResultClass.COMPLETED_UNVERIFIED:
        return _settled(classified, EffectStanding.ANSWERED)
    return await _look_up(parts, classified)


async def _look_up(parts: Parts, classified: Classified) -> Settled:
    """Until present, provably absent, answered late, or the bound."""
    bound = parts.clock.monotonic() + parts.clocks.reconcile_seconds
    while True:
        late = await _late_answer(parts, classified)
        if isinstance(late, Settled):
            return late
        classified = late
        with polling(classified.trace):
            found = await _ask_all(parts, classified)
        if parts.late.waiting(classified.claim.run.action.execution_id):
            continue  # it came while we asked, and knows better than an absence
        if found is not None and found.standing is not EffectStanding.UNPROVABLE:
            await _record(parts, classified, found)
            return _settled(classified, found.standing, found.by)
        now, end = parts.clock.monotonic(), max(bound, _final_at(parts, classified))
        if now >= end or not classified.claim.run.action.contract.lookup:
            await _record(parts, classified, found or _Found(EffectStanding.UNPROVABLE, "", None, "NO_LOOKUP"))
            return _settled(classified, EffectStanding.UNPROVABLE)
        await parts.clock.sleep(min(_PAUSE_SECONDS, max(0.01, end - now)))


async def _ask_all(parts: Parts, classified: Classified) -> _Found | None:
    """The contract's lookups in their order: the first that finds the effect, whatever the others miss; else an
    absence that is proved; else the last that was unprovable."""
    absent: _Found | None = None
    last: _Found | None = None
    for lookup in classified.claim.run.action.contract.lookup:
        if lookup.by == "operation" and not classified.operation:
            continue
        last = await _ask(parts, classified, lookup)
        if last.standing is EffectStanding.PRESENT:
            return last
        if last.standing is EffectStanding.ABSENT:
            absent = absent or last
    return absent or last


async def _ask(parts: Parts, classified: Classified, lookup: Lookup) -> _Found:
    action = classified.claim.run.action
    document = {
        "args": action.args,
        "effect_key": classified.claim.effect_key,
        "execution_id": action.execution_id,
        **({"operation": classified.operation} if classified.operation else {}),
    }
    try:
        arguments = resolve(lookup.arguments, document)
    except pointer.PointerMissing:
        return _Found(EffectStanding.UNPROVABLE, lookup.by, None, "LOOKUP_ARGUMENT_MISSING")
    upstream = agreed_upstream(parts, classified.claim.run)
    if upstream is None:
        return _Found(EffectStanding.UNPROVABLE, lookup.by, None, UPSTREAM_CHANGED)
    asked_at = parts.clock.monotonic()
    with calling(classified.trace, "lookup"):
        outcome = await upstream.read.lookup(_call(parts, lookup, arguments, classified.trace))
    if outcome.sent is not Sent.ANSWERED or outcome.is_error:
        return _Found(EffectStanding.UNPROVABLE, lookup.by, None, outcome.code or "LOOKUP_FAILED")
    there = present(lookup, outcome.output)
    if there:
        return _Found(EffectStanding.PRESENT, lookup.by, outcome.output, "")
    if there is False and lookup.proves_absence:
        doubt = _finality(parts, classified).doubt(lookup, asked_at)
        return _Found(EffectStanding.UNPROVABLE if doubt else EffectStanding.ABSENT, lookup.by, outcome.output, doubt)
    return _Found(EffectStanding.UNPROVABLE, lookup.by, outcome.output, "NO_PROOF")


def _call(parts: Parts, lookup: Lookup, arguments: dict[str, Any], trace: Trace) -> ToolCall:
    deadline = parts.clock.monotonic() + _READ_SECONDS
    return ToolCall(lookup.tool, arguments, "", "none", "", deadline, None, outgoing(trace), lookup.numbers)


def _finality(parts: Parts, classified: Classified) -> Finality:
    execution_id = classified.claim.run.action.execution_id
    return Finality(execution_id, classified.sent_by, parts.late, working=classified.at_work)


async def _late_answer(parts: Parts, classified: Classified) -> Settled | Classified:
    """An answer after the deadline is stored as evidence and may decide the reconciliation; one that says that the
    work goes on leaves it undecided and unprovable.

    The operation that such an answer names is looked up by, but not polled: what a poll says becomes the attempt's
    outcome, and this attempt has one, that it was lost. An effect that no look-up shows in time is held, not sealed.
    """
    run = classified.claim.run
    decided: Settled | None = None
    for attempt, outcome in parts.late.take(run.action.execution_id):
        result_class = classify_outcome(outcome, run.action.contract)
        entry, payloads = attempt_record(parts, run.action.execution_id, run.action.contract, outcome, late=True)
        if absence.at_work(outcome, run.action.contract):
            operation = classified.operation or outcome.operation or ""
            classified = replace(classified, at_work=True, operation=operation)
        await run.journal.commit(parts, Stage.RECONCILE, [replace(entry, attempt=attempt)], payloads=payloads)
        # Of whichever attempt: all carry one effect key, and an effect that is there is not absent.
        if result_class is ResultClass.COMPLETED_UNVERIFIED:
            decided = await _answered(parts, classified, outcome)
    return decided or classified


async def _answered(parts: Parts, classified: Classified, outcome: Outcome) -> Settled:
    await _record(parts, classified, _Found(EffectStanding.PRESENT, "late_answer", outcome.output, ""))
    claim = classified.claim
    answered = ResultClass.COMPLETED_UNVERIFIED
    detail = found_by(classified.code, "late_answer")
    return Settled(claim, EffectStanding.ANSWERED, answered, classified.code, detail, outcome.output, "")


async def _record(parts: Parts, classified: Classified, found: _Found) -> None:
    run = classified.claim.run
    finding = (
        found.standing.value if found.standing in (EffectStanding.PRESENT, EffectStanding.ABSENT) else "unprovable"
    )
    known = run.journal.row(parts).finding
    if known is not None and known.finding == finding == "unprovable":
        return  # a look that found nothing new is no record
    digest, kept = "", []
    if found.read is not None:
        digest, stored = payload(parts, run.action.execution_id, "lookup", found.read)
        kept.append(stored)
    body = FindingReconciled(finding=finding, by=found.by, read_sha256=digest, code=found.code[:64])
    ticket = await run.journal.commit(parts, Stage.RECONCILE, [Entry(body)], payloads=kept)
    await ticket.durable()


def found_by(code: str, by: str) -> str:
    """The detail of an effect that no answer in time proved (OUT-05, MCP-02); ``code`` says what came instead."""
    return f"{code or 'INTERRUPTED'}: no valid answer came in time; the effect was found by its {_PROOFS[by]}"


def _settled(classified: Classified, standing: EffectStanding, by: str = "") -> Settled:
    result_class = classified.result_class
    if standing is EffectStanding.ABSENT:
        result_class = ResultClass.FAILED_BEFORE_SIDE_EFFECT
    # The upstream's own words stay beside attempt.outcome: what is sealed as the detail is for callers to read.
    detail = found_by(classified.code, by) if standing is EffectStanding.PRESENT else ""
    return Settled(
        classified.claim,
        standing,
        result_class,
        classified.code,
        detail,
        classified.output,
        classified.operation,
    )


def _final_at(parts: Parts, classified: Classified) -> float:
    """When the last of the lookups becomes final, as far as is known: no bound ends the wait just before it."""
    finality = _finality(parts, classified)
    known = (finality.final_at(lookup) for lookup in classified.claim.run.action.contract.lookup)
    return max((at + _MARGIN_SECONDS for at in known if at is not None), default=0.0)
