"""Stage 10: the send marker, durable before the first byte can leave (C2, R462).

Without it "was not called" is proved; with it the outcome is unknown until shown. Lease and deadline are looked at
once more after it: a paused daemon that wakes up here sends nothing.
"""

from __future__ import annotations

from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.records import RecordType
from kblockd.domain.values import value_type
from kblockd.execution.consume import Claim, deadline_refusal
from kblockd.execution.journal import Entry
from kblockd.execution.parts import Parts
from kblockd.execution.stages import Stage, stage
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class Marked:
    """A claim whose call may leave now."""

    claim: Claim

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.claim.trace


class LeaseLost(FailedPrecondition):
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
    """Raises ``Conflict`` when the execution was changed by somebody else, ``LeaseLost``, ``FailedPrecondition``."""
    run = claim.run
    at = parts.clock.now()  # before the check: no marker is dated behind the deadline
    _check(parts, claim)
    body = {"fence": claim.lease.fence, "boot": parts.instance.boot_id, "effect_key": claim.effect_key}
    run.journal.marked = True
    ticket = await run.journal.commit(parts, Stage.MARK_SENT, [Entry(RecordType.SENT, body)], at=at)
    await ticket.durable()
    return Marked(claim)


def _check(parts: Parts, claim: Claim) -> None:
    execution_id = claim.run.action.execution_id
    if not parts.leases.holds(claim.lease):
        raise LeaseLost(execution_id)
    if claim.over(parts.clock):
        raise deadline_refusal(execution_id)


def may_send(parts: Parts, marked: Marked) -> bool:
    """The last look, after the marker, before the call and again before each write until it has begun: an attempt
    before may have answered meanwhile, and the machine may have slept."""
    if parts.late.acted(marked.claim.run.action.execution_id):
        return False
    return parts.leases.holds(marked.claim.lease) and not marked.claim.over(parts.clock)
