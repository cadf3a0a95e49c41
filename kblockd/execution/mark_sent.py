"""Stage 10: the send marker, durable before the first byte can leave (C2, R462).

Without it "was not called" is proved; with it the outcome is unknown until shown. It is conditioned on every row that
stages 5 to 9 relied on, so that a policy that came into force while the consumption was being synced is seen (APV-01).
Lease, deadline, the approval's end and those rows are looked at once more behind it: a paused daemon that wakes up here
sends nothing (APV-02).
"""

from __future__ import annotations

from typing import Final

from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.ledger.claim import ExecutionSent
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.consume import Claim, deadline_refusal
from kblockd.execution.journal import Entry
from kblockd.execution.parts import Parts
from kblockd.execution.preflight import Raced, check_terms
from kblockd.execution.stages import stage
from kblockd.store.protocol import AtVersion, Conflict, StoreFailed
from kblockd.telemetry.recorder import Trace

TIME_ENDED: Final = "LEASE_OR_DEADLINE_ENDED"
RELIED_ON_CHANGED: Final = "RELIED_ON_CHANGED"


@value_type(frozen=True, slots=True)
class Marked:
    """A claim whose call may leave now."""

    claim: Claim

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.claim.trace


class LeaseEnded(FailedPrecondition):
    """The holder fenced itself; whoever takes over reconciles first."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(
            Reason.WRONG_STATE,
            "the execution's lease ended while it was held up; nothing is sent under it.",
            consumed=True,
            next_step="look at the execution's outcome; the daemon resolves it",
            execution_id=execution_id,
        )


@stage(Stage.MARK_SENT)
async def mark_sent(parts: Parts, claim: Claim) -> Marked:
    """Raises ``Raced`` when something that was relied on has changed (back to 5, as 9r), ``Conflict`` when somebody
    else moved the execution, ``LeaseEnded``, and ``FailedPrecondition`` as ``check_terms`` or once the deadline is
    over.
    """
    run = claim.run
    at = parts.clock.now()  # before the check: no marker is dated behind the deadline
    _check(parts, claim)
    body = ExecutionSent(fence=claim.lease.fence, boot=parts.instance.boot_id, effect_key=claim.effect_key)
    marked, run.journal.marked = run.journal.marked, True
    try:
        ticket = await run.journal.commit(parts, Stage.MARK_SENT, [Entry(body)], conditions=claim.relied, at=at)
    except Conflict as conflict:
        run.journal.marked = marked  # a commit that met a conflict has written nothing
        if conflict.condition in claim.relied:
            raise Raced from None
        raise
    await ticket.durable()
    return Marked(claim)


def _check(parts: Parts, claim: Claim) -> None:
    execution_id = claim.run.action.execution_id
    if not parts.leases.holds(claim.lease):
        raise LeaseEnded(execution_id)
    if claim.over(parts.clock):
        raise deadline_refusal(execution_id)
    check_terms(parts, claim.run.action, again=True)


def may_send(parts: Parts, marked: Marked) -> bool:
    """Behind the marker, before the call and again before each write until it has begun: an attempt before may have
    answered meanwhile, the machine may have slept, the approval may have ended."""
    claim = marked.claim
    if parts.late.acted(claim.run.action.execution_id):
        return False
    return parts.leases.holds(claim.lease) and not claim.over(parts.clock) and _in_time(parts, claim)


def unfit(parts: Parts, marked: Marked) -> str:
    """The last look before the call, behind its wait for a slot: why it must not be made, as the code of a call
    that was not sent; "" lets it go.

    The rows are looked at here and not before each write: a reload while the call connects comes after it began.
    """
    if not may_send(parts, marked):
        return TIME_ENDED
    return "" if _unchanged(parts, marked.claim) else RELIED_ON_CHANGED


def _in_time(parts: Parts, claim: Claim) -> bool:
    try:
        check_terms(parts, claim.run.action, again=True)
    except FailedPrecondition:
        return False
    return True


def _unchanged(parts: Parts, claim: Claim) -> bool:
    """Whether every row that was relied on has the version that it had. A store that has failed cannot tell: no."""
    try:
        found = [(parts.store.ordered(it.key), it.version) for it in claim.relied if isinstance(it, AtVersion)]
    except StoreFailed:
        return False
    return all(row is not None and row[0] == version for row, version in found)
