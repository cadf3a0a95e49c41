"""Stage 3: pins, a fresh description of the tool, then Rego: deny, require_approval, allow, observe.

The commit proposes the execution, if nobody has bound the caller key or the open call meanwhile. A denial is
recorded whole, so that a repeat gets the same answer at once (IDM-11). An engine that fails closes nothing.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kblockd.admission.offload import offload, size_of
from kblockd.approvals.presentation import Version
from kblockd.domain import keys
from kblockd.domain.canonical import canonical, digest, sha256_hex
from kblockd.domain.clock import moment, rfc3339
from kblockd.domain.contract import ActionContract
from kblockd.domain.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    KblockError,
    Left,
    Reason,
    Unavailable,
)
from kblockd.domain.ledger import identifier, rows
from kblockd.domain.ledger.closing import ExecutionRejected
from kblockd.domain.ledger.proposal import ExecutionProposed, RefusalDetails
from kblockd.domain.ledger.values import Target
from kblockd.domain.stages import Stage
from kblockd.domain.text import own, partly
from kblockd.domain.values import replaced, value_type
from kblockd.execution import envelopes, pins, questions, refusals
from kblockd.execution.action import Action, Admitted, Run
from kblockd.execution.describe import Described, check_pin, describe
from kblockd.execution.journal import Entry, Journal, payload
from kblockd.execution.load import STORED_CALL
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.execution.replay import Existing, existing
from kblockd.execution.request import pending_limit, request, target_version
from kblockd.execution.stages import stage
from kblockd.policy.deciding import Decision, PolicyFailure, entrypoints, inputs
from kblockd.policy.deciding.entrypoints import ALLOWING, Effect
from kblockd.policy.deciding.floor import Ruling, ruled
from kblockd.store.protocol import Absent, AtMost, Condition, Conflict, Payload, Ticket
from kblockd.upstream.catalog import Upstream

KEPT_CONDITIONS: Final = 4096
"""Bytes of pre- and postconditions that are kept of a denied call."""
_log: Final = logging.getLogger(__name__)


@value_type(frozen=True, slots=True)
class Decided:
    """What was decided and recorded: a run that may go on, or an execution that waits or is closed."""

    execution_id: str
    run: Run | None


@stage(Stage.DECIDE)
async def decide(parts: Parts, admitted: Admitted) -> Decided | Existing:
    """``Existing`` when another call bound the same key first and it is the same call.

    Raises ``FailedPrecondition`` (pins, UNPINNED_TOOL, TOOL_CHANGED, OBSERVE_ENDED), ``Unavailable`` (policy,
    upstream, a version that an approver must see), ``ResourceExhausted`` (pending approvals), ``AlreadyExists`` and
    ``Aborted`` (lost a race).
    """
    contract = admitted.contract
    check_deadline(parts, admitted.limits.deadline)
    described = await describe(parts, contract, admitted.trace)
    check_pin(parts, contract.tool.upstream, contract.tool.name, described)
    pins.check_description(
        admitted.envelope,
        server_version=described.server_version,
        definition_sha256=described.definition_sha256,
    )
    pins.check_approval(admitted.envelope, None)
    pins.check_policy(admitted.envelope, parts.engine.status().revision)
    action, salt = await offload(len(admitted.args.data), _action, parts, admitted, described)
    document = questions.document(parts, admitted.caller, action)
    decision = await ask(parts, entrypoints.DECISION, document)
    ruling = ruling_of(parts, contract, decision)
    effect = ruling.stands
    asked = Asked(document, decision, tuple(entrypoints.codes(effect.reasons)))
    try:
        pins.check_policy(admitted.envelope, decision.revision)
        check_observed(parts, effect.effect, effect.observe_until)
        asks = effect.effect == "require_approval"
        version = await target_version(parts, action, admitted.trace) if asks else Version()
        return await _propose(parts, admitted, action, salt, asked, ruling, version, described.at)
    except (FailedPrecondition, Unavailable) as refusal:
        await _refused(parts, admitted, refusal, asked, ruling)
        raise


async def ask(parts: Parts, entrypoint: str, document: dict[str, Any]) -> Decision:
    """One question; a failure means deny, with the reason that says which, and whether a repeat can change it."""
    try:
        return await parts.engine.evaluate(entrypoint, document)
    except PolicyFailure as failure:
        _log.warning("%s: %s: %s", entrypoint, failure.reason, failure.message[:1000])
        raise _undecided(failure) from None


def _undecided(failure: PolicyFailure) -> KblockError:
    """Raised as UNAVAILABLE, or for a rule that fails on this very input as FAILED_PRECONDITION (AGT-08). The engine's
    own words are for the log: they may hold the text of a policy."""
    what = f"policy gave no decision ({failure.reason})."
    if failure.passing:
        step = "repeat the identical call when `kblockd policy status` is well"
        return Unavailable(failure.reason, what, Left.NOTHING, retryable=True, next_step=step)
    step = "a repeat gets the same answer: correct the arguments, or tell the operator, whose policy must take them"
    refusal = FailedPrecondition if failure.reason is Reason.POLICY_ERROR else Unavailable
    return refusal(failure.reason, what, Left.NOTHING, next_step=step)


def check_deadline(parts: Parts, deadline: dt.datetime | None, execution_id: str = "") -> None:
    """Raises ``FailedPrecondition`` (DEADLINE_PASSED) once the envelope's deadline has passed (R025)."""
    if deadline is not None and parts.clock.now() >= deadline:
        raise FailedPrecondition(
            Reason.DEADLINE_PASSED,
            "envelope.deadline has passed.",
            Left.NO_ATTEMPT,
            next_step="plan the action again",
            execution_id=execution_id,
        )


