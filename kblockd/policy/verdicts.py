"""What follows from an answer, in one form for what is on record and for what a bundle says, so that two compare.

Messages are no part of it, nor is what has no consequence (the approvals of a denial, the end of no observe window).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kblockd.domain.ledger import identifier
from kblockd.domain.ledger.approvals import ApprovalRequested
from kblockd.domain.ledger.attempt import RecoveryPlanned, Verified
from kblockd.domain.ledger.claim import Claimed
from kblockd.domain.ledger.configuration import AuthzDecided
from kblockd.domain.ledger.proposal import CallRefused, Proposed
from kblockd.policy import entrypoints
from kblockd.policy.engine import PolicyFailure
from kblockd.policy.floor import Floor, raised

Asked = AuthzDecided | Proposed | CallRefused | Claimed | Verified | RecoveryPlanned
"""The bodies that hold a decision of policy."""
_SHOWN: Final = 16
"""Of the 64 digits of a digest: enough to tell two apart, and to read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``said``: the words that decide; ``codes``: those of the reasons, as the ledger holds them."""

    said: Mapping[str, Any]
    codes: tuple[str, ...]

    def __str__(self) -> str:
        words = (",".join(word) if isinstance(word, list) else str(word) for word in self.said.values())
        return " ".join(f"{name}={word}" for name, word in zip(self.said, words, strict=True))


def of(entrypoint: str, result: Mapping[str, Any], *, past_return: bool, floor: Floor | None = None) -> Verdict:
    """From a checked result, as code lets it stand (``entrypoints.bounded``, ``floor.raised``)."""
    said: dict[str, Any]
    match entrypoint:
        case entrypoints.AUTHZ:
            answer = entrypoints.authz(result)
            said = _authz(answer.allow, answer.view_sha256)
        case entrypoints.DECISION:
            effect = raised(entrypoints.bounded(entrypoints.decision(result), past_return=past_return), floor)
            said = _effect(effect.effect, effect.count, effect.roles, effect.observe_until, effect.floor_roles)
        case entrypoints.PRECONDITIONS:
            refusal = "" if result["stands"] else "POLICY_CHANGED"
            said = _preconditions(refusal if result["ok"] else "PRECONDITION_FAILED")
        case _:
            said = {name: word for name, word in result.items() if name != "reasons"}
    return Verdict(said, tuple(entrypoints.codes(entrypoints.reasons(result))))


def of_failure(failure: PolicyFailure) -> Verdict:
    """No answer is an answer too: the call is refused, or nothing follows from the question."""
    return Verdict({"failure": str(failure.reason)}, ())


def on_record(entrypoint: str, body: Asked, approval: ApprovalRequested | CallRefused | None) -> Verdict:
    """From the body of a decision's record; ``approval`` is what says how many are asked, where somebody is."""
    said: dict[str, Any]
    match body:
        case AuthzDecided():
            said = _authz(body.allow, body.view_sha256)
        case Claimed():
            said = _preconditions("")
        case Verified():
            said = {"verdict": body.verdict}
        case RecoveryPlanned():
            said = {"recovery": body.refused or body.recovery}  # what policy chose, not what code made of it
        case CallRefused() if entrypoint == entrypoints.PRECONDITIONS:
            said = _preconditions(body.reason)
        case Proposed() | CallRefused():
            said = _decided(body, approval)
    return Verdict(said, body.reasons or ())


def _decided(body: Proposed | CallRefused, approval: ApprovalRequested | CallRefused | None) -> dict[str, Any]:
    count, roles, floor_roles = (approval.count, approval.roles, approval.floor_roles) if approval else (0, (), ())
    return _effect(body.effect or "", count or 0, roles or (), body.observe_until or "", floor_roles or ())


def _authz(allow: bool, view_sha256: str) -> dict[str, Any]:
    """A denial shows no rows whatever it names."""
    return {"allow": allow, "view": view_sha256[:_SHOWN]} if allow else {"allow": allow}


def _effect(
    effect: str, count: int, roles: Sequence[str], observe_until: str, floor_roles: Sequence[str]
) -> dict[str, Any]:
    if effect == "require_approval":
        more = {"floor_roles": sorted(floor_roles)} if floor_roles else {}
        return {"effect": effect, "count": count, "roles": sorted(roles), **more}
    return {"effect": effect, "observe_until": identifier(observe_until)} if effect == "observe" else {"effect": effect}


def _preconditions(refusal: str) -> dict[str, Any]:
    return {"preconditions": refusal or "hold"}
