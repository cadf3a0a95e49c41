"""Stage 8: Rego over the snapshot: do the preconditions hold, and does the decision still stand with its approval?

Code itself compares only versions: the envelope's pin and the contract's demand that there is one (R084 to R097).
"""

from __future__ import annotations

from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.values import value_type
from kblockd.execution import questions, refusals
from kblockd.execution.action import Action
from kblockd.execution.decide import ask
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.execution.read import Snapshot
from kblockd.execution.stages import Stage, stage
from kblockd.policy import entrypoints
from kblockd.policy.entrypoints import Preconditions
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
    """Raises ``FailedPrecondition`` (PRECONDITION_FAILED, POLICY_CHANGED, PIN_MISMATCH) or ``Unavailable`` (policy)."""
    preflighted = snapshot.leased.preflighted
    run = preflighted.run
    _check_version(run.action, snapshot)
    approval = preflighted.approval
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
        unmet = _unmet(answer, run.action.execution_id)
        await refusals.of_decision(
            parts,
            unmet,
            asked,
            tenant=run.action.tenant,
            stage=Stage.PRECONDITIONS,
            execution_id=run.action.execution_id,
            attempt=run.attempt,
        )
        raise unmet
    return Checked(snapshot, asked)


def _unmet(answer: Preconditions, execution_id: str) -> FailedPrecondition:
    why = "; ".join(f"{r.code}: {r.message}" for r in answer.reasons)[:500] or "policy gave no reason"
    if not answer.ok:
        return FailedPrecondition(
            Reason.PRECONDITION_FAILED,
            f"a precondition does not hold ({why}). Nothing was executed or consumed; the action stays approved.",
            next_step="repeat the identical call when it holds, or plan the action again",
            execution_id=execution_id,
        )
    return FailedPrecondition(
        Reason.POLICY_CHANGED,
        f"the policy in force would not decide as it did ({why}). Nothing was executed or consumed.",
        next_step="plan the action again under the policy in force",
        execution_id=execution_id,
    )


def _check_version(action: Action, snapshot: Snapshot) -> None:
    pinned = action.envelope["target"]["version"]
    wanted = action.contract.reads.snapshot
    if pinned and pinned != snapshot.version:
        raise FailedPrecondition(
            Reason.PIN_MISMATCH,
            f"envelope.target.version is {pinned!r}, but the target is at {snapshot.version[:128]!r} now. "
            "Nothing was executed or consumed; the action stays approved.",
            next_step="read the target again and plan the action anew",
            execution_id=action.execution_id,
        )
    demanded = action.contract.preflight.require_current_resource_version
    if demanded and wanted is not None and wanted.version and not snapshot.version:
        raise FailedPrecondition(
            Reason.PRECONDITION_FAILED,
            "the target's version could not be read. Nothing was executed or consumed; the action stays approved.",
            next_step="the upstream must answer with a version",
            execution_id=action.execution_id,
        )
