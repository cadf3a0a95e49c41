"""Digests and keys: SHA-256 over JCS, lowercase hex, each with a version tag (kblockd/domain/digests.md#digests).

``args`` and ``intent`` are foreign: a value, or the ``Text`` of one. The effect key alone is keyed: an HMAC under a
secret of the tenant.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.text import embedded, own


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
    document = {
        "v": "kblockd.call/1",
        "tenant": tenant,
        "agent": agent,
        "environment": environment,
        "operation": operation,
        "tool": tool,
        "target": dict(target),
        "args": embedded(args),
    }
    return sha256_hex(own(document))


def caller_key(*, tenant: str, agent: str, key: str) -> str:
    """The client's deduplication token, scoped to tenant and agent (C9); never sent upstream."""
    return sha256_hex(own({"v": "kblockd.idem/1", "tenant": tenant, "agent": agent, "key": key}))


def twin(*, tenant: str, upstream: str, tool: str, target: Mapping[str, str], intent: Any) -> str:
    """One deed, whoever asks and however it is worded (C10)."""
    document = {
        "v": "kblockd.twin/1",
        "tenant": tenant,
        "upstream": upstream,
        "tool": tool,
        "target": dict(target),
        "intent": embedded(intent),
    }
    return sha256_hex(own(document))


def effect_key(
    secret: bytes,
    *,
    tenant: str,
    call: str,
    environment: str,
    operation: str,
    tool: str,
    target: Mapping[str, str],
    args_sha256: str,
    approval: int,
    workflow: str = "",
    run: str = "",
    callsite: str = "",
) -> str:
    """What the upstream recognises the deed by: the same for every attempt, lowercase hex (R128, R129, R135).

    ``secret`` is the tenant's, so that nobody reads arguments back out of a key by trying values (EVI-14). ``call`` is
    the caller key's digest, or the execution's random id for a call without a key. With a caller key nothing random
    and no version enters, so a ledger that was restored from a copy derives the same key for the same call, and an
    idempotent upstream refuses the second deed (EVI-15). ``approval`` counts the consumptions of the call from 1.
    """
    document = {
        "v": "kblockd.effect/2",
        "tenant": tenant,
        "workflow": workflow,
        "run": run,
        "call": call,
        "callsite": callsite,
        "environment": environment,
        "operation": operation,
        "tool": tool,
        "target": dict(target),
        "argsSha256": args_sha256,
        "approval": str(approval),
    }
    return hmac.new(secret, own(document), hashlib.sha256).hexdigest()
