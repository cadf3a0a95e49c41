"""Stage 5: everything again as configured *now*. Consumes nothing; a refusal leaves the action approved.

Binding, definition and pins, principals (approvers too), signing key, breaker, address, credential, the approval's own
signature. Only a binding that changed after the decision voids the action: what was approved no longer exists (R073 to
R082).
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import Final

from kblockd.approvals.checks import has_roles
from kblockd.domain.canonical import sha256_hex
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import FailedPrecondition, Left, PermissionDenied, Reason, Unavailable
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ApprovalRow, ApproverDecision
from kblockd.domain.principal import Principal
from kblockd.domain.stages import Stage
from kblockd.domain.states import State
from kblockd.domain.values import value_type
from kblockd.evidence.errors import EvidenceError
from kblockd.evidence.receipts import open_statement
from kblockd.evidence.statements import Approval
from kblockd.execution.action import Action, Run
from kblockd.execution.decide import check_deadline, check_observed, place_sha256
from kblockd.execution.describe import DESCRIBE_SECONDS, describe, pin_of
from kblockd.execution.parts import Parts
from kblockd.execution.signing_keys import check_sealable
from kblockd.execution.stages import stage
from kblockd.execution.void import Voided
from kblockd.store.protocol import AtVersion, Condition
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.faults import UpstreamFault

_log: Final = logging.getLogger(__name__)
_PASSING: Final = frozenset({"BREAKER_OPEN", "ADDRESS_UNKNOWN"})
_ROTATED: Final = frozenset({"CREDENTIAL_UNREADABLE", "CREDENTIAL_INVALID"})


class Raced(Exception):
    """Something that stages 5 to 8 relied on has changed: back to 5 (three times, then ABORTED)."""


class BindingChanged(Voided):
    """What was decided on no longer exists; the action is void and is cancelled."""

    def __init__(self, what: str, execution_id: str) -> None:
        super().__init__(
            Reason.BINDING_CHANGED,
            f"{what} changed after the decision, so the action is void.",
            Left.NOTHING,
            next_step="call again with a new key (or none) for a new decision on the tool as it is now",
            execution_id=execution_id,
        )


@value_type(frozen=True, slots=True)
class Preflighted:
    """Everything held just now. ``conditions`` are the row versions that this relied on; ``caller`` as configured;
    ``described_at`` is when the tool was asked for its definition."""

    run: Run
    caller: Principal
    approval: ApprovalRow | None
    conditions: tuple[Condition, ...]
    described_at: dt.datetime

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.run.trace


@stage(Stage.PREFLIGHT)
async def preflight(parts: Parts, run: Run) -> Preflighted:
    """Raises ``FailedPrecondition`` (``BindingChanged`` voids), ``PermissionDenied`` or ``Unavailable``."""
    action = run.action
    check_clock(parts, action, again=run.again)
    conditions = [
        *await _check_binding(parts, action),
        *await _check_principal(parts, action.requester, action.execution_id),
        *await check_sealable(parts.store, parts.keys, action.execution_id),
    ]
    if parts.principals[action.requester].tenant != action.tenant:
        raise BindingChanged("the tenant of the requester", action.execution_id)
    described_at = run.described_at or await _check_definition(parts, action, run.trace)
    approval, more = await _check_approval(parts, run)
    await _check_upstream(parts, action, again=run.again)
    return Preflighted(run, parts.principals[action.requester], approval, (*conditions, *more), described_at)


async def _check_upstream(parts: Parts, action: Action, *, again: bool) -> None:
    """Breaker, address and credentials (R076, R077, R203).

    After the consumption (``again``) a credential that cannot be read counts as transient: a rotation that unlinks the
    file and creates it anew must not cost the approval (UPS-16). Before it nothing is lost, and the operator is told.
    """
    try:
        await parts.upstreams[action.upstream].preflight(parts.clock.monotonic() + DESCRIBE_SECONDS)
    except UpstreamFault as fault:
        # Where a credential lies and what a name resolves to is for the operator, not for an agent.
        _log.warning("preflight: %s: %s", fault.code, fault, extra={"execution_id": action.execution_id})
        passing = fault.code in _PASSING or (again and fault.code in _ROTATED)
        refusal = Unavailable if passing else FailedPrecondition
        when = "just now" if passing else "as it is configured"
        raise refusal(
            Reason.UPSTREAM_UNAVAILABLE if passing else Reason.PREFLIGHT_FAILED,
            f"{fault.code}: upstream {action.upstream} cannot be used {when}.",
            Left.APPROVED,
            retryable=passing,
            next_step=("" if passing else "tell the operator, whose log says more, and ")
            + "repeat the identical call when the upstream can be used again",
            execution_id=action.execution_id,
        ) from None


def check_clock(parts: Parts, action: Action, *, again: bool) -> None:
    """``check_terms``, and ``Unavailable`` (CLOCK_BEHIND) where the machine's clock cannot tell; asked at 5, 9, 9r."""
    if parts.clock.behind():
        raise Unavailable(
            Reason.CLOCK_BEHIND,
            "the machine's clock is behind the last record, so nothing is consumed until it has caught up.",
            retryable=True,
            next_step="correct the machine's clock",
            execution_id=action.execution_id,
        )
    check_terms(parts, action, again=again)


