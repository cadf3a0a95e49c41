"""The documents that policies are asked about (interfaces.md section 4). One shape for all stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kblockd.domain.clock import rfc3339
from kblockd.domain.principal import Principal
from kblockd.domain.records import identifier
from kblockd.execution.action import Action
from kblockd.execution.parts import Parts
from kblockd.store.protocol import Row

METHOD: Final = "/kblock.v1.ExecutionService/Execute"


def document(
    parts: Parts,
    caller: Principal,
    action: Action,
    *,
    approval: Mapping[str, Any] | None = None,
    snapshot: Any = None,
    read: Any = None,
    outcome: Mapping[str, Any] | None = None,
    finding: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``input`` for the stage's entry point; what is not known yet is null."""
    contract = action.contract
    return {
        "v": "kblockd.policy/1",
        "now": rfc3339(parts.clock.now()),
        "principal": caller.document(),
        "method": METHOD,
        "envelope": dict(action.envelope),
        "action": {
            "type": action.operation,
            "risk_tier": contract.action.risk_tier,
            "environment": action.environment,
            "tool": action.tool,
            "tool_version": action.tool_version,
            "target": dict(action.target),
            "intent": action.intent,
            "digest": action.action_sha256,
        },
        "args": action.args,
        "contract": contract.document,
        "binding": {
            "upstream": action.upstream,
            "origin": action.origin,
            "definition_sha256": action.definition_sha256,
            "contract_sha256": contract.sha256,
        },
        "approval": dict(approval) if approval is not None else None,
        "snapshot": snapshot,
        "read": read,
        "outcome": dict(outcome) if outcome is not None else None,
        "finding": dict(finding) if finding is not None else None,
    }


def approval_document(row: Row, principals: Mapping[str, Principal], *, again: bool) -> dict[str, Any]:
    """An approval as policies see it; approvers with the roles that they have now.

    On the way back in (9r) it is used, by this very execution: what policy is asked is whether it would still do.
    """
    approvers = [
        {
            "id": decision["approver"],
            "owner": decision["owner"],
            "roles": list(principals[decision["approver"]].roles) if decision["approver"] in principals else [],
        }
        for decision in row["decisions"]
        if decision["verdict"] == "approve"
    ]
    return {
        "id": row["approval_id"],
        "state": "approved" if again and row["state"] == "used" else row["state"],
        "count": row["count"],
        "roles": list(row["roles"]),
        "approvers": approvers,
        "not_before": row["not_before"],
        "not_after": row["not_after"],
    }


def requester(parts: Parts, action: Action) -> Principal:
    """The requester as configured now; one that is gone since the consumption is still named by its id."""
    configured = parts.principals.get(action.requester)
    return configured or Principal(action.requester, "unknown", action.tenant, "")


def codes(reasons: Sequence[Any]) -> list[str]:
    """The codes of a decision for the ledger: words, never sentences; messages go to the payload store."""
    return [identifier(str(reason.code)) for reason in reasons][:16]


def messages(reasons: Sequence[Any]) -> list[dict[str, str]]:
    """Codes with messages, for the payload store, bounded."""
    return [{"code": r.code[:64], "message": r.message[:1024]} for r in reasons][:16]
