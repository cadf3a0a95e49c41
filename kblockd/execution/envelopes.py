"""The envelope as a document: what policies see as ``input.envelope``, and what a restart reads back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain.clock import parse_rfc3339, rfc3339
from kblockd.domain.envelope import Envelope, TargetPin


def document(envelope: Envelope) -> dict[str, Any]:
    """Everything but the arguments and the caller key; absent is "" or null, as the policies' schema says."""
    target, binding = envelope.target, envelope.binding
    return {
        "schema_version": envelope.schema_version,
        "run_id": envelope.run_id,
        "action_id": envelope.action_id,
        "requester": envelope.requester,
        "agent": envelope.agent,
        "tenant": envelope.tenant,
        "organization": envelope.organization,
        "environment": envelope.environment,
        "operation": envelope.operation,
        "target": {"type": target.type, "id": target.id, "version": target.version},
        "binding": {
            "upstream": binding.upstream,
            "server_version": binding.server_version,
            "tool": binding.tool,
            "definition_sha256": binding.definition_sha256,
        },
        "policy_revision": envelope.policy_revision,
        "approval_id": envelope.approval_id,
        "approval_expires_at": rfc3339(envelope.approval_expires_at) if envelope.approval_expires_at else "",
        "preconditions": envelope.preconditions or {},
        "postconditions": envelope.postconditions or {},
        "request_timeout_ms": round(envelope.request_timeout * 1000) if envelope.request_timeout else 0,
        "deadline": rfc3339(envelope.deadline) if envelope.deadline else "",
        "maximum_attempts": envelope.maximum_attempts,
        "cancellation": envelope.cancellation,
        "compensation_ref": envelope.compensation_ref,
        "evidence": list(envelope.evidence),
    }


def restore(stored: Mapping[str, Any]) -> Envelope:
    """The envelope behind a stored document, as far as a run needs it: everything but arguments and caller key."""
    timeout = stored["request_timeout_ms"]
    return Envelope(
        schema_version=stored["schema_version"],
        environment=stored["environment"],
        operation=stored["operation"],
        target=TargetPin(**stored["target"]),
        arguments_json=b"",
        action_id=stored["action_id"],
        preconditions=stored["preconditions"],
        postconditions=stored["postconditions"],
        request_timeout=timeout / 1000 if timeout else None,
        deadline=parse_rfc3339(stored["deadline"]) if stored["deadline"] else None,
        maximum_attempts=stored["maximum_attempts"],
        cancellation=stored["cancellation"],
        evidence=tuple(stored["evidence"]),
    )
