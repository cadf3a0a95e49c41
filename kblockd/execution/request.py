"""What an approver is asked: the request that stage 3 records, with the target's version as it is read just then.

One read, and only once policy (and the approval floor) ask for an approval that the agent may still have: a call that
is denied reads nothing. The version is shown, covered by presented_sha256, kept on the approval, and compared at stage
8 (APV-05). A contract that declares ``reads.snapshot.version`` demands a current version (``contract.checks``), so one
that cannot be read refuses the request: nobody is asked for an approval that could never be used.
"""

from __future__ import annotations

from kblockd.admission.offload import offload, size_of
from kblockd.approvals.presentation import Demand, Subject, Version, present, presented_sha256
from kblockd.domain.clock import rfc3339
from kblockd.domain.contract import resolve
from kblockd.domain.errors import FailedPrecondition, Left, Reason, ResourceExhausted
from kblockd.domain.ledger import identifier, rows
from kblockd.domain.ledger.approvals import ApprovalRequested
from kblockd.execution import pins
from kblockd.execution.action import Action
from kblockd.execution.journal import Entry, payload
from kblockd.execution.parts import Parts
from kblockd.execution.reading import read_tool, unread, version_at
from kblockd.policy.floor import Ruling
from kblockd.store.protocol import Payload
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent

READ_SECONDS = 10.0


async def target_version(parts: Parts, action: Action, trace: Trace) -> Version:
    """As the authority has it now.

    Raises ``ResourceExhausted`` for an agent with too many open approvals, before anything is read; ``Unavailable`` or
    ``FailedPrecondition`` for a version that the contract demands and that cannot be read, or that the caller names
    otherwise: nobody is asked about an action that stage 8 would refuse.
    """
    pending = await parts.store.get(rows.pending(action.tenant, action.agent))
    if pending is not None and pending[1].count >= parts.limits.pending_approvals_per_agent:
        raise pending_limit(parts)
    wanted = action.contract.reads.snapshot
    if wanted is None or not wanted.version:
        return Version(note="the contract reads none")
    upstream = parts.upstreams[action.upstream]
    if not upstream.breaker.allow():  # requests must not keep a failing upstream busy
        raise unread(Outcome(Sent.NOT_SENT, code="BREAKER_OPEN"), Left.NOBODY_ASKED)
    document = {"args": action.args, "execution_id": action.execution_id}
    arguments = resolve(wanted.arguments, document)
    outcome = await read_tool(
        parts, upstream, wanted.tool, arguments, trace, timeout_seconds=READ_SECONDS, numbers=wanted.numbers
    )
    if outcome.sent is not Sent.ANSWERED or outcome.is_error:
        raise unread(outcome, Left.NOBODY_ASKED)
    found = version_at(wanted.version, outcome.output)
    if not found:
        raise _unnamed()
    pins.check_version(action.envelope["target"]["version"], found)
    return Version(identifier(found))


def pending_limit(parts: Parts) -> ResourceExhausted:
    """The agent has as many open approvals as it may."""
    return ResourceExhausted(
        Reason.PENDING_LIMIT,
        f"{parts.limits.pending_approvals_per_agent} approvals of this agent are pending already. "
        "Nothing was recorded.",
        retryable=True,
        next_step="wait until some of them are decided",
    )


async def request(
    parts: Parts, action: Action, owner: str, ruling: Ruling, version: Version
) -> tuple[list[Entry], Payload]:
    """The record approval.requested and the presentation; ``owner`` is the requester's."""
    approval_id = parts.ids.new("apr")
    not_before = rfc3339(parts.clock.now())
    subject = _subject(action, ruling, version)
    work = (_presented, parts, subject, approval_id, not_before, action.not_after)
    shown_sha256, shown, read_sha256 = await offload(size_of(action.args), *work)
    effect = ruling.stands
    body = ApprovalRequested(
        approval_id=approval_id,
        action_sha256=action.action_sha256,
        presented_sha256=read_sha256,
        presentation_payload=shown_sha256,
        count=effect.count,
        roles=tuple(effect.roles),
        floor_roles=tuple(effect.floor_roles),
        raised=ruling.is_raised,
        target_version=version.read,
        requester=action.requester,
        owner=owner,
        agent=action.agent,
        not_before=not_before,
        not_after=action.not_after,
    )
    return [Entry(body)], shown


def _presented(
    parts: Parts, subject: Subject, approval_id: str, not_before: str, not_after: str
) -> tuple[str, Payload, str]:
    """The presentation's digest and payload, and the digest that a decision must carry."""
    presentation = present(subject, approval_id, not_before, not_after)
    return *payload(parts, subject.execution_id, "presentation", presentation), presented_sha256(presentation)


def _subject(action: Action, ruling: Ruling, version: Version) -> Subject:
    effect = ruling.stands
    return Subject(
        execution_id=action.execution_id,
        action_sha256=action.action_sha256,
        tenant=action.tenant,
        requester=action.requester,
        agent=action.agent,
        operation=action.operation,
        environment=action.environment,
        contract=action.contract,
        args=action.args,
        intent=action.intent,
        target=action.target.document(),
        version=version,
        demand=Demand(effect.count, effect.roles, effect.floor_roles, ruling.words()),
    )


def _unnamed() -> FailedPrecondition:
    return FailedPrecondition(
        Reason.PRECONDITION_FAILED,
        "the read of the target names no version, and the contract demands one (reads.snapshot.version). Nobody was "
        "asked; nothing was executed or consumed.",
        next_step="the operator must correct the contract's pointer, or the upstream must answer with a version",
    )
