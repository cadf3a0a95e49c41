"""What lands between a revocation's look at the approval and its commit: it is met again, or refused by what it says.

The other way round, a revocation between two stages of the call, is in ``test_races``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from kblockd.client.answers import Completed, Denied
from kblockd.client.errors import AbortedError, FailedPreconditionError, PermissionDeniedError
from tests.harness import approve, revoke
from tests.integration.pipeline.local import ask, effects, order, refund_in, run_approved, types
from tests.integration.races.changes import Disabled
from tests.integration.staged import StagedSite, told
from tests.upstreams.payments import PaymentsServer

ORDERING: Final = "await_approval:ordering"


def meanwhile(site: StagedSite, act: Callable[[], object]) -> None:
    """Once, when the next commit about an approval is handed over."""

    async def run() -> None:
        await asyncio.to_thread(act)

    site.boundaries.at(ORDERING, run)


def test_r363_consumed_meanwhile(staged: StagedSite, pay: PaymentsServer) -> None:
    """R363, R108: the consumption came first, so the revocation is refused and says so; one effect."""
    mine = order()
    call = refund_in("production", mine, key=mine)
    pending = ask(staged, call)
    approve(staged, pending.approval_id)
    meanwhile(staged, lambda: told(staged, call))
    late = revoke(staged, pending.approval_id)
    assert staged.boundaries.clear() == []
    assert isinstance(late, FailedPreconditionError), late
    assert (late.reason, late.executed, late.consumed) == ("APPROVAL_NOT_VALID", True, True)
    assert isinstance(told(staged, call), Completed)
    assert "approval.revoked" not in types(staged, pending.execution_id)
    assert len(effects(pay, mine)) == 1


def test_r108_decided_meanwhile(staged: StagedSite, pay: PaymentsServer) -> None:
    """R108: whoever stops the action need not look again, whatever was decided: it is stopped."""
    mine = order()
    call = refund_in("production", mine, key=mine, operation="payment.refund.pair")
    pending = ask(staged, call)
    approve(staged, pending.approval_id)
    meanwhile(staged, lambda: approve(staged, pending.approval_id, who="chief"))
    assert revoke(staged, pending.approval_id) is None
    assert staged.boundaries.clear() == []
    assert isinstance(told(staged, call), Denied)
    story = types(staged, pending.execution_id)
    assert story[2:] == ["approval.decided", "approval.decided", "approval.revoked", "execution.rejected"]
    assert effects(pay, mine) == []


def test_r108_revoked_meanwhile(staged: StagedSite) -> None:
    """R108: it is on record once."""
    mine = order()
    pending = ask(staged, refund_in("production", mine, key=mine))
    meanwhile(staged, lambda: revoke(staged, pending.approval_id, "operator"))
    late = revoke(staged, pending.approval_id)
    assert staged.boundaries.clear() == []
    assert isinstance(late, FailedPreconditionError), late
    assert (late.reason, late.consumed) == ("APPROVAL_NOT_VALID", False)
    assert types(staged, pending.execution_id).count("approval.revoked") == 1


@pytest.mark.parametrize("verdict", ["approve", "deny", "revoke"])
def test_r036_disabled_meanwhile(staged: StagedSite, verdict: str) -> None:
    """R036: who is being disabled at this moment changes nothing; a decision is not tried again by itself."""
    mine = order()
    pending = ask(staged, refund_in("production", mine, key=mine))
    disabled = Disabled("local:lead")
    staged.boundaries.at(ORDERING, lambda: disabled.make(staged, pending.approval_id))
    try:
        if verdict == "revoke":
            assert isinstance(revoke(staged, pending.approval_id), PermissionDeniedError)
        else:
            with pytest.raises(AbortedError):
                approve(staged, pending.approval_id, verdict)
        assert staged.boundaries.clear() == []
    finally:
        staged.run(disabled.undo(staged))
    assert types(staged, pending.execution_id) == ["execution.proposed", "approval.requested"]


def test_a_revocation_that_always_meets_another_change_gives_up(staged: StagedSite) -> None:
    """It says that nothing was recorded; the next one lands."""
    mine = order()
    pending = ask(staged, refund_in("production", mine, key=mine))
    met: list[str] = []

    async def change() -> None:
        disabled = Disabled("local:lead")
        await disabled.make(staged, pending.approval_id)
        await disabled.undo(staged)
        met.append(ORDERING)
        staged.boundaries.at(ORDERING, change)

    staged.boundaries.at(ORDERING, change)
    late = revoke(staged, pending.approval_id)
    assert staged.boundaries.clear() == [ORDERING]
    assert isinstance(late, AbortedError), late
    assert (late.reason, late.retryable, late.consumed, len(met)) == ("CONFLICT", True, False, 3)
    assert revoke(staged, pending.approval_id) is None


def test_r036_disabled_on_record_counts_before_the_configuration_follows(staged: StagedSite) -> None:
    """R036: at once."""
    mine = order()
    pending = ask(staged, refund_in("production", mine, key=mine))
    disabled = Disabled("local:lead")
    lead = staged.configured.principals["local:lead"]
    staged.run(disabled.make(staged, pending.approval_id))
    staged.configured.principals["local:lead"] = lead
    try:
        assert isinstance(revoke(staged, pending.approval_id), PermissionDeniedError)
    finally:
        staged.run(disabled.undo(staged))
    assert isinstance(run_approved(staged, refund_in("production", order(), key=order())), Completed)