def check_observed(parts: Parts, effect: str, observe_until: str) -> None:
    """Raises ``FailedPrecondition``: OBSERVE_ENDED once the observe window has ended (R115), POLICY_TYPE for an end
    that is not a time (APV-07)."""
    if effect != "observe":
        return
    try:
        ends = moment(observe_until)
    except ValueError as error:  # of a decision that was recorded before entrypoints.check refused such a time
        raise FailedPrecondition(
            Reason.POLICY_TYPE,
            f"the end of the observe window, {observe_until!r}, {error}.",
            Left.NOTHING,
            next_step="policy must name it in RFC 3339, such as 2027-01-01T00:00:00Z",
        ) from None
    if parts.clock.now() >= ends:
        raise FailedPrecondition(
            Reason.OBSERVE_ENDED,
            f"the observe window of this action ended ({observe_until}).",
            Left.NOTHING,
            next_step="policy must allow the action or ask for an approval",
        )


async def _refused(parts: Parts, admitted: Admitted, refusal: KblockError, asked: Asked, ruling: Ruling) -> None:
    """What was decided cannot stand; there is no execution, so the decision is kept with the refusal.

    A bound that is met (``ResourceExhausted``) leaves nothing: it must not be a way to fill the ledger (R174). Nor
    does a lost race: the winner's decision about the identical call is on record.
    """
    more = decided(ruling)
    caller = admitted.caller
    await refusals.of_decision(
        parts,
        refusal,
        asked,
        tenant=caller.tenant,
        stage=Stage.DECIDE,
        principal=caller.id,
        method=inputs.METHOD,
        more=more,
    )


def decided(ruling: Ruling) -> RefusalDetails:
    """A decision as the record of a refusal holds it."""
    effect = ruling.stands
    found = RefusalDetails(
        effect=effect.effect, observe_until=identifier(effect.observe_until), floor=ruling.on_record()
    )
    if effect.effect != "require_approval":  # the rest says nothing then, and nothing has bounded it
        return found
    return {**found, "count": effect.count, "roles": tuple(effect.roles), "floor_roles": tuple(effect.floor_roles)}


def ruling_of(parts: Parts, contract: ActionContract, decision: Decision) -> Ruling:
    """Past a point of no return policy alone is not enough (R003, R307), and the approval floor stands under it."""
    effect, tier = entrypoints.decision(decision.result), contract.action.risk_tier
    return ruled(effect, tier, parts.floors, past_return=contract.requires_approval)


