"""What an approver reads, and its digest: the decision must carry both (R040, R306, ApprovalService.Decide)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kblockd.approvals.quoting import named, quote, warnings
from kblockd.domain.canonical import canonical, digest
from kblockd.domain.contract import ActionContract
from kblockd.domain.contract.checks import PLACEHOLDER

FORMS: Final = ("kblockd.presentation/1", "kblockd.presentation/2")
"""As stored by releases up to this one; all of them are shown."""


@dataclass(frozen=True, slots=True)
class Version:
    """The target's version as it was read when the approval was asked for; without one ``note`` says why."""

    read: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """How many distinct owners must approve, with one of ``roles`` and one of ``floor_roles`` (empty: any).

    ``raised`` says how the approval floor raised what policy asked for, "" where it did not.
    """

    count: int
    roles: Sequence[str]
    floor_roles: Sequence[str] = ()
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The action that somebody is asked about."""

    execution_id: str
    action_sha256: str
    tenant: str
    requester: str
    agent: str
    operation: str
    environment: str
    contract: ActionContract
    args: Any
    intent: Any
    target: Mapping[str, str]
    version: Version
    demand: Demand


def present(subject: Subject, approval_id: str, not_before: str, not_after: str) -> dict[str, Any]:
    """The presentation as stored and shown; ``digest`` of it is presented_sha256. Intent is never redacted."""
    contract, demand = subject.contract, subject.demand
    return {
        "v": FORMS[-1],
        "approval_id": approval_id,
        "execution_id": subject.execution_id,
        "action_sha256": subject.action_sha256,
        "summary": summary(contract.summary, subject.intent, subject.target),
        "arguments": subject.args,
        "requester": subject.requester,
        "agent": subject.agent,
        "operation": subject.operation,
        "environment": subject.environment,
        "risk_tier": contract.action.risk_tier,
        "upstream": contract.tool.upstream,
        "tool": contract.tool.name,
        "target": dict(subject.target),
        "target_version": subject.version.read,
        "target_version_note": subject.version.note,
        "approvals": {
            "count": demand.count,
            "roles": list(demand.roles),
            "floor_roles": list(demand.floor_roles),
            "raised": demand.raised,
        },
        "intent": subject.intent,
        "side_effects": list(contract.side_effects),
        "not_before": not_before,
        "not_after": not_after,
        "warnings": _warnings(subject),
    }


def presented_sha256(presentation: Mapping[str, Any]) -> str:
    """Over the canonical form of everything that the approver reads."""
    return digest(dict(presentation))


def summary(template: str, intent: Mapping[str, Any], target: Mapping[str, str]) -> str:
    """The contract's sentence with each foreign value quoted, bounded and escaped."""
    values = {f"target.{key}": quote(value) for key, value in target.items()}
    values |= {f"intent.{key}": quote(value) for key, value in intent.items()}
    return PLACEHOLDER.sub(lambda match: values.get(match[1], ""), template)


def _warnings(subject: Subject) -> list[str]:
    """What identifies the deed comes first: junk in the arguments cannot push it out."""
    found = [*named(dict(subject.target), "target"), *named(subject.intent, "intent"), *warnings(subject.args)]
    if subject.contract.point_of_no_return or subject.contract.recovery.irreversible_step:
        found.append("this action cannot be undone once it is done")
    if len(canonical(subject.args)) > 4096:
        found.append("the arguments are long; read them whole before you decide")
    return found