def check_terms(parts: Parts, action: Action, *, again: bool) -> None:
    """The envelope's deadline, the approval's end and the observe window, in code, whatever policy says (APV-02).

    Asked at 5, 9 and 9r, before the send marker and once more behind it. ``again`` (consumed): an action that needed no
    approval has been decided on in time, so only an approval can still end. Raises ``FailedPrecondition``
    (DEADLINE_PASSED, APPROVAL_NOT_VALID, OBSERVE_ENDED).
    """
    check_deadline(parts, action.limits.deadline, action.execution_id)
    bounded = not again or action.effect == "require_approval"
    if bounded and parts.clock.now() >= parse_rfc3339(action.not_after):
        raise FailedPrecondition(
            Reason.APPROVAL_NOT_VALID,
            "the time within which the action could run has passed.",
            Left.NOTHING,
            next_step="call again with a new key (or none)",
            execution_id=action.execution_id,
        )
    check_observed(parts, action.effect, action.observe_until)


async def _check_binding(parts: Parts, action: Action) -> list[Condition]:
    """Contract and upstream as they are configured now, and as conditions of the consumption."""
    contract = parts.contracts.get((action.operation, action.environment))
    if contract is None or contract.sha256 != action.contract.sha256:
        raise BindingChanged("the action contract", action.execution_id)
    upstream = parts.upstreams.get(action.upstream)
    if upstream is None or str(upstream.origin) != action.origin:
        raise BindingChanged("the upstream", action.execution_id)
    decided = parts.store.ordered(rows.execution(action.execution_id))  # this run's own: nothing is waited for
    if decided is None or decided[1].place_sha256 != place_sha256(upstream):
        raise BindingChanged("the upstream's adapter or address", action.execution_id)
    conditions: list[Condition] = []
    for key in (rows.contract(action.operation, action.environment), rows.upstream(action.upstream)):
        found = await parts.store.get(key)
        if found is None:
            raise BindingChanged(f"{key[0]} {key[1]}", action.execution_id)
        conditions.append(AtVersion(key, found[0]))
    return conditions


async def _check_definition(parts: Parts, action: Action, trace: Trace) -> dt.datetime:
    described = await describe(parts, action.contract, trace)
    if described.definition_sha256 != action.definition_sha256 or described.server_version != action.tool_version:
        raise BindingChanged("the tool's definition or its server's version", action.execution_id)
    pinned = pin_of(parts, action.upstream, action.tool)
    if pinned != described.definition_sha256 and not (pinned is None and parts.unpinned_tools):
        raise BindingChanged("the pin of the tool", action.execution_id)
    return described.at


async def _check_principal(parts: Parts, principal_id: str, execution_id: str) -> list[Condition]:
    found = await parts.store.get(rows.principal(principal_id))
    configured = parts.principals.get(principal_id)
    if found is None or configured is None or found[1].disabled or found[1].owner != configured.owner:
        raise PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"principal {principal_id!r} is no longer active.",
            Left.NOTHING,
            next_step="an operator must activate the principal, then the identical call can be repeated",
            execution_id=execution_id,
        )
    return [AtVersion(rows.principal(principal_id), found[0])]


async def _check_approval(parts: Parts, run: Run) -> tuple[ApprovalRow | None, list[Condition]]:
    """The approval as it was signed: bound to this action, by enough owners, none of them the requester's."""
    action = run.action
    found = parts.store.ordered(rows.execution(action.execution_id))
    approval_id = found[1].approval_id if found else ""
    if not approval_id:
        if action.effect == "require_approval":
            raise _not_valid("there is none", action)
        return None, []
    approval = await parts.store.get(rows.approval(approval_id))
    if approval is None:
        raise _not_valid("it is gone", action)
    version, row = approval
    if row.state != ("used" if run.again else State.APPROVED):
        raise _not_valid(f"it is {row.state}", action)
    conditions: list[Condition] = [AtVersion(rows.approval(approval_id), version)]
    owners: set[str] = set()
    for decision in row.decisions:
        conditions += await _check_principal(parts, decision.approver, action.execution_id)
        owners.add(await _verified_owner(parts, action, row, decision))
    if len(owners) < row.count:
        raise _not_valid(f"{len(owners)} of {row.count} approvers stand behind it", action)
    return row, conditions


async def _verified_owner(parts: Parts, action: Action, row: ApprovalRow, decision: ApproverDecision) -> str:
    record = await parts.store.leaf(decision.index)
    if record is None or sha256_hex(record.aux) != decision.dsse_sha256:
        raise _not_valid("its signed form is gone", action)
    try:
        statement = open_statement(record.aux, Approval, parts.keys.keyset, index=decision.index)
    except EvidenceError as error:
        raise _not_valid(f"its signature does not hold ({error})", action) from None
    approver = parts.principals[decision.approver]
    agreed = (statement.action, statement.approval_id, statement.decision, statement.approver, statement.owner)
    if agreed != (action.action_sha256, row.approval_id, "approve", approver.id, approver.owner):
        raise _not_valid("it does not bind this action", action)
    if approver.owner in (row.owner, parts.principals[action.requester].owner):
        raise _not_valid("the approver has the requester's owner", action)
    if not has_roles(approver, row):
        raise _not_valid(f"{approver.id} has lost the role for it", action)
    return statement.owner


def _not_valid(why: str, action: Action) -> FailedPrecondition:
    return FailedPrecondition(
        Reason.APPROVAL_NOT_VALID,
        f"the approval does not allow this action: {why}.",
        Left.NOTHING,
        next_step="call again with a new key (or none) and have the new action approved",
        execution_id=action.execution_id,
    )
