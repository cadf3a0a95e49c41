"""Refusals that end an action: what was decided or approved can never hold again, so nobody need wait for it."""

from __future__ import annotations

from kblockd.domain.errors import FailedPrecondition, Left, Reason


class Voided(FailedPrecondition):
    """The action is void: ``kblockd.execution.supervisor`` cancels it, with the reason as its code."""


class ApprovalInsufficient(Voided):
    """The policy or the approval floor in force asks for more than was approved, and what was approved cannot grow:
    what the approvers were shown named the old demand (APV-11)."""

    def __init__(self, what: str, execution_id: str) -> None:
        super().__init__(
            Reason.APPROVAL_INSUFFICIENT,
            f"{what}, so the action is void.",
            Left.NOTHING,
            next_step="call again with a new key (or none) and have the new action approved",
            execution_id=execution_id,
        )


class TargetMoved(Voided):
    """The target has another version than the one that the approvers were shown (APV-05). Versions do not come back,
    so the action could only wait for its expiry."""

    def __init__(self, shown: str, now: str, execution_id: str) -> None:
        super().__init__(
            Reason.BINDING_CHANGED,
            f"the target was at {shown} when the approval was asked for and is at {now} now, so the action is void.",
            Left.NOTHING,
            next_step="call again with a new key (or none) for an approval of the target as it is now",
            execution_id=execution_id,
        )