def _action(parts: Parts, admitted: Admitted, described: Described) -> tuple[Action, str]:
    contract, caller = admitted.contract, admitted.caller
    upstream = parts.upstreams[contract.tool.upstream]
    salt = parts.ids.salt()
    document = keys.action_document(
        tenant=caller.tenant,
        agent=caller.id,
        environment=contract.environment,
        operation=contract.operation,
        upstream=contract.tool.upstream,
        origin=str(upstream.origin),
        tool=contract.tool.name,
        tool_version=described.server_version,
        definition_sha256=described.definition_sha256,
        contract_sha256=contract.sha256,
        target=admitted.target,
        args=admitted.args.json,
        limits=admitted.limits.as_json(),
        credential_ref=credential_ref(upstream),
        salt=salt,
    )
    action = Action(
        execution_id=parts.ids.new("exe"),
        tenant=caller.tenant,
        agent=caller.id,
        requester=caller.id,
        environment=contract.environment,
        operation=contract.operation,
        contract=contract,
        envelope=envelopes.document(admitted.envelope),
        args=admitted.args.value,
        args_sha256=admitted.args.sha256,
        target=Target(**admitted.target),
        intent=admitted.intent,
        twin=admitted.twin,
        fingerprint=admitted.fingerprint,
        caller_key=admitted.caller_key,
        limits=admitted.limits,
        tool_version=described.server_version,
        definition_sha256=described.definition_sha256,
        action_sha256=sha256_hex(own(document)),
        origin=str(upstream.origin),
        effect="",
        observe_until="",
        not_after=rfc3339(_not_after(parts, admitted)),
    )
    return action, salt


def _not_after(parts: Parts, admitted: Admitted) -> dt.datetime:
    """Until when the action may wait: the approval's own term, or the envelope's deadline where that is earlier. An
    approval that could no longer be used must not be shown to anybody as open (APV-03)."""
    term = parts.clock.now() + dt.timedelta(seconds=parts.clocks.approval_ttl_seconds)
    deadline = admitted.limits.deadline
    return term if deadline is None else min(term, deadline)


def place_sha256(upstream: Upstream) -> str:
    """How and where the upstream is reached: by the origin alone an approved action could go to another path (R074)."""
    return _place_sha256(upstream.config.adapter, upstream.config.url)


@lru_cache(maxsize=256)
def _place_sha256(adapter: str, url: str) -> str:
    return digest({"adapter": adapter, "url": url})


def credential_ref(upstream: Upstream) -> str:
    """Names the identity, never the place or the value of its secret."""
    return "none" if upstream.config.credentials.write == "none" else f"{upstream.name}/write"


async def _propose(
    parts: Parts,
    admitted: Admitted,
    action: Action,
    salt: str,
    asked: Asked,
    ruling: Ruling,
    version: Version,
    described_at: dt.datetime,
) -> Decided | Existing:
    effect = ruling.stands
    journal = Journal(action.execution_id, action.tenant, admitted.trace)
    size = len(admitted.args.data) + size_of(action.envelope)
    entries, payloads = await offload(size, _proposal, parts, admitted, action, salt, asked, ruling)
    conditions: list[Condition] = [
        Absent(rows.caller_key(action.caller_key) if action.caller_key else rows.open_call(action.fingerprint))
    ]
    if effect.effect == "require_approval":
        limit = parts.limits.pending_approvals_per_agent
        conditions.append(AtMost(rows.pending(action.tenant, action.agent), limit))
        more, shown = await request(parts, action, admitted.caller.owner, ruling, version)
        entries, payloads = [*entries, *more], [*payloads, shown]
    elif effect.effect == "deny":
        code = next(iter(asked.codes), "DENIED")
        body = ExecutionRejected(code=code, policy_revision=asked.decision.revision, reasons=asked.codes)
        entries = [*entries, Entry(body)]
    else:
        parts.capacity.check()  # it runs at once, so its place must be free at this very commit
    parts.capacity.check_space()
    try:
        ticket = await journal.commit(parts, Stage.DECIDE, entries, conditions=conditions, payloads=payloads)
    except Conflict as conflict:
        return await _lost(parts, admitted, conflict)
    return await _settled(action, journal, effect, ticket, described_at)


