"""Pins: what an envelope names must equal what the daemon has now, else FAILED_PRECONDITION that names the field.

Source: proto/kblock/v1/types.proto; R030 to R039.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.clock import rfc3339
from kblockd.domain.envelope import Envelope
from kblockd.domain.errors import FailedPrecondition, Left, Reason
from kblockd.domain.ledger.rows import ApprovalRow
from kblockd.domain.principal import Principal
from kblockd.execution.action import Action

_VERSION: Final = re.compile(r"sha256:[0-9a-f]{64}|[vW/]{0,2}\"?[0-9A-Fa-f.:+TZ-]{1,64}\"?")


def check_identity(envelope: Envelope, caller: Principal) -> None:
    """Identity never comes from the envelope; these are pins against the authenticated principal."""
    _pin("envelope.requester", envelope.requester, caller.id)
    _pin("envelope.agent", envelope.agent, caller.id)
    _pin("envelope.tenant", envelope.tenant, caller.tenant)
    _pin("envelope.organization", envelope.organization, caller.organization)


def check_binding(envelope: Envelope, *, upstream: str, tool: str) -> None:
    """Upstream and tool as the contract names them now."""
    _pin("envelope.binding.upstream", envelope.binding.upstream, upstream)
    _pin("envelope.binding.tool", envelope.binding.tool, tool)


def check_description(envelope: Envelope, *, server_version: str, definition_sha256: str) -> None:
    """What the upstream said of itself just now."""
    given = envelope.binding.server_version
    _pin("envelope.binding.server_version", given, server_version, version_words(server_version))
    _pin("envelope.binding.definition_sha256", envelope.binding.definition_sha256, definition_sha256)


def check_policy(envelope: Envelope, revision: str) -> None:
    """The policy revision in force."""
    _pin("envelope.policy_revision", envelope.policy_revision, revision)


def check_approval(envelope: Envelope, approval: ApprovalRow | None) -> None:
    """An approval pin holds only for the approval of this very execution (APR-01)."""
    if not envelope.approval_id and envelope.approval_expires_at is None:
        return
    _pin("envelope.approval_id", envelope.approval_id, approval.approval_id if approval else "")
    if envelope.approval_expires_at is not None:
        expires = approval.not_after if approval else ""
        _pin("envelope.approval_expires_at", rfc3339(envelope.approval_expires_at), expires)


def check_version(named: str, now: str, execution_id: str = "") -> None:
    """The target's version as the caller names it ("": unchecked) against the one that was just read."""
    if named and named != now:
        raise FailedPrecondition(
            Reason.PIN_MISMATCH,
            f"envelope.target.version is {named!r}, but the target is at {version_words(now)} now.",
            Left.APPROVED if execution_id else Left.NOTHING,
            next_step="read the target again and plan the action anew",
            execution_id=execution_id,
        )


def version_words(version: str) -> str:
    """An upstream's version as a caller may read it: a number, a date or a hexadecimal tag as it is, of any other text
    the digest. An upstream's words reach a caller only through the contract's ``reveal``."""
    if not version:
        return "no version"
    if _VERSION.fullmatch(version):
        return repr(version)
    return f"a version with the digest sha256:{sha256_hex(version.encode('utf-8', 'surrogatepass'))[:16]}"


def repeated(envelope: Envelope, action: Action) -> Action:
    """The action under the pins and the deadline of the call that repeats it: what was decided on, read at the version
    it names, until the earlier of both deadlines.

    Neither is part of the identical call, so a repeat may bring others than the first call had.
    """
    check_description(envelope, server_version=action.tool_version, definition_sha256=action.definition_sha256)
    action = dataclasses.replace(action, limits=action.limits.until(envelope.deadline))
    target = action.envelope["target"]
    if not envelope.target.version:
        return action
    if target["version"]:
        _pin("envelope.target.version", envelope.target.version, target["version"])
    document = {**action.envelope, "target": {**target, "version": envelope.target.version}}
    return dataclasses.replace(action, envelope=document)


def _pin(field: str, given: str, now: str, words: str = "") -> None:
    """``words`` is ``now`` as a caller may read it, where an upstream chose it."""
    if given and given != now:
        raise FailedPrecondition(
            Reason.PIN_MISMATCH,
            f"{field} is {given!r}, but the daemon has {words or repr(now)} now. Nothing was executed or consumed.",
            next_step=f"leave {field} out, or plan the action again with the current value",
        )
