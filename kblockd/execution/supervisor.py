"""Who runs executions: the daemon, not the RPC. A caller that goes away only stops waiting
(kblockd/execution/README.md#who-runs-an-execution).

A run that ends without an ending after its consumption (its lease lost, its row changed, a defect) is looked at again
from the ledger, some times; then the sweep has it. One that was refused before the consumption tells its callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kblockd.admission import on_behalf_of
from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import Internal, KblockError, Reason, StoredUnreadable, Unavailable
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.claim import LeaseLost
from kblockd.domain.ledger.closing import ExecutionCancelled
from kblockd.domain.ledger.record import Record
from kblockd.domain.stages import Stage
from kblockd.domain.states import BEFORE_EFFECT, ResultClass, State
from kblockd.execution import pipeline, refusals
from kblockd.execution.action import Run
from kblockd.execution.classify import attempt_record, classify_outcome
from kblockd.execution.journal import Entry, Journal
from kblockd.execution.leases import Lease
from kblockd.execution.load import load_contract
from kblockd.execution.parts import Parts
from kblockd.execution.recover import Adrift
from kblockd.execution.resume import journal_of, resume
from kblockd.execution.spans import describe
from kblockd.execution.void import Voided
from kblockd.store.protocol import Append, Conflict, StoreFailed
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.wrapper import ended

_log = logging.getLogger(__name__)
_LOOKS = 3


@dataclass(slots=True)
class Handle:
    """A run under way. ``done`` ends with the refusal, or None when the ledger holds the answer."""

    execution_id: str
    journal: Journal
    done: asyncio.Task[KblockError | None]

    async def wait(self, seconds: float) -> None:
        """Until the run has ended, or ``seconds``; zero waits only until it is claimed or has ended."""
        if seconds > 0:
            await ended(self.done, seconds)
            return
        claimed = asyncio.ensure_future(self.journal.claimed.wait())
        try:
            await asyncio.wait({self.done, claimed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            claimed.cancel()

    def refusal(self) -> KblockError | None:
        """Why the run ended before its consumption, if it did."""
        return self.done.result() if self.done.done() and not self.done.cancelled() else None


class Supervisor:
    """All runs of this daemon; at most ``limits.executions`` at once."""

    def __init__(self, parts: Parts, new_trace: Callable[[], Trace], on_end: Callable[[Trace], None]) -> None:
        self._parts = parts
        self._new_trace = new_trace
        self._on_end = on_end
        self._running: dict[str, Handle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.adrift: set[str] = set()  # executions whose last run here looked at the upstream and could prove nothing
        parts.late.on_late = self._late
        parts.leases.on_lost = self._lease_lost

    def running(self, execution_id: str) -> Handle | None:
        """The run of this execution in this process."""
        return self._running.get(execution_id)

    def check_serving(self) -> None:
        """Raises ``Unavailable`` while the daemon stops."""
        if self._stopping:
            raise Unavailable(
                Reason.SHUTTING_DOWN,
                "the daemon is stopping. Nothing was executed or consumed.",
                retryable=True,
                next_step="repeat the identical call when it is back",
            )

    def start(self, run: Run) -> Handle:
        """Runs stages 5 to 16 of a decided, approved execution; one that runs already is joined."""
        if (running := self._running.get(run.action.execution_id)) is not None:
            return running
        self.check_serving()
        self._parts.capacity.check_place()
        return self._spawn(run.action.execution_id, run.journal, pipeline.run(self._parts, run))

    async def take_up(self, execution_id: str) -> bool:
        """Takes up an executing execution that nobody runs: after a start, by the sweep. Whether it did."""
        if execution_id in self._running or self._stopping:
            return False
        found = await journal_of(self._parts, execution_id, self._new_trace())
        if found is None or found[1].state != State.EXECUTING or execution_id in self._running:
            return False
        journal, row = found
        with on_behalf_of(row.agent):
            self._spawn(execution_id, journal, resume(self._parts, journal, row))
        return True

    async def stop(self, grace_seconds: float) -> int:
        """Lets runs end for ``grace_seconds``; what is left is resumed by the next start. Returns their number."""
        self._stopping = True
        tasks = {handle.done for handle in self._running.values()} | self._tasks
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5.0)
        return len(left)

    def _spawn(self, execution_id: str, journal: Journal, work: Coroutine[Any, Any, Any]) -> Handle:
        who = self._parts.admission.begun()
        task = asyncio.create_task(self._supervise(execution_id, journal, work, who), name=execution_id)
        handle = Handle(execution_id, journal, task)
        self._running[execution_id] = handle
        self.adrift.discard(execution_id)
        self._parts.capacity.running = len(self._running)
        return handle

    async def _supervise(
        self, execution_id: str, journal: Journal, work: Coroutine[Any, Any, Any], who: str
    ) -> KblockError | None:
        parts = self._parts
        try:
            refusal = await self._until_ended(execution_id, journal, work)
            if refusal is not None:
                await self._record_refusal(journal, refusal)
            return refusal
        finally:
            parts.leases.drop(execution_id)
            self._running.pop(execution_id, None)
            parts.admission.ended(who)
            parts.capacity.running = len(self._running)
            parts.changes.notify(execution_id)
            parts.late.forget(execution_id)
            if parts.late.waiting(execution_id):
                self._late(execution_id)
            await self._end_trace(execution_id, journal.trace)

    async def _end_trace(self, execution_id: str, trace: Trace) -> None:
        with suppress(StoreFailed):
            found = await self._parts.store.get(rows.execution(execution_id))
            if found is not None:
                describe(trace, found[1])
        self._on_end(trace)

    async def _until_ended(
        self, execution_id: str, journal: Journal, work: Coroutine[Any, Any, Any]
    ) -> KblockError | None:
        """None when the ledger has the answer; a refusal only when nothing was consumed."""
        for _ in range(_LOOKS):
            try:
                if isinstance(await work, Adrift):
                    self.adrift.add(execution_id)
                return None
            except StoreFailed as failure:
                refusal = store_failed(failure, execution_id, consumed=journal.claimed.is_set())
                _log_stopped(journal, refusal)
                return refusal
            except Exception as error:
                _log_stopped(journal, error)
                if not journal.claimed.is_set() and isinstance(error, KblockError):
                    return error
            self._parts.leases.drop(execution_id)
            try:
                found = await journal_of(self._parts, execution_id, journal.trace)
            except StoreFailed as failure:
                consumed = journal.claimed.is_set()
                return store_failed(failure, execution_id, consumed=consumed, undecided=not consumed)
            if found is None or found[1].state != State.EXECUTING:
                return None if journal.claimed.is_set() else _defect(execution_id)
            again, row = found
            journal.claimed.set()  # the defect may have come between the commit and this word of it
            journal.version, journal.attempt, journal.marked = again.version, again.attempt, again.marked
            work = resume(self._parts, journal, row)
        work.close()
        return None

    async def _record_refusal(self, journal: Journal, refusal: KblockError) -> None:
        """A void action is cancelled, durably; another refusal rides along and leaves the action approved."""
        parts = self._parts
        try:
            if isinstance(refusal, Voided):
                entry = Entry(ExecutionCancelled(code=str(refusal.reason)))
                ticket = await journal.commit(parts, Stage.PREFLIGHT, [entry])
                await ticket.durable()
            elif not (isinstance(refusal, Internal) or refusal.on_record):
                tenant, execution_id = journal.tenant, journal.execution_id
                await refusals.record(
                    parts, refusal.reason, tenant=tenant, execution_id=execution_id, stage=Stage.PREFLIGHT
                )
        except (Conflict, StoreFailed):
            _log.warning("a refusal could not be recorded", extra={"execution_id": journal.execution_id})

    def _late(self, execution_id: str) -> None:
        if execution_id not in self._running:
            self._begin(self._store_late(execution_id))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lease_lost(self, lease: Lease) -> None:
        """On record and in the log, once a lease (R166, LSE-08): from here on its holder marks and sends nothing."""
        _log.warning("a lease ended while its holder was held up", extra={"execution_id": lease.execution_id})
        self._begin(self._record_lost(lease))

    async def _record_lost(self, lease: Lease) -> None:
        found = await self._parts.store.get(rows.execution(lease.execution_id))
        if found is None:
            return
        at, row = rfc3339(self._parts.clock.now()), found[1]
        record = Record(LeaseLost(lease.fence), at, row.tenant, lease.execution_id, row.attempt, Stage.LEASE.order)
        with suppress(StoreFailed):
            await self._parts.store.commit([], [Append(record.leaf())])

    async def _store_late(self, execution_id: str) -> None:
        """Evidence for an execution that nobody runs any more; it moves nothing."""
        parts = self._parts
        found = await journal_of(parts, execution_id, self._new_trace())
        if found is None:
            return
        journal, row = found
        try:
            contract = await load_contract(parts, row)
        except StoredUnreadable:
            _log.error("a late answer cannot be judged", extra={"execution_id": execution_id})
            return
        for attempt, outcome in parts.late.take(execution_id):
            journal.attempt = attempt
            result_class = classify_outcome(outcome, contract)
            entry, payloads = attempt_record(parts, execution_id, contract, outcome, late=True)
            if row.result_class in BEFORE_EFFECT and result_class is ResultClass.COMPLETED_UNVERIFIED:
                _log.error(
                    "a late answer contradicts the result: the effect exists", extra={"execution_id": execution_id}
                )
            try:
                await journal.commit(parts, Stage.CLASSIFY, [entry], payloads=payloads)
            except Conflict:
                parts.late.add(execution_id, attempt, outcome)  # a run took it up, or an operator resolved it meanwhile
            except StoreFailed:
                _log.warning("a late answer could not be kept", extra={"execution_id": execution_id})


def _log_stopped(journal: Journal, error: Exception) -> None:
    """Why a run stopped, by its reason code, at warning or above: nothing else may say it, least of all where the
    effect is done and only its seal is missing.

    The sentence is told only behind the consumption: before it policy's own words may be in it, and those belong to the
    payloads, which can be erased.
    """
    extra = {"execution_id": journal.execution_id}
    if isinstance(error, KblockError):
        said = f": {error.what}" if journal.claimed.is_set() else ""
        _log.warning("the run stopped: %s%s", error.reason, said, extra=extra)
    elif isinstance(error, Conflict):
        _log.warning("the run stopped: %s: %s has changed", Reason.CONFLICT, error.condition.key[0], extra=extra)
    else:
        _log.error("the run stopped: %s: %s", Reason.INTERNAL, type(error).__name__, exc_info=error, extra=extra)


def store_failed(
    failure: StoreFailed, execution_id: str, *, consumed: bool = False, undecided: bool = False
) -> Unavailable:
    """Before stage 9 the call may be repeated; after it the execution must be looked up (R668, R669).

    ``undecided``: nobody who can still be asked knows on which side of stage 9 the execution stands.
    """
    if consumed or undecided or failure.unknown:
        return Unavailable(
            Reason.COMMIT_UNKNOWN if failure.unknown or undecided else Reason.STORE_UNAVAILABLE,
            "the store failed while the action was under way; the next start decides from disk.",
            executed=consumed,
            consumed=consumed,
            next_step="look the execution up before you repeat anything",
            execution_id=execution_id,
        )
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        "the store cannot serve. Nothing was executed or consumed.",
        retryable=True,
        next_step="repeat the identical call when the daemon is back",
    )


def _defect(execution_id: str) -> Internal:
    return Internal(
        Reason.INTERNAL,
        "a defect stopped the execution before its consumption. Nothing was executed or consumed.",
        next_step="report the execution id; the identical call may be repeated",
        execution_id=execution_id,
    )