async def _settled(
    action: Action, journal: Journal, effect: Effect, ticket: Ticket, described_at: dt.datetime
) -> Decided:
    if effect.effect not in ALLOWING:
        await ticket.durable()
        return Decided(action.execution_id, None)
    allowed = replaced(action, effect=effect.effect, observe_until=effect.observe_until)
    run = Run(allowed, journal, attempt=1, again=False, described_at=described_at)
    return Decided(action.execution_id, run)


async def _lost(parts: Parts, admitted: Admitted, conflict: Conflict) -> Existing:
    """Two identical new calls at once: the loser re-reads and never reports an internal error (IDM-09, C29)."""
    if isinstance(conflict.condition, AtMost):
        raise pending_limit(parts) from None
    found = await existing(parts, admitted)
    if admitted.caller_key and found is not None:
        return found
    if found is None:
        raise AlreadyExists(
            Reason.REPLAY,
            "an identical call was made at the same moment and has ended. Nothing was executed for this one.",
            next_step="look at the other execution; an identical call from now on is a new one",
        ) from None
    raise Aborted(
        Reason.DUPLICATE_IN_FLIGHT,
        "an identical call was made at the same moment. Nothing was executed or consumed for this one.",
        retryable=True,
        next_step="repeat the identical call to join the other one",
        execution_id=found.execution_id,
    ) from None


def _needed(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Of the envelope of a denied call: nothing will run by it, so large conditions are not kept (AGT-06). Its decision
    can then not be replayed by ``policy diff``, which says so: the input's digest is on record."""
    names = ("preconditions", "postconditions")
    if sum(len(canonical(envelope[name])) for name in names) <= KEPT_CONDITIONS:
        return dict(envelope)
    return {**envelope, **{name: {} for name in names}}


def _proposal(
    parts: Parts, admitted: Admitted, action: Action, salt: str, asked: Asked, ruling: Ruling
) -> tuple[list[Entry], list[Payload]]:
    effect = ruling.stands
    envelope = _needed(action.envelope) if effect.effect == "deny" else action.envelope
    said = partly(envelope, *inputs.CONDITIONS)
    call = own({"v": STORED_CALL, "envelope": said, "args": admitted.args.json, "salt": salt})
    call_sha256 = sha256_hex(call)
    why_sha256, why = payload(parts, action.execution_id, "reasons", questions.messages(effect.reasons))
    of_policy, asked_about = asked.on_record(parts, action.execution_id)
    caller, contract = admitted.caller, action.contract
    body = ExecutionProposed(
        action_id=admitted.envelope.action_id,
        agent=action.agent,
        requester=action.requester,
        owner=caller.owner,
        environment=action.environment,
        operation=action.operation,
        risk_tier=contract.action.risk_tier,
        upstream=action.upstream,
        origin=action.origin,
        place_sha256=place_sha256(parts.upstreams[action.upstream]),
        tool=action.tool,
        tool_version=action.tool_version,
        definition_sha256=action.definition_sha256,
        contract_sha256=contract.sha256,
        contract_version=contract.version,
        target=action.target,
        twin=action.twin,
        fingerprint=action.fingerprint,
        caller_key=action.caller_key,
        action_sha256=action.action_sha256,
        call_sha256=call_sha256,
        reasons_sha256=why_sha256,
        effect=effect.effect,
        observe_until=effect.observe_until,
        floor=ruling.on_record(),
        not_after=action.not_after,
        trace_id=admitted.trace.trace_id,
        **of_policy,
    )
    stored = Payload(rows.payload(action.execution_id, call_sha256), call)
    return [Entry(body)], [stored, why, *asked_about]
