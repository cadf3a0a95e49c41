"""The executions as callers meet them: execute, get, list, watch, resolve."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kblockd.domain.canonical import canonical, sha256_hex
from kblockd.domain.envelope import Envelope
from kblockd.domain.errors import InvalidArgument, KblockError, NotFound, Reason, StoredUnreadable
from kblockd.domain.keys import caller_key as caller_key_digest
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.closing import ExecutionCancelled
from kblockd.domain.ledger.proposal import RefusalDetails
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.outcome import CallOutcome, Finding, StageEvent
from kblockd.domain.principal import Principal, View
from kblockd.domain.stages import Stage
from kblockd.domain.states import TERMINAL, State
from kblockd.execution import answers, authorizations, pins, pipeline, refusals
from kblockd.execution.action import IncomingCall, Run
from kblockd.execution.changes import changed
from kblockd.execution.decide import check_deadline
from kblockd.execution.expire import WAITING, expire_if_due
from kblockd.execution.journal import NOTHING, Entry, Journal, Written
from kblockd.execution.load import load_action
from kblockd.execution.parts import Parts
from kblockd.execution.replay import Existing
from kblockd.execution.resolve import resolve
from kblockd.execution.supervisor import Handle, Supervisor, store_failed
from kblockd.ledger.listing import newest
from kblockd.policy.deciding import Decision
from kblockd.policy.deciding.inputs import METHOD
from kblockd.store.protocol import Conflict, Payload, StoreFailed
from kblockd.telemetry.recorder import Trace

MAX_PAGE = 200
STATES = frozenset(str(state) for state in State)
_WATCH_SECONDS = 5.0
_REFUSED_ON_RECORD = frozenset(
    {
        Reason.PERMISSION_DENIED,
        Reason.IDEMPOTENCY_CONFLICT,
        Reason.REPLAY,
        Reason.TWIN_UNRESOLVED,
        Reason.POLICY_CHANGED,
        Reason.OBSERVE_ENDED,
        Reason.UNPINNED_TOOL,
        Reason.TOOL_CHANGED,
        Reason.PIN_MISMATCH,
        Reason.POLICY_UNDEFINED,
        Reason.POLICY_TYPE,
        Reason.POLICY_ERROR,
        Reason.POLICY_TIMEOUT,
        Reason.POLICY_DOWN,
    }
)


class Executions:
    """Facade over the pipeline, the supervisor and the answers. ``on_end`` takes a trace that is finished."""

    def __init__(self, parts: Parts, supervisor: Supervisor, on_end: Callable[[Trace], None]) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._on_end = on_end

    async def execute(self, principal: Principal, envelope: Envelope, wait: float | None, trace: Trace) -> CallOutcome:
        """Raises ``KblockError``; everything that is pending, executing, held or closed is an ``CallOutcome``."""
        seconds = self._parts.clocks.client_wait_seconds if wait is None else wait
        started = False  # from then on the supervisor records a refusal and ends the trace
        execution_id = ""
        try:
            self._supervisor.check_serving()
            call = IncomingCall(principal, envelope, trace)
            found = await pipeline.propose(self._parts, call)
            execution_id, repeated = found.execution_id, isinstance(found, Existing)
            run = await self._to_run(found.execution_id, envelope, trace) if isinstance(found, Existing) else found.run
            handle = self._supervisor.running(found.execution_id) if run is None else self._supervisor.start(run)
            started = run is not None
            if handle is not None:
                await _ended(handle, seconds)
            own = run.journal.written if run is not None else NOTHING
            return await self._answer(found.execution_id, replayed=repeated and not started, own=own)
        except StoreFailed as failure:
            # Once there is an execution it may have been consumed, by this call or an earlier one (R668, R669).
            raise store_failed(failure, execution_id, undecided=bool(execution_id)) from None
        except KblockError as error:
            if error.reason in _REFUSED_ON_RECORD and not (started or error.on_record):
                await self.refused(principal, METHOD, error)
            raise
        finally:
            if not started:
                self._on_end(trace)

    async def get(
        self, view: View, principal: Principal, *, execution_id: str = "", caller_key: str = ""
    ) -> tuple[CallOutcome, builtins.list[StageEvent]]:
        """By execution id, or by the principal's own caller key. Raises ``NotFound``."""
        if caller_key:
            digest = caller_key_digest(tenant=principal.tenant, agent=principal.id, key=caller_key)
            bound = await self._parts.store.get(rows.caller_key(digest))
            if bound is None:
                raise NotFound(
                    Reason.NOT_FOUND,
                    f"there is no execution under the caller key {caller_key[:80]!r} of {principal.id}",
                    next_step="correct the key, or ask by execution_id: a key is known to its principal alone",
                )
            execution_id = bound[1].execution
        row = await self._visible(view, execution_id)
        return await answers.outcome(self._parts, row), await self._events(row)

    async def list(
        self, view: View, *, page_size: int, page_token: str, states: Sequence[str]
    ) -> tuple[builtins.list[CallOutcome], str]:
        """Newest first; ``page_token`` is the last execution id of the page before."""
        size = min(page_size or 50, MAX_PAGE)
        if page_token and await self._parts.store.get(rows.execution(page_token)) is None:
            raise InvalidArgument.field("page_token", "was never a next_page_token of this list")
        looked = {*states, *WAITING} if State.EXPIRED in states else set(states)  # what has lapsed is still in its list
        found: list[CallOutcome] = []
        async for execution_id in newest(self._parts.store, "execution", view, looked, STATES, page_token):
            row = await self._shown(view, execution_id)
            if row is not None and (not states or row.state in states):
                found.append(await answers.outcome(self._parts, row, brief=True))
                if len(found) == size:
                    return found, execution_id
        return found, ""

    async def watch(self, view: View, execution_id: str, after_index: int | None) -> AsyncIterator[StageEvent]:
        """One event for each durable record after ``after_index``; ends when the execution is closed, not when held."""
        after = after_index
        with self._parts.changes.watching(execution_id) as change:
            while True:
                change.clear()
                row = await self._visible(view, execution_id)
                for event in await answers.events(self._parts, row, after):
                    after = event.ledger_index
                    yield event
                if row.state in TERMINAL:
                    return
                await changed(change, _WATCH_SECONDS)

    async def resolve(
        self, principal: Principal, view: View, execution_id: str, finding: Finding, reason: str
    ) -> CallOutcome:
        """An operator's finding on a held execution, or a disposition on one sealed as unknown."""
        row = await self._visible(view, execution_id)
        await resolve(self._parts, principal, row, finding, reason)
        return await self._answer(execution_id, replayed=False)

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        """A refusal on record; one that cannot be written is not worth failing for."""
        parts = self._parts
        said = canonical({"salt": parts.ids.salt(), "kind": "refusal", "value": error.message[:2000]})
        digest = sha256_hex(said)
        scope = error.execution_id or "refused"
        more = RefusalDetails(refers_to=error.execution_id, message_sha256=digest)
        await refusals.record(
            parts,
            error.reason,
            tenant=principal.tenant,
            execution_id=error.execution_id if await self._exists(error.execution_id) else "",
            principal=principal.id,
            method=method,
            more=more,
            payloads=[Payload(rows.payload(scope, digest), said)],
        )

    async def authorized(
        self, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
    ) -> bool:
        """An answer of stage 0 on record, whatever it is; False when it could not be written."""
        return await authorizations.record(self._parts, principal, method, document, decision)

    async def _to_run(self, execution_id: str, envelope: Envelope, trace: Trace) -> Run | None:
        """The identical call once more: the run that its approval allows, or None when there is only to wait or read.

        What executes without a run of this process is taken up first, so that there is something to wait for.
        """
        parts = self._parts
        if self._supervisor.running(execution_id) is not None:
            return None
        version, row = await expire_if_due(parts, execution_id)
        if row.state == State.EXECUTING:
            await self._supervisor.take_up(execution_id)
        if row.state != State.APPROVED:
            return None
        approval = await parts.store.get(rows.approval(row.approval_id)) if row.approval_id else None
        pins.check_approval(envelope, approval[1] if approval else None)
        pins.check_policy(envelope, parts.engine.status().revision)
        check_deadline(parts, envelope.deadline, execution_id)
        journal = Journal(execution_id, row.tenant, trace, version)
        try:
            action = pins.repeated(envelope, await load_action(parts, row))
        except StoredUnreadable:
            await _cancelled(parts, journal)
            return None
        if self._supervisor.running(execution_id) is not None:  # meanwhile an identical call has begun it
            return None
        return Run(action, journal, attempt=1, again=False)

    async def _answer(self, execution_id: str, *, replayed: bool, own: Written = NOTHING) -> CallOutcome:
        found = await self._parts.store.get(rows.execution(execution_id))
        if found is None:
            raise NotFound(Reason.NOT_FOUND, f"there is no execution {execution_id[:80]!r} that you may see")
        return await answers.outcome(self._parts, found[1], replayed=replayed, own=own)

    async def _shown(self, view: View, execution_id: str) -> ExecutionRow | None:
        """What has lapsed is not listed as if it could still run (APR-10)."""
        found = await self._parts.store.get(rows.execution(execution_id))
        if found is None or not view.shows(found[1].tenant, found[1].agent):
            return None
        if found[1].state in WAITING:
            found = await expire_if_due(self._parts, execution_id)
        return found[1]

    async def shows(self, view: View, execution_id: str) -> bool:
        """Whether it may be seen; reads nothing else of it."""
        return await self._stored(view, execution_id) is not None

    async def _stored(self, view: View, execution_id: str) -> ExecutionRow | None:
        """None for what is not there and for what may not be seen alike."""
        found = await self._parts.store.get(rows.execution(execution_id)) if execution_id else None
        return found[1] if found is not None and view.shows(found[1].tenant, found[1].agent) else None

    async def _visible(self, view: View, execution_id: str) -> ExecutionRow:
        if await self._stored(view, execution_id) is None:
            raise NotFound(Reason.NOT_FOUND, f"there is no execution {execution_id[:80]!r} that you may see")
        _, row = await expire_if_due(self._parts, execution_id)
        return row

    async def _events(self, row: ExecutionRow) -> builtins.list[StageEvent]:
        return await answers.events(self._parts, row)

    async def _exists(self, execution_id: str) -> bool:
        return bool(execution_id) and await self._parts.store.get(rows.execution(execution_id)) is not None


async def _cancelled(parts: Parts, journal: Journal) -> None:
    """Nobody can say any more what was approved: the action is void. Durable when it returns."""
    entry = Entry(ExecutionCancelled(code=str(Reason.STORED_UNREADABLE)))
    with suppress(Conflict):  # somebody was faster: the row says what happened
        ticket = await journal.commit(parts, Stage.PREFLIGHT, [entry])
        await ticket.durable()


async def _ended(handle: Handle, seconds: float) -> None:
    """Waits; raises why the run ended before its consumption, if it did."""
    await handle.wait(seconds)
    if refusal := handle.refusal():
        raise refusal
