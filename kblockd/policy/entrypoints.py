"""The five questions, their exact result types, and nothing in between: a missing key, an extra key or a wrong type
is a ``PolicyFailure`` with POLICY_TYPE (kblockd/policy/README.md#the-five-questions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kblockd.domain.canonical import digest
from kblockd.domain.clock import moment
from kblockd.domain.errors import Reason
from kblockd.domain.ledger import identifier
from kblockd.domain.values import value_type
from kblockd.policy.engine import PolicyFailure

AUTHZ: Final = "kblock/authz/result"
DECISION: Final = "kblock/decision/result"
PRECONDITIONS: Final = "kblock/preconditions/result"
VERIFICATION: Final = "kblock/verification/result"
RECOVERY: Final = "kblock/recovery/result"
ALLOWING: Final = ("allow", "observe")
"""The effects of a decision under which an action runs at once."""

ENTRYPOINTS: Final = (AUTHZ, DECISION, PRECONDITIONS, VERIFICATION, RECOVERY)


@value_type(frozen=True, slots=True)
class PolicyReason:
    """A code for the ledger, a message for the payload store."""

    code: str
    message: str


@value_type(frozen=True, slots=True)
class Authz:
    """May the principal call the method, and which tenants' and agents' rows may it see."""

    allow: bool
    tenants: tuple[str, ...]
    agents: tuple[str, ...]
    reasons: tuple[PolicyReason, ...]

    @property
    def view_sha256(self) -> str:
        """Stands for the rows in a record: there may be thousands of tenants."""
        return digest({"tenants": sorted(set(self.tenants)), "agents": sorted(set(self.agents))})


@value_type(frozen=True, slots=True)
class Effect:
    """The decision of stage 3; ``effect`` is deny, require_approval, allow or observe.

    ``floor_roles``: an approver must have one of these as well (``kblockd.policy.floor``); policy never sets them.
    """

    effect: str
    count: int
    roles: tuple[str, ...]
    observe_until: str
    reasons: tuple[PolicyReason, ...]
    floor_roles: tuple[str, ...] = ()


@value_type(frozen=True, slots=True)
class Preconditions:
    """Stage 8: do they hold, and does the decision still stand with its approval."""

    ok: bool
    stands: bool
    reasons: tuple[PolicyReason, ...]


@value_type(frozen=True, slots=True)
class VerificationVerdict:
    """Stage 14: expected, tolerated, prohibited or inconclusive."""

    verdict: str
    reasons: tuple[PolicyReason, ...]


@value_type(frozen=True, slots=True)
class RecoveryChoice:
    """Stage 15: retry, rollback, compensation, forward, containment or manual."""

    recovery: str
    reasons: tuple[PolicyReason, ...]


_SHAPES: Final[dict[str, dict[str, Any]]] = {
    AUTHZ: {"allow": bool, "tenants": [str], "agents": [str]},
    DECISION: {
        "effect": {"deny", "require_approval", "allow", "observe"},
        "approvals": {"count": int, "roles": [str]},
        "observe_until": str,
    },
    PRECONDITIONS: {"ok": bool, "stands": bool},
    VERIFICATION: {"verdict": {"expected", "tolerated", "prohibited", "inconclusive"}},
    RECOVERY: {"recovery": {"retry", "rollback", "compensation", "forward", "containment", "manual"}},
}
_REASONS: Final = [{"code": str, "message": str}]

MAX_APPROVALS: Final = 64
"""People who must approve one action. Each decision is a record, and a receipt names them all within 65,535 bytes."""
MAX_ROLES: Final = 64
MAX_WORD: Final = 256  # characters of a role, and of the end of an observe window


def check(entrypoint: str, result: Any) -> Mapping[str, Any]:
    """The result as it is, when its type is exact; raises ``PolicyFailure`` (POLICY_TYPE) naming the path."""
    shape = {**_SHAPES[entrypoint], "reasons": _REASONS}
    fault = _fault(shape, result, "result") or (
        _too_much(result) or _contradiction(result) if entrypoint == DECISION else ""
    )
    if fault:
        raise PolicyFailure(Reason.POLICY_TYPE, f"{entrypoint}: {fault}", entrypoint=entrypoint)
    checked: Mapping[str, Any] = result
    return checked


def _fault(shape: Any, value: Any, at: str) -> str:
    if isinstance(shape, dict):
        return _object_fault(shape, value, at)
    if isinstance(shape, set):
        if isinstance(value, str) and value in shape:
            return ""
        return f"{at} must be one of {', '.join(sorted(shape))}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{at} must be an array"
        return next(filter(None, (_fault(shape[0], v, f"{at}[{i}]") for i, v in enumerate(value))), "")
    if type(value) is not shape or (shape is int and value < 0):
        names = {bool: "a boolean", str: "a string", int: "a non-negative integer"}
        return f"{at} must be {names[shape]}"
    return ""


def _too_much(decision: Mapping[str, Any]) -> str:
    """What no record, no receipt or no answer could hold once the action waits for it, or has been done."""
    approvals = decision["approvals"]
    if approvals["count"] > MAX_APPROVALS:
        return f"result.approvals.count must be at most {MAX_APPROVALS}"
    if len(approvals["roles"]) > MAX_ROLES or any(len(role) > MAX_WORD for role in approvals["roles"]):
        return f"result.approvals.roles must be at most {MAX_ROLES}, of at most {MAX_WORD} characters"
    if len(decision["observe_until"]) > MAX_WORD:
        return f"result.observe_until must have at most {MAX_WORD} characters"
    return ""


def _contradiction(decision: Mapping[str, Any]) -> str:
    """What a decision says and its effect would ignore, so that its author believes in a bound that is not there
    (APV-07). Of a denial nothing is asked: it stays one."""
    effect, until = decision["effect"], decision["observe_until"]
    if effect in ALLOWING and decision["approvals"]["roles"]:
        return f"result.approvals.roles must be empty where result.effect is {effect}: nobody is asked"
    if effect in ("allow", "require_approval") and until:
        return f"result.observe_until must be empty where result.effect is {effect}: only observe ends by itself"
    if effect == "observe":
        try:
            moment(until)
        except ValueError as error:
            return f"result.observe_until {error}"
    return ""


def _object_fault(shape: dict[str, Any], value: Any, at: str) -> str:
    if not isinstance(value, dict):
        return f"{at} must be an object"
    if missing := sorted(set(shape) - set(value)):
        return f"{at}.{missing[0]} is missing"
    if extra := sorted(set(value) - set(shape)):
        return f"{at}.{extra[0]} is not a key of the entry point"
    return next(filter(None, (_fault(shape[k], v, f"{at}.{k}") for k, v in value.items())), "")


def reasons(result: Mapping[str, Any]) -> tuple[PolicyReason, ...]:
    """From a checked result."""
    return tuple(PolicyReason(r["code"], r["message"]) for r in result["reasons"])


def codes(given: Sequence[PolicyReason]) -> list[str]:
    """Reasons as the ledger holds them: words, never sentences; messages go to the payload store."""
    return [identifier(reason.code) for reason in given][:16]


def authz(result: Mapping[str, Any]) -> Authz:
    """From a checked result."""
    return Authz(result["allow"], tuple(result["tenants"]), tuple(result["agents"]), reasons(result))


def decision(result: Mapping[str, Any]) -> Effect:
    """From a checked result."""
    approvals = result["approvals"]
    return Effect(
        result["effect"],
        approvals["count"],
        tuple(approvals["roles"]),
        result["observe_until"],
        reasons(result),
    )


def bounded(effect: Effect, *, past_return: bool) -> Effect:
    """The decision as code lets it stand: past a point of no return policy alone is not enough (R003, R307)."""
    if effect.effect in ALLOWING and (past_return or effect.count > 0):
        # A policy that allows and still counts approvals contradicts itself: the stricter half holds.
        return Effect("require_approval", max(1, effect.count), effect.roles, "", effect.reasons)
    if effect.effect == "require_approval" and effect.count < 1:
        return Effect("require_approval", 1, effect.roles, "", effect.reasons)
    return effect


def preconditions(result: Mapping[str, Any]) -> Preconditions:
    """From a checked result."""
    return Preconditions(result["ok"], result["stands"], reasons(result))


def verification(result: Mapping[str, Any]) -> VerificationVerdict:
    """From a checked result."""
    return VerificationVerdict(result["verdict"], reasons(result))


def recovery(result: Mapping[str, Any]) -> RecoveryChoice:
    """From a checked result."""
    return RecoveryChoice(result["recovery"], reasons(result))
