"""Stage 9: the consumption, one commit. What is used up here stays used up, whatever the upstream does (R111 to R119).

Approval used, twin row claimed if absent, target locked, lease bound, effect key derived; conditioned on every row
version that stages 5 to 8 relied on and on the policy revision that stage 8 evaluated. Another attempt, and an
execution found consumed without a marker, come here as 9r: a new fence, the same consumption and effect key.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from kblockd.domain import keys
from kblockd.domain.clock import Clock, parse_rfc3339, rfc3339
from kblockd.domain.errors import FailedPrecondition, KblockError, Reason, ResourceExhausted
from kblockd.domain.ledger import identifier, rows
from kblockd.domain.ledger.claim import ExecutionClaimed
from kblockd.domain.ledger.rows import ExecutionRow, LinkRow
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.action import Action, Run
from kblockd.execution.journal import Entry, payload
from kblockd.execution.leases import Lease, busy
from kblockd.execution.parts import Parts
from kblockd.execution.preconditions import Checked
from kblockd.execution.preflight import Preflighted, Raced, check_clock
from kblockd.execution.replay import unresolved
from kblockd.execution.stages import stage
from kblockd.store.protocol import Absent, AtMost, AtVersion, Condition, Conflict, Payload
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class Claim:
    """What a consumed execution carries on: its run, its lease, its effect key, its deadline.

    ``deadline`` is in monotonic seconds, ``deadline_at`` the same as it is on record. ``relied`` are the rows that
    stages 5 to 9 relied on, as they were behind the consumption: the send marker is conditioned on them (APV-01).
    """

    run: Run
    lease: Lease
    effect_key: str
    approval_id: str
    deadline: float
    deadline_at: dt.datetime
    relied: tuple[Condition, ...] = ()
    interrupted: bool = False  # of an earlier life: what cannot be proved waits for the sweep
    new_boot: bool = False  # the machine was restarted since the marker: no further attempt

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.run.trace

    def over(self, clock: Clock) -> bool:
        """By monotonic time, or by the ledger's, which goes on while the machine sleeps (R572)."""
        return clock.monotonic() >= self.deadline or clock.now() >= self.deadline_at


@stage(Stage.CONSUME)
async def consume(parts: Parts, checked: Checked) -> Claim:
    """Durable when it returns. Raises ``Raced``, or a refusal that leaves the action approved."""
    leased = checked.snapshot.leased
    preflighted, lease = leased.preflighted, leased.lease
    run = preflighted.run
    before = _row(parts, run)
    if not parts.leases.holds(lease):
        raise Raced
    relied = [*preflighted.conditions, *await _policy_condition(parts, checked.asked.decision.revision)]
    conditions = [*relied, *(() if run.again else _first_conditions(run.action))]
    # Reading and asking took time: what lapsed meanwhile is not consumed. No await from here to the commit. The record
    # and the deadline count from before the checks: whoever is stopped between them and the commit finds it passed.
    at = parts.clock.now()
    check_clock(parts, run.action, again=run.again)
    entry, payloads, effect_key, deadline_at = _claimed(parts, checked, before, at)
    run.journal.attempt = run.attempt
    try:
        ticket = await run.journal.commit(
            parts, Stage.CONSUME, [entry], conditions=conditions, payloads=payloads, at=at
        )
    except Conflict as conflict:
        raise await _refusal(parts, run.action, conflict) from None
    await ticket.durable()
    run.journal.claimed.set()
    ends = parse_rfc3339(deadline_at)
    deadline = parts.clock.monotonic() + (ends - parts.clock.now()).total_seconds()
    approval_id = _approval_id(preflighted)
    behind = _behind(relied, "" if run.again else approval_id, ticket.first_index)
    return Claim(run, lease, effect_key, approval_id, deadline, ends, behind)


def _behind(relied: Sequence[Condition], used: str, claimed: int) -> tuple[Condition, ...]:
    """The same conditions behind a consumption that wrote record ``claimed``: it is what wrote the row of the approval
    ``used`` last. A re-entry uses none."""
    row = rows.approval(used)
    return tuple(AtVersion(row, claimed) if condition.key == row else condition for condition in relied)


