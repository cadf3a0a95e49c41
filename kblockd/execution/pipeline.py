"""The pipeline on one screen. Each stage takes the previous stage's type; nothing else decides the order.

    0 authenticate (rpc)   1 admit   2 replay   3 decide   4 await approval (approvals)
    5 preflight   6 lease   7 read   8 preconditions   9 consume
    10 mark sent   11 dispatch   12 classify   13 reconcile   14 verify   15 recover   16 seal

Another attempt, an execution found consumed without a marker, and one for which something that it relied on changed
before its bytes left, come back in at 5 (9r). Before the consumption a refusal leaves the action approved; after it, a
refusal on the way is sealed as failed.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import Aborted, KblockError, Reason, Unavailable
from kblockd.domain.states import BEFORE_EFFECT, ResultClass, State
from kblockd.execution import history
from kblockd.execution.action import Call, Run
from kblockd.execution.admit import admit
from kblockd.execution.classify import Classified, classify
from kblockd.execution.confirm import confirm
from kblockd.execution.consume import Claim, consume, deadline_refusal
from kblockd.execution.decide import Decided, decide
from kblockd.execution.dispatch import dispatch
from kblockd.execution.lease import lease
from kblockd.execution.mark_sent import LeaseLost, mark_sent
from kblockd.execution.parts import Parts
from kblockd.execution.preconditions import preconditions
from kblockd.execution.preflight import Raced, preflight
from kblockd.execution.read import read
from kblockd.execution.reading import ReadRefused
from kblockd.execution.reconcile import reconcile
from kblockd.execution.recover import Adrift, Again, Ending, Hold, recover
from kblockd.execution.replay import Existing, replay
from kblockd.execution.seal import Closed, hold, seal
from kblockd.execution.verify import verify
from kblockd.execution.void import TargetMoved

_log: Final = logging.getLogger(__name__)
_TRIES = 3
_PAUSE_SECONDS = 1.0
_RACE_SECONDS = 0.1
LATE_ANSWER: Final = "LATE_ANSWER"
TARGET_CHANGED: Final = "TARGET_CHANGED"
_OF_THE_TARGET: Final = (Reason.PRECONDITION_FAILED, Reason.PIN_MISMATCH, Reason.TARGET_UNREADABLE)
"""What stages 7 and 8 find in the target as it is read now; the pin is that of the target's version."""


async def propose(parts: Parts, call: Call) -> Existing | Decided:
    """Stages 1 to 3: the call becomes an execution, or turns out to be one already; only a new one needs capacity."""
    admitted = await admit(parts, call)
    existing = await replay(parts, admitted)
    if existing is not None:
        return existing
    parts.capacity.check()
    return await decide(parts, admitted)


async def run(parts: Parts, start: Run) -> Closed | Adrift:
    """Stages 5 to 16, for each attempt. Raises only refusals before the consumption: nothing happened then."""
    attempt = start
    while True:
        classified = await act(parts, attempt)
        ended = await conclude(parts, classified) if isinstance(classified, Classified) else classified
        if not isinstance(ended, Again):
            return await close(parts, ended)
        attempt = ended.run


async def act(parts: Parts, attempt: Run) -> Classified | Ending | Hold:
    """Stages 5 to 12: at most one effect.

    What was relied on may change between 9 and 10, and a marked call may turn out not to have been made (a credential
    that was being rotated, a lease that ended, a policy that came into force). Both go back to 5: the action ends only
    where the fresh answer refuses it or its time is over (C27, APV-01, UPS-16). Each way back after a marker leaves
    records, so what does not pass at once is not asked for at once again.
    """
    while True:
        try:
            claim = await claim_effect(parts, attempt)
        except KblockError as refusal:
            if not attempt.again:
                raise
            return await _given_up(parts, attempt, refusal)
        if parts.late.acted(attempt.action.execution_id):
            return late(attempt)
        try:
            marked = await mark_sent(parts, claim)
        except Raced:
            attempt = _again(claim)
            continue
        except LeaseLost:
            raise  # somebody else may have taken over: the supervisor looks at the row again
        except KblockError as refusal:
            return await _given_up(parts, attempt, refusal)
        dispatched = await dispatch(parts, marked)
        classified = await classify(parts, dispatched)
        if dispatched.begun:
            return classified
        parts.leases.drop(attempt.action.execution_id)
        await parts.clock.sleep(_PAUSE_SECONDS)
        attempt = replace(_again(claim), attempt=claim.run.attempt + 1, unbegun=claim.run.unbegun + 1)


async def _given_up(parts: Parts, attempt: Run, refusal: KblockError) -> Ending | Hold:
    """A consumed action that is refused on its way: sealed as what is proved, or held where the target contradicts it.

    A target that has moved, is gone, or no longer meets the preconditions, since an attempt whose answer was lost may
    have been changed by that very attempt: whatever a look-up says, no picture of an effect that never happened.
    """
    if parts.late.acted(attempt.action.execution_id):
        return late(attempt)
    if refusal.reason in _OF_THE_TARGET or isinstance(refusal, TargetMoved | ReadRefused):
        row = attempt.journal.row(parts)
        if await history.doubted(parts, row, attempt.journal.written):
            return Hold(attempt, TARGET_CHANGED, keep_lock=True, result_class=ResultClass.UNKNOWN_OUTCOME)
    return refused(attempt, refusal)


def _again(claim: Claim) -> Run:
    """The same attempt, back in at 5 under the same consumption (9r)."""
    return replace(claim.run, again=True, described_at=None, deadline=claim.deadline)


