"""The documents that policies are asked about (config/policy/README.md#input), and what a question leaves on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.clock import rfc3339
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ApprovalRow
from kblockd.domain.ledger.values import DecisionFields
from kblockd.domain.principal import Principal
from kblockd.domain.values import value_type
from kblockd.execution.action import Action
from kblockd.execution.parts import Parts
from kblockd.policy import inputs
from kblockd.policy.engine import Decision, PolicyFailure
from kblockd.store.protocol import Payload

NOT_ASKED: Final[DecisionFields] = {
    "policy_engine": "",
    "policy_revision": "",
    "decision_id": "",
    "input_sha256": "",
    "input_payload": "",
    "policy_us": 0,
    "reasons": (),
}
"""The fields of a decision in a record of a stage that came to its end without one."""


@value_type(frozen=True, slots=True)
class Asked:
    """A question and its answer; ``codes`` are the words of its reasons."""

    document: Mapping[str, Any]
    decision: Decision
    codes: tuple[str, ...]

    def on_record(
        self, parts: Parts, execution_id: str, *, snapshot: str = "", read: str = "", output: str = ""
    ) -> tuple[DecisionFields, list[Payload]]:
        """The decision as a record holds it, and its input for the same commit, where inputs are kept.

        The digests name the payloads of this execution that hold parts of the input (``inputs.kept``). Without an
        execution nothing else holds them.
        """
        decision = self.decision
        fields: DecisionFields = {
            "policy_engine": decision.engine,
            "policy_revision": decision.revision,
            "decision_id": decision.decision_id,
            "input_sha256": decision.input_sha256,
            "input_payload": "",
            "policy_us": decision.microseconds,
            "reasons": self.codes,
        }
        if not parts.keep_inputs:
            return fields, []
        parts_elsewhere = {"snapshot": snapshot, "read": read, "output": output}
        data = inputs.kept(self.document, **parts_elsewhere) if execution_id else inputs.whole(self.document)
        digest = sha256_hex(data)
        return {**fields, "input_payload": digest}, [Payload(rows.policy_input(execution_id, digest), data)]


def unanswered(failure: PolicyFailure) -> DecisionFields:
    """The same fields for a question that got no decision."""
    return {**NOT_ASKED, "policy_revision": failure.revision, "reasons": (str(failure.reason),)}


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
    about = inputs.subject(
        operation=action.operation,
        risk_tier=contract.action.risk_tier,
        environment=action.environment,
        tool=action.tool,
        tool_version=action.tool_version,
        target=action.target.document(),
        intent=action.intent,
        action_sha256=action.action_sha256,
        envelope=action.envelope,
        args=action.args,
        contract=contract.document,
        contract_sha256=contract.sha256,
        upstream=action.upstream,
        origin=action.origin,
        definition_sha256=action.definition_sha256,
    )
    return inputs.document(
        about,
        now=rfc3339(parts.clock.now()),
        principal=caller.document(),
        approval=approval,
        snapshot=snapshot,
        read=read,
        outcome=outcome,
        finding=finding,
    )


def approval_document(row: ApprovalRow, principals: Mapping[str, Principal], *, again: bool) -> dict[str, Any]:
    """An approval as policies see it; approvers with the roles that they have now.

    On the way back in (9r) it is used, by this very execution: what policy is asked is whether it would still do.
    """
    approvers = [
        {
            "id": decision.approver,
            "owner": decision.owner,
            "roles": list(principals[decision.approver].roles) if decision.approver in principals else [],
        }
        for decision in row.decisions
        if decision.verdict == "approve"
    ]
    return {
        "id": row.approval_id,
        "state": "approved" if again and row.state == "used" else row.state,
        "count": row.count,
        "roles": list(row.roles),
        "approvers": approvers,
        "not_before": row.not_before,
        "not_after": row.not_after,
    }


def requester(parts: Parts, action: Action) -> Principal:
    """The requester as configured now; one that is gone since the consumption is still named by its id."""
    configured = parts.principals.get(action.requester)
    return configured or Principal(action.requester, "unknown", action.tenant, "")


def messages(reasons: Sequence[Any]) -> list[dict[str, str]]:
    """Codes with messages, for the payload store, bounded."""
    return [{"code": r.code[:64], "message": r.message[:1024]} for r in reasons][:16]