def _first_conditions(action: Action) -> list[Condition]:
    """The rows that hold the guarantees; they are in the order in which a conflict is reported."""
    target = rows.target(action.tenant, action.upstream, action.target.type, action.target.id)
    running = rows.running(action.tenant, action.operation, action.environment)
    return [
        Absent(rows.twin(action.twin)),
        Absent(target),
        AtMost(running, action.limits.maximum_concurrent_actions),
    ]


async def _policy_condition(parts: Parts, revision: str) -> list[Condition]:
    """The revision that stage 8 evaluated must be the one in force at this very commit."""
    found = await parts.store.get(rows.policy())
    if found is None or found[1].revision != revision:
        raise Raced
    return [AtVersion(rows.policy(), found[0])]


def _claimed(
    parts: Parts, checked: Checked, before: ExecutionRow, at: dt.datetime
) -> tuple[Entry, Sequence[Payload], str, str]:
    preflighted, lease = checked.snapshot.leased.preflighted, checked.snapshot.leased.lease
    run, action = preflighted.run, preflighted.run.action
    effect_key = before.effect_key or _effect_key(parts, action)
    deadline_at = before.deadline_at or rfc3339(action.limits.no_attempt_after(at))
    snapshot_sha256, snapshot = payload(parts, action.execution_id, "snapshot", checked.snapshot.value)
    decided, asked_about = checked.asked.on_record(parts, action.execution_id, snapshot=snapshot_sha256)
    body = ExecutionClaimed(
        again=run.again,
        effect_key=effect_key,
        fence=lease.fence,
        holder=parts.instance.name,
        lease_ttl_seconds=parts.clocks.lease_ttl_seconds,
        approval_id=_approval_id(preflighted),
        snapshot_sha256=snapshot_sha256,
        target_version=identifier(checked.snapshot.version),
        deadline_at=deadline_at,
        **decided,
    )
    return Entry(body), [snapshot, *asked_about], effect_key, deadline_at


def _effect_key(parts: Parts, action: Action) -> str:
    return keys.effect_key(
        parts.keys.effect.tenant(action.tenant),
        tenant=action.tenant,
        call=action.caller_key or action.execution_id,
        environment=action.environment,
        operation=action.operation,
        tool=action.tool,
        target=action.target.document(),
        args_sha256=action.args_sha256,
        approval=1,  # a call is consumed once in its life, whether a person or policy alone allowed it
    )


def _approval_id(preflighted: Preflighted) -> str:
    return preflighted.approval.approval_id if preflighted.approval else ""


def _row(parts: Parts, run: Run) -> ExecutionRow:
    try:
        return run.journal.row(parts)
    except Conflict:
        raise Raced from None


async def _refusal(parts: Parts, action: Action, conflict: Conflict) -> KblockError | Raced:
    """A conflict on a guarding row is an answer; on anything that was relied on it is a race."""
    condition = conflict.condition
    if isinstance(condition, AtMost):
        return ResourceExhausted(
            Reason.CONCURRENCY_LIMIT,
            f"{action.limits.maximum_concurrent_actions} actions of this contract are executing already. "
            "Nothing was executed or consumed; the action stays approved.",
            retryable=True,
            next_step="repeat the identical call when one of them has ended",
            execution_id=action.execution_id,
        )
    if isinstance(condition, Absent):
        holder = await parts.store.get(condition.key)
        other = holder[1].execution if holder is not None and isinstance(holder[1], LinkRow) else ""
        if condition.key[0] == "twin":
            return unresolved(other)
        return busy(other)
    return Raced()


def deadline_refusal(execution_id: str) -> FailedPrecondition:
    """No attempt after the absolute deadline (R197, R572)."""
    return FailedPrecondition(
        Reason.DEADLINE_PASSED,
        "the absolute deadline of the action has passed; no further attempt is made.",
        consumed=True,
        next_step="look at the execution's outcome",
        execution_id=execution_id,
    )
