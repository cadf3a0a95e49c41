"""Who may decide or revoke an approval, and in which state: every check says what is wrong and the next step.

Deciding agrees to something, so it is for whoever has the role, on what was shown, and never for the requester's side.
Revoking only takes a permission away, so it is for everybody who answers for the action: who could decide it, who has
approved it (their own word, whatever role is left to them), the requester's side (which withdraws), and an operator,
who contains (R287). It asks for no digest of what was shown: nothing is agreed to, and it must not wait for reading.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from kblockd.approvals.asked import Asked, state_at
from kblockd.domain.errors import FailedPrecondition, InvalidArgument, PermissionDenied, Reason
from kblockd.domain.ledger import identifier
from kblockd.domain.ledger.rows import ApprovalRow
from kblockd.domain.principal import Principal
from kblockd.domain.states import acted

MAX_REASON: Final = 2000
_NEXT_STEPS: Final[Mapping[str, str]] = {
    "approved": "nothing is left to decide; revoke it if the action must not run",
    "used": "look at the execution: its action was consumed, and may have been done",
    "expired": "the agent must ask anew",
}


class Capacity(enum.StrEnum):
    """In which capacity somebody revokes; the first that fits goes on record."""

    REQUESTER = "requester"
    APPROVER = "approver"
    OPERATOR = "operator"


def check_reason(reason: str, *, required: bool) -> None:
    """Raises ``InvalidArgument``."""
    if required and not reason.strip():
        raise InvalidArgument.field("reason", "must say why")
    if len(reason) > MAX_REASON:
        raise InvalidArgument.field("reason", f"is longer than {MAX_REASON} characters")


def check_shown(row: ApprovalRow, action_sha256: str, presented_sha256: str) -> None:
    """Whoever decides names what was read (R040); raises ``InvalidArgument`` or ``FailedPrecondition``."""
    for field, given, wanted in (
        ("action_sha256", action_sha256, row.action_sha256),
        ("presented_sha256", presented_sha256, row.presented_sha256),
    ):
        if not given:
            raise InvalidArgument.field(field, "must be the digest of what you were shown")
        if given != wanted:
            raise FailedPrecondition(
                Reason.SHOWN_DIFFERS,
                f"{field} is not that of this request: you decided on something else than what is asked. "
                "Nothing was recorded.",
                next_step="read the approval again and decide on what it shows",
            )


def check_state(found: Asked, now: dt.datetime, deed: str, *allowed: str) -> None:
    """``deed`` is what can only be done in the states ``allowed``. Raises ``FailedPrecondition``: where the approval
    is used, it says that the action was consumed, and whether an effect may exist by now."""
    state = state_at(found.row, now)
    if state in allowed:
        return
    raise FailedPrecondition(
        Reason.APPROVAL_NOT_VALID,
        f"the approval is {state}, so it can no longer be {deed}. Nothing was recorded.",
        executed=acted(found.execution.state, found.execution.marker, found.execution.result_class),
        consumed=state == "used",
        next_step=_NEXT_STEPS.get(state, "nothing is left to do"),
        execution_id=found.row.execution,
    )


def check_approver(principals: Mapping[str, Principal], principal: Principal, row: ApprovalRow) -> None:
    """APR-08; raises ``PermissionDenied``, and ``FailedPrecondition`` for an owner that has decided already."""
    _check_configured(principals, principal)
    if _asks(principals, principal, row):
        raise PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"{principal.id} has the same owner as the requester: nobody approves their own action",
            next_step="ask somebody else to decide",
        )
    if not has_roles(principal, row):
        raise _no_role(principal, row)
    if _has_decided(principal, row):
        raise FailedPrecondition(
            Reason.APPROVAL_NOT_VALID,
            "this owner has decided already; a second approval must come from somebody else",
            next_step="ask somebody else to decide",
        )


def check_revoker(principals: Mapping[str, Principal], principal: Principal, row: ApprovalRow) -> Capacity:
    """In which capacity; raises ``PermissionDenied``."""
    _check_configured(principals, principal)
    if _asks(principals, principal, row):
        return Capacity.REQUESTER
    if _has_decided(principal, row) or has_roles(principal, row):
        return Capacity.APPROVER
    if "operator" in principal.roles:
        return Capacity.OPERATOR
    raise _no_role(principal, row)


def _check_configured(principals: Mapping[str, Principal], principal: Principal) -> None:
    if principals.get(principal.id) != principal:
        raise PermissionDenied(Reason.PERMISSION_DENIED, f"{principal.id} is not configured as it was")


def _asks(principals: Mapping[str, Principal], principal: Principal, row: ApprovalRow) -> bool:
    requester = principals.get(row.requester)
    return principal.owner in (row.owner, requester.owner if requester else "")


def _wanted(row: ApprovalRow) -> list[Sequence[str]]:
    """Policy's roles and the approval floor's: an approver needs one of each."""
    return [roles for roles in (row.roles, row.floor_roles) if roles]


def has_roles(principal: Principal, row: ApprovalRow) -> bool:
    """One of the roles that policy asks for, and one of those of the approval floor; where none are named, any."""
    return all(set(roles) & set(principal.roles) for roles in _wanted(row))


def _has_decided(principal: Principal, row: ApprovalRow) -> bool:
    return any(decision.owner == principal.owner for decision in row.decisions)


def _no_role(principal: Principal, row: ApprovalRow) -> PermissionDenied:
    asked = row.roles if row.roles and not set(row.roles) & set(principal.roles) else row.floor_roles
    whose = "policy asks for" if asked is row.roles else "the approval floor asks for"
    return PermissionDenied(
        Reason.PERMISSION_DENIED,
        f"{principal.id} has none of the roles that {whose}: {', '.join(map(identifier, asked))}",
        next_step="ask somebody who has one of them",
    )
