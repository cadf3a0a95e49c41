"""An execution that was executing when its run ended, in this life of the daemon or an earlier one.

``executing`` means "look it up", never "run it" (C2): consumed without a marker, it may go on at 5; with a marker it
is reconciled first. The lease is a new one; only what is read and proved moves the execution on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import StoredUnreadable
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ExecutionRow, LookUpFinding
from kblockd.domain.stages import Stage
from kblockd.domain.states import Phase, ResultClass, State
from kblockd.execution import history, pipeline
from kblockd.execution.action import Run
from kblockd.execution.classify import Classified, attempt_record
from kblockd.execution.consume import Claim
from kblockd.execution.journal import Journal
from kblockd.execution.load import load_action, value_of
from kblockd.execution.parts import Parts
from kblockd.execution.reconcile import EffectStanding, Settled, found_by
from kblockd.execution.recover import Adrift, Again, Ending, recover
from kblockd.execution.seal import INTERRUPTED, Closed, hold_unreadable
from kblockd.execution.verify import SKIPPED, Judged, verify
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent

PROHIBITED: Final = "prohibited"


async def journal_of(parts: Parts, execution_id: str, trace: Trace) -> tuple[Journal, ExecutionRow] | None:
    """A journal that goes on where the ledger stands, or None when there is no such execution."""
    found = await parts.store.get(rows.execution(execution_id))
    if found is None:
        return None
    version, row = found
    journal = Journal(execution_id, row.tenant, trace, version, row.attempt)
    journal.marked = bool(row.marker)
    if row.claimed_at:
        journal.claimed.set()
    return journal, row


async def resume(parts: Parts, journal: Journal, row: ExecutionRow) -> Closed | Adrift:
    """Goes on from the phase that the ledger shows; raises ``Conflict`` when somebody else has.

    What was stored of it and cannot be read is held: nobody can say what to look up, or whether to go on.
    """
    try:
        return await _resumed(parts, journal, row)
    except StoredUnreadable:
        return await hold_unreadable(parts, journal)


async def _resumed(parts: Parts, journal: Journal, row: ExecutionRow) -> Closed | Adrift:
    claim = await _claim(parts, journal, row)
    phase = row.phase
    if phase is Phase.CLAIMED and claim.new_boot:
        return await pipeline.close(parts, _rebooted(claim))
    if phase is Phase.CLAIMED:
        return await pipeline.run(parts, claim.run)
    if phase is Phase.RECOVERING and not claim.new_boot and row.attempt in await history.unbegun(parts, row):
        # What kept the adapter from being called may have passed since: waited for as in the run before (UPS-16).
        return await pipeline.run(parts, replace(claim.run, attempt=claim.run.attempt + 1))
    if phase is Phase.SENT:
        ended = await pipeline.conclude(parts, await _lost(parts, claim))
    elif phase in (Phase.ACCEPTED, Phase.RECONCILING) and _present(row) is None:
        ended = await pipeline.conclude(parts, await _classified(parts, claim, row))
    else:
        ended = await recover(parts, await _judged(parts, claim, row))
    if isinstance(ended, Again):
        return await pipeline.run(parts, ended.run)
    return await pipeline.close(parts, ended)


def _rebooted(claim: Claim) -> Ending:
    """Claimed for another attempt, and the machine was restarted since the marker of the one before: it is not made."""
    detail = "the machine was restarted before the next attempt; the one before is proved to have had no effect"
    return Ending(claim.run, State.FAILED, ResultClass.FAILED_BEFORE_SIDE_EFFECT, INTERRUPTED, detail)


async def _claim(parts: Parts, journal: Journal, row: ExecutionRow) -> Claim:
    action = await load_action(parts, row)
    parts.late.taken_up(action.execution_id, acted=await history.acted(parts, row))
    ends = parse_rfc3339(row.deadline_at)
    deadline = parts.clock.monotonic() + (ends - parts.clock.now()).total_seconds()
    unbegun = len(await history.unbegun(parts, row))
    run = Run(action, journal, row.attempt, again=True, deadline=deadline, unbegun=unbegun)
    key = rows.target(action.tenant, action.upstream, action.target.type, action.target.id)
    lease = parts.leases.acquire(action.execution_id, key)
    boot = row.boot or parts.instance.boot_id
    return Claim(
        run,
        lease,
        row.effect_key,
        row.approval_id,
        deadline,
        ends,
        interrupted=True,
        new_boot=boot != parts.instance.boot_id,
    )


async def _lost(parts: Parts, claim: Claim) -> Classified:
    """The marker is there and no outcome: it may have been sent."""
    code, detail = "INTERRUPTED", "the daemon stopped between the send marker and the recorded outcome"
    outcome = Outcome(Sent.LOST, code=code, detail=detail)
    action = claim.run.action
    entry, payloads = attempt_record(parts, action.execution_id, action.contract, outcome)
    ticket = await claim.run.journal.commit(parts, Stage.CLASSIFY, [entry], payloads=payloads)
    await ticket.durable()
    return Classified(claim, parts.clock.monotonic(), ResultClass.UNKNOWN_OUTCOME, code, detail, None, "")


async def _classified(parts: Parts, claim: Claim, row: ExecutionRow) -> Classified:
    result_class = ResultClass.ACCEPTED if row.phase == Phase.ACCEPTED else ResultClass.UNKNOWN_OUTCOME
    output = await value_of(parts, row.id, row.output_sha256)
    # Finality counts anew: how long the daemon was away is not known to be time that the upstream had.
    working = await history.at_work(parts, row)
    return Classified(claim, parts.clock.monotonic(), result_class, row.code, "", output, row.operation_id, working)


async def _settled(parts: Parts, claim: Claim, row: ExecutionRow) -> Settled:
    if (found := _present(row)) is None:
        return await _standing(parts, claim, row, EffectStanding.ANSWERED)
    return await _standing(parts, claim, row, EffectStanding.PRESENT, found_by(row.code, found.by))


def _present(row: ExecutionRow) -> LookUpFinding | None:
    """Proved to be present: a death during the verification, however long that took, does not put it in question."""
    return row.finding if row.finding is not None and row.finding.finding == "present" else None


async def _judged(parts: Parts, claim: Claim, row: ExecutionRow) -> Judged:
    """Judged anew; but what was found to be prohibited stays so, whatever can be read or asked now (VER-06)."""
    if row.verification is not None and row.verification.verdict == PROHIBITED:
        return Judged(await _settled(parts, claim, row), PROHIBITED, row.code)
    if row.phase in (Phase.RECONCILING, Phase.VERIFYING):
        return await verify(parts, await _settled(parts, claim, row))
    return Judged(await _standing(parts, claim, row, _recovering(row)), SKIPPED, "")


def _recovering(row: ExecutionRow) -> EffectStanding:
    """The same question once more, from what the records say."""
    finding = row.finding and row.finding.finding
    if finding == "absent":
        return EffectStanding.ABSENT
    if finding is None and row.result_class == ResultClass.FAILED_BEFORE_SIDE_EFFECT:
        return EffectStanding.NOT_SENT
    return EffectStanding.UNPROVABLE


async def _standing(
    parts: Parts, claim: Claim, row: ExecutionRow, standing: EffectStanding, detail: str = ""
) -> Settled:
    result_class = row.result_class or ResultClass.UNKNOWN_OUTCOME
    if standing is EffectStanding.ABSENT:
        result_class = ResultClass.FAILED_BEFORE_SIDE_EFFECT
    output = await value_of(parts, row.id, row.output_sha256)
    return Settled(claim, standing, result_class, row.code, detail, output, row.operation_id)