async def claim_effect(parts: Parts, attempt: Run) -> Claim:
    """Stages 5 to 9: everything is revalidated, then consumed in one commit."""
    return await (_claim_again if attempt.again else _claim_first)(parts, attempt)


async def _claim_first(parts: Parts, attempt: Run) -> Claim:
    """A race goes back to 5, three times; every refusal leaves the action approved."""
    for race in range(_TRIES):
        if race > 1:
            # What has changed is in force at once, so one reload costs one more evaluation. More of it is waited out.
            await parts.clock.sleep(_RACE_SECONDS)
        try:
            return await _revalidate_and_consume(parts, attempt)
        except Raced:
            parts.leases.drop(attempt.action.execution_id)
            attempt = replace(attempt, described_at=None)
    raise Aborted(
        Reason.CONFLICT,
        "what the action relies on changed three times while it was checked. Nothing was executed or consumed.",
        retryable=True,
        next_step="repeat the identical call",
        execution_id=attempt.action.execution_id,
    )


async def _claim_again(parts: Parts, attempt: Run) -> Claim:
    """9r. The approval is used, so races and what passes by itself (an engine or upstream that fails, a credential that
    is being rotated, a target that somebody is just looking at) are waited out, until the absolute deadline.

    Raises the last of these refusals then, one that does not pass at once, and ``Conflict`` when somebody else has
    moved the execution.
    """
    why: KblockError = deadline_refusal(attempt.action.execution_id)
    while not _over(parts, attempt):
        pause = _PAUSE_SECONDS
        try:
            return await _revalidate_and_consume(parts, attempt)
        except Raced:
            pause = _RACE_SECONDS
        except (Unavailable, Aborted) as passing:
            _log_waiting(attempt, passing, why)
            why = passing
        parts.leases.drop(attempt.action.execution_id)
        await parts.clock.sleep(pause)
    raise why


def _over(parts: Parts, attempt: Run) -> bool:
    """As ``Claim.over``, by the row; raises ``Conflict``."""
    ends = parse_rfc3339(attempt.journal.row(parts).deadline_at)
    return parts.clock.monotonic() >= attempt.deadline or parts.clock.now() >= ends


def _log_waiting(attempt: Run, passing: KblockError, before: KblockError) -> None:
    """Once for each reason: a wait can last for minutes, and nobody else is told meanwhile."""
    if passing.reason != before.reason:
        extra = {"execution_id": attempt.action.execution_id}
        _log.warning("consumed but not sent yet, waiting: %s", passing.reason, extra=extra)


async def _revalidate_and_consume(parts: Parts, attempt: Run) -> Claim:
    preflighted = await preflight(parts, attempt)
    leased = await lease(parts, preflighted)
    snapshot = await read(parts, leased)
    checked = await preconditions(parts, snapshot)
    return await consume(parts, checked)


async def conclude(parts: Parts, classified: Classified) -> Ending | Hold | Again | Adrift:
    """Stages 13 to 15: what happened, is it proved, what follows."""
    settled = await reconcile(parts, classified)
    judged = await verify(parts, settled)
    return await recover(parts, judged)


async def close(parts: Parts, ended: Ending | Hold | Adrift) -> Closed | Adrift:
    """Stage 16, or the hold that takes its place.

    What says that nothing happened is not sealed over a late answer which says that something did, nor over an attempt
    that was lost without one more look-up (UPS-07).
    """
    if isinstance(ended, Ending) and ended.result_class in BEFORE_EFFECT and not _contradicted(parts, ended):
        ended = await confirm(parts, ended)
    if isinstance(ended, Ending):
        if ended.result_class in BEFORE_EFFECT and _contradicted(parts, ended):
            return await hold(parts, late(ended.run))
        return await seal(parts, ended)
    if isinstance(ended, Hold):
        return await hold(parts, await _honest(parts, ended))
    return ended


async def _honest(parts: Parts, ended: Hold) -> Hold:
    """A hold says "before the effect" no more than a seal would: where an attempt is in doubt its class is unknown."""
    row = ended.run.journal.row(parts)
    if (ended.result_class or row.result_class) not in BEFORE_EFFECT:
        return ended
    if _contradicted(parts, ended):
        return late(ended.run)
    if await history.doubted(parts, row, ended.run.journal.written):
        return replace(ended, result_class=ResultClass.UNKNOWN_OUTCOME)
    return ended


def _contradicted(parts: Parts, ended: Ending | Hold) -> bool:
    return parts.late.acted(ended.run.action.execution_id)


def late(attempt: Run) -> Hold:
    """An earlier attempt, whose effect was shown to be absent, says that it was done: nobody knows any more."""
    return Hold(attempt, LATE_ANSWER, keep_lock=True, result_class=ResultClass.UNKNOWN_OUTCOME)


def refused(attempt: Run, refusal: KblockError) -> Ending:
    """After the consumption, on the way to another try: it did not start, or its absence was proved before.

    The refusals of 5 to 8 close with what they leave of an action that was not consumed (``Left``); here it was.
    """
    unsent = not attempt.journal.marked
    result_class = ResultClass.NOT_STARTED if unsent else ResultClass.FAILED_BEFORE_SIDE_EFFECT
    known = "the call was not made" if unsent else "no further attempt was made"
    detail = f"{refusal.what} The action was consumed, and {known}."
    return Ending(attempt, State.FAILED, result_class, str(refusal.reason), detail)
