"""Digests and keys: SHA-256 over JCS, lowercase hex, each with a version tag (interfaces.md section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain.canonical import digest


def action_document(
    *,
    tenant: str,
    agent: str,
    environment: str,
    operation: str,
    upstream: str,
    origin: str,
    tool: str,
    tool_version: str,
    definition_sha256: str,
    contract_sha256: str,
    target: Mapping[str, str],
    args: Any,
    limits: Mapping[str, Any],
    credential_ref: str,
    salt: str,
) -> dict[str, Any]:
    """Everything that is agreed to; its digest is the action digest, and approvals, results and receipts bind it."""
    return {
        "v": "kblockd.action/1",
        "tenant": tenant,
        "agent": agent,
        "environment": environment,
        "operation": operation,
        "upstream": upstream,
        "origin": origin,
        "tool": tool,
        "toolVersion": tool_version,
        "toolDefinitionSha256": definition_sha256,
        "contractSha256": contract_sha256,
        "target": dict(target),
        "args": args,
        "limits": dict(limits),
        "credentialRef": credential_ref,
        "salt": salt,
    }


def fingerprint(
    *, tenant: str, agent: str, environment: str, operation: str, tool: str, target: Mapping[str, str], args: Any
) -> str:
    """The identical call (R067): same agent, tool, target and arguments; nothing volatile (IDM-13)."""
    return digest(
        {
            "v": "kblockd.call/1",
            "tenant": tenant,
            "agent": agent,
            "environment": environment,
            "operation": operation,
            "tool": tool,
            "target": dict(target),
            "args": args,
        }
    )


def caller_key(*, tenant: str, agent: str, key: str) -> str:
    """The client's deduplication token, scoped to tenant and agent (C9); never sent upstream."""
    return digest({"v": "kblockd.idem/1", "tenant": tenant, "agent": agent, "key": key})


def twin(*, tenant: str, upstream: str, tool: str, target: Mapping[str, str], intent: Any) -> str:
    """One deed, whoever asks and however it is worded (C10)."""
    return digest(
        {
            "v": "kblockd.twin/1",
            "tenant": tenant,
            "upstream": upstream,
            "tool": tool,
            "target": dict(target),
            "intent": intent,
        }
    )


def effect_key(
    *,
    tenant: str,
    execution: str,
    environment: str,
    operation: str,
    tool: str,
    target: Mapping[str, str],
    args_sha256: str,
    approval: str,
    workflow: str = "",
    run: str = "",
    callsite: str = "",
) -> str:
    """Sent upstream, the same for every attempt of one execution (R128, R129, R135)."""
    return digest(
        {
            "v": "kblockd.effect/1",
            "tenant": tenant,
            "workflow": workflow,
            "run": run,
            "execution": execution,
            "callsite": callsite,
            "environment": environment,
            "operation": operation,
            "tool": tool,
            "target": dict(target),
            "argsSha256": args_sha256,
            "approval": approval,
        }
    )
