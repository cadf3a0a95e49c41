"""Stage 8: Rego over the snapshot: do the preconditions hold, and does the decision still stand with its approval?

Code itself compares the target's version (with the one that the approvers were shown, the envelope's pin and the
contract's demand that there is one; R084 to R097, APV-05) and holds the approval against the approval floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain.errors import FailedPrecondition, KblockError, Left, Reason, Unavailable
from kblockd.domain.ledger import identifier
from kblockd.domain.ledger.proposal import RefusalDetails
from kblockd.domain.ledger.rows import ApprovalRow
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution import pins, questions, refusals
from kblockd.execution.action import Action, Run
from kblockd.execution.decide import ask, decided, ruling_of
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.execution.read import Snapshot
from kblockd.execution.stages import stage
from kblockd.execution.void import ApprovalInsufficient, TargetMoved
from kblockd.policy.deciding import entrypoints
from kblockd.policy.deciding.entrypoints import Effect, Preconditions
from kblockd.policy.deciding.floor import Approver, covered, met
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class Checked:
    """Preconditions held over this snapshot, under this policy revision."""

    snapshot: Snapshot
    asked: Asked

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.snapshot.trace


@stage(Stage.PRECONDITIONS)
async def preconditions(parts: Parts, snapshot: Snapshot) -> Checked:
    """Raises ``FailedPrecondition`` (PRECONDITION_FAILED, POLICY_CHANGED, PIN_MISMATCH; ``Voided`` ends the action) or
    ``Unavailable`` (policy)."""
    preflighted = snapshot.leased.preflighted
    run = preflighted.run
    approval = preflighted.approval
    _check_version(run.action, approval, snapshot)
    _check_floor(parts, run.action, approval)
    document = questions.document(
        parts,
        preflighted.caller,
        run.action,
        approval=questions.approval_document(approval, parts.principals, again=run.again) if approval else None,
        snapshot=snapshot.value,
    )
    decision = await ask(parts, entrypoints.PRECONDITIONS, document)
    answer = entrypoints.preconditions(decision.result)
    asked = Asked(document, decision, tuple(entrypoints.codes(answer.reasons)))
    if not (answer.ok and answer.stands):
        unmet = _unmet(answer, asked, run.action.execution_id)
        await _record(parts, run, unmet, asked, Stage.PRECONDITIONS)
        if not answer.stands:
            await _check_demand(parts, run, document, approval)
        raise unmet
    return Checked(snapshot, asked)


async def _record(
    parts: Parts, run: Run, refusal: KblockError, asked: Asked, stage: Stage, more: RefusalDetails | None = None
) -> None:
    await refusals.of_decision(
        parts,
        refusal,
        asked,
        tenant=run.action.tenant,
        stage=stage,
        execution_id=run.action.execution_id,
        attempt=run.attempt,
        more=more,
    )


def _check_floor(parts: Parts, action: Action, approval: ApprovalRow | None) -> None:
    """The approval floor in force now, before policy is asked: whatever policy says does not change it."""
    floor = parts.floors.get(action.contract.action.risk_tier)
    if floor is None or floor.count == 0:
        return
    demand = Effect("require_approval", floor.count, (), "", (), floor.roles)
    if not _enough(parts, demand, approval):
        raise ApprovalInsufficient(
            f"the approval floor of risk tier {action.contract.action.risk_tier} asks for {floor.count} approvals by "
            f"distinct owners{' of certain roles' if floor.roles else ''}, and {_given(parts, approval)}",
            action.execution_id,
        )


async def _check_demand(parts: Parts, run: Run, document: Mapping[str, Any], approval: ApprovalRow | None) -> None:
    """The decision no longer stands: asked anew, because an approval that is too small now can never be enough again.

    Raises ``ApprovalInsufficient``, on record with the decision. Anything else that policy says (a denial, no answer)
    may pass, and leaves the action approved.
    """
    try:
        decision = await ask(parts, entrypoints.DECISION, dict(document))
    except Unavailable:
        return
    ruling = ruling_of(parts, run.action.contract, decision)
    demand = ruling.stands
    if demand.effect != "require_approval" or _enough(parts, demand, approval):
        return
    roles = " of certain roles" if demand.roles or demand.floor_roles else ""
    refusal = ApprovalInsufficient(
        f"policy now asks for {demand.count} approvals by distinct owners{roles}, and {_given(parts, approval)}",
        run.action.execution_id,
    )
    asked = Asked(document, decision, tuple(entrypoints.codes(demand.reasons)))
    await _record(parts, run, refusal, asked, Stage.DECIDE, decided(ruling))
    raise refusal


def _enough(parts: Parts, demand: Effect, approval: ApprovalRow | None) -> bool:
    """Not where more is demanded than was asked for and given. An approver who has lost a role, or is gone, voids
    nothing: that can be undone, and is for stage 5 and for the conditions of stage 9."""
    if approval is None:
        return False
    asked = (approval.roles, approval.floor_roles)
    return covered(demand, approval.count, asked) or met(demand, _approvers(parts, approval))


def _approvers(parts: Parts, approval: ApprovalRow | None) -> list[Approver]:
    """Who approved, with the roles that they have now."""
    decisions = approval.decisions if approval else ()
    return [
        (decision.owner, parts.principals[decision.approver].roles)
        for decision in decisions
        if decision.verdict == "approve" and decision.approver in parts.principals
    ]


def _given(parts: Parts, approval: ApprovalRow | None) -> str:
    owners = len({owner for owner, _ in _approvers(parts, approval)})
    return "nobody was asked" if approval is None else f"{owners} approved"


def _unmet(answer: Preconditions, asked: Asked, execution_id: str) -> FailedPrecondition:
    """Codes only: policy's words are for policy authors and auditors (PolicyService.Explain)."""
    why = ", ".join(asked.codes)[:500] or "policy gave no reason"
    if not answer.ok:
        return FailedPrecondition(
            Reason.PRECONDITION_FAILED,
            f"a precondition does not hold ({why}).",
            Left.APPROVED,
            next_step="repeat the identical call when it holds, or plan the action again",
            execution_id=execution_id,
        )
    return FailedPrecondition(
        Reason.POLICY_CHANGED,
        f"the policy in force would not decide as it did ({why}).",
        Left.NOTHING,
        next_step="plan the action again under the policy in force",
        execution_id=execution_id,
    )


def _check_version(action: Action, approval: ApprovalRow | None, snapshot: Snapshot) -> None:
    """Against the version that the approvers were shown, then against the caller's pin.

    The approvers' comes first: an action that it voids must not stay approved because of a pin. An approval on record
    without a version (of an earlier build) was shown none, so it compares with nothing.
    """
    wanted = action.contract.reads.snapshot
    demanded = action.contract.preflight.require_current_resource_version
    compared = demanded and wanted is not None and bool(wanted.version)
    if compared and not snapshot.version:
        raise FailedPrecondition(
            Reason.PRECONDITION_FAILED,
            "the target's version could not be read.",
            Left.APPROVED,
            next_step="the upstream must answer with a version",
            execution_id=action.execution_id,
        )
    if compared and approval is not None and approval.target_version != identifier(snapshot.version):
        shown = pins.version_words(approval.target_version)
        raise TargetMoved(shown, pins.version_words(identifier(snapshot.version)), action.execution_id)
    pins.check_version(action.envelope["target"]["version"], snapshot.version, action.execution_id)
