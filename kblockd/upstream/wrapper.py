"""Guards a plugin's adapter with guarantees that hold whatever the plugin does.

Nothing raises, everything ends at its deadline, no credential comes back, every answer can be stored. ``invoke`` and
``cancel`` outlive their deadline for a bounded grace: a late answer goes to ``on_late`` as evidence, and a plugin that
catches the cancellation at the end of the grace may still answer (RPC-09).
Source: kblockd/upstream/README.md#what-the-wrapper-guarantees; R179, R181, R182, R183, R186, R196 to R201, R631, R632.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from kblockd.admission import Slots
from kblockd.admission.offload import INLINE_BYTES, offload, size_of
from kblockd.domain import canonical
from kblockd.upstream.adapter import Adapter, AdapterFault, Outcome, Sent, ToolCall, ToolDescription
from kblockd.upstream.credentials import Credential, CredentialFault
from kblockd.upstream.meter import Permit
from kblockd.upstream.outcomes import bounded, classified, evidence, failed, sentence, storable
from kblockd.upstream.pins import Digested
from kblockd.upstream.scope import Scope, always, entered
from kblockd.upstream.scrub import Scrubber

OnLate = Callable[[Outcome], None]
OnEnd = Callable[[bool], None]
OnOutlive = Callable[[], OnEnd]
"""Called when an answer is given before the effect's task has ended. Its result is called once the task has ended, with
whether it ended by itself; a cancelled task may have left a thread behind that still acts (UPS-08)."""
Action = Callable[[ToolCall], Awaitable[Outcome]]
_DEFINITIONS: Final = 256
_NO_CREDENTIAL: Final = Credential("none")

_log: Final = logging.getLogger(__name__)


def _ignore(outcome: Outcome) -> None:
    """Default observer and ``on_late``."""


def _fit() -> str:
    """Default ``unfit``: the call is always fit."""
    return ""


def _ignore_end() -> OnEnd:
    """Default ``on_outlive``."""
    return lambda by_itself: None


@dataclass(frozen=True, slots=True)
class NotBegun(Outcome):
    """The wrapper's own NOT_SENT: no credential, slot or time, or no longer fit. No plugin code ran, and the reason may
    be transient (UPS-16). A type of its own, because a plugin may answer any code, even after it has acted."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of one upstream: seconds and bytes.

    ``late_seconds`` is how long an effect may still answer after its deadline, ``linger_seconds`` how much later it is
    cancelled (its exchanges end with ``late_seconds``, so an adapter built on them ends by itself), ``cancel_seconds``
    how long a cancelled effect may take to end.
    """

    max_output_bytes: int
    late_seconds: float = 30.0
    linger_seconds: float = 2.0
    cancel_seconds: float = 5.0


class GuardedAdapter:
    """One identity (write or read) of one upstream. Both identities share ``slots``.

    ``other`` is the other identity's credential: never sent here, but the upstream knows it and could echo it.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        credential: Credential,
        other: Credential = _NO_CREDENTIAL,
        slots: asyncio.Semaphore | Slots,
        limits: CallLimits,
        observe: Callable[[Outcome], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._adapter = adapter
        self._credential = credential
        self._other = other
        self._slots = slots
        self._limits = limits
        self._clock = clock
        self._observe = observe
        self._running: set[asyncio.Task[object]] = set()
        self._scrubbers: dict[tuple[bytes | None, bytes | None], Scrubber] = {}
        self._described: dict[tuple[Scrubber, bytes], Digested] = {}

    async def describe(self, tool: str, deadline: float) -> ToolDescription:
        """The current definition; raises only ``AdapterFault``, at the latest at ``deadline``."""
        try:
            credential = self._credential.read()
        except CredentialFault as fault:
            raise AdapterFault(fault.code, str(fault)) from None
        run = _Run(Scope(deadline, credential=credential), self._scrubber(credential))
        task = await self._start(run, lambda: self._adapter.describe(tool))
        try:
            if task is None or not await self._ended(task, run):
                raise AdapterFault("UPSTREAM_TIMEOUT", f"no definition of {tool} arrived before the deadline")
        finally:
            _abandon(task)
        return await self._digested(tool, result(task), run.scrubber)

    async def _digested(self, tool: str, answer: object, scrubber: Scrubber) -> Digested:
        """What was made of the same answer before, byte for byte: definitions seldom change."""
        said = _bytes_of(answer)
        if said is None:
            size = size_of(answer.definition) if isinstance(answer, ToolDescription) else 0
            return await offload(size, _described, tool, answer, scrubber)
        if (known := self._described.get((scrubber, said))) is not None and known.name == tool:
            return known
        if len(self._described) >= _DEFINITIONS:
            self._described.clear()
        found = await offload(len(said), _described, tool, answer, scrubber)
        self._described[scrubber, said] = found
        return found

    async def read(self, call: ToolCall) -> Outcome:
        """Never raises. An answer that cannot be stored is LOST, with ``unreadable``."""
        return evidence(await self._call(call, self._adapter.read, None))

    async def lookup(self, call: ToolCall) -> Outcome:
        """As ``read``."""
        return evidence(await self._call(call, self._adapter.lookup, None))

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        """As ``read``: an end that cannot be read does not count as reached."""
        return evidence(await self._call(call, lambda given: self._adapter.poll(operation, given), None))

    async def cancel(self, operation: str, call: ToolCall, on_late: OnLate | None = None) -> Outcome:
        """Never raises."""
        return await self._call(call, lambda given: self._adapter.cancel(operation, given), on_late or _ignore)

    async def invoke(
        self,
        call: ToolCall,
        on_late: OnLate | None = None,
        permit: Permit = always,
        on_outlive: OnOutlive = _ignore_end,
        unfit: Callable[[], str] = _fit,
    ) -> Outcome:
        """The side effect. Never raises; ``on_late`` gets at most one outcome that arrives after LOST was returned.

        ``permit`` is asked before each write, so that nothing is sent once the lease or deadline has ended (LSE-01).
        ``unfit`` is asked once, after the wait for a slot and right before the plugin; if it returns a code, the plugin
        is not called.
        """
        return await self._call(call, self._adapter.invoke, on_late or _ignore, permit, on_outlive, unfit)

    def check_credential(self) -> None:
        """Preflight: reads the credential and discards it. Raises ``CredentialFault``."""
        self._credential.read()

    async def close(self) -> None:
        """Cancels running tasks and waits ``cancel_seconds`` for them; late answers are still delivered."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=self._limits.cancel_seconds)

    def _scrubber(self, credential: bytes | None) -> Scrubber:
        """The last one while neither value has changed."""
        try:
            both = (credential, self._other.read())
        except CredentialFault:  # not ours to send, and a value that cannot be read cannot be recognised
            both = (credential, None)
        if both not in self._scrubbers:
            self._scrubbers = {both: Scrubber(*both)}
            self._described.clear()
        return self._scrubbers[both]

    async def _call(
        self,
        call: ToolCall,
        action: Action,
        on_late: OnLate | None,
        permit: Permit = always,
        on_outlive: OnOutlive = _ignore_end,
        unfit: Callable[[], str] = _fit,
    ) -> Outcome:
        """NOT_SENT here needs no proof by exchanges: the plugin is never called."""
        if call.deadline <= self._clock():
            return NotBegun(Sent.NOT_SENT, code="UPSTREAM_TIMEOUT", detail="the deadline had passed; nothing was run")
        try:
            credential = self._credential.read()
        except CredentialFault as fault:
            return NotBegun(Sent.NOT_SENT, code=fault.code, detail=bounded(str(fault)))
        late = self._limits.late_seconds if on_late else 0.0
        scope = Scope(call.deadline, late, credential, permit=permit)
        run = _Run(scope, self._scrubber(credential), on_late, on_outlive, unfit)
        given = call if credential is call.credential else replace(call, credential=credential)
        outcome = await self._run(given, run, action)
        if not isinstance(outcome, NotBegun):  # which says nothing about the upstream
            self._observe(outcome)
        return outcome

    async def _run(self, call: ToolCall, run: _Run, action: Action) -> Outcome:
        task = await self._start(run, lambda: action(call))
        if task is None and (code := run.unfit()):
            return NotBegun(Sent.NOT_SENT, code=code)
        if task is None:
            detail = "no free slot before the deadline; nothing was run"
            return NotBegun(Sent.NOT_SENT, code="UPSTREAM_BUSY", detail=detail)
        try:
            if await self._ended(task, run):
                return await self._judged(task, run)
        except asyncio.CancelledError:  # only the waiter is cancelled, not the effect
            self._outlive(task, run)
            raise
        outcome = failed(run.scope, "UPSTREAM_TIMEOUT", "no valid answer before the deadline")
        self._outlive(task, run)
        return outcome

    async def _start(self, run: _Run, action: Callable[[], Awaitable[object]]) -> asyncio.Task[object] | None:
        """A task that holds a slot until it really ends; None if no slot became free in time, or ``unfit``."""
        left = run.scope.deadline - self._clock()
        if left <= 0:
            return None
        if not await self._slot(left):
            return None
        if run.unfit():
            self._slots.release()
            return None
        with entered(run.scope):
            task = asyncio.create_task(contained(action))
        self._running.add(task)
        task.add_done_callback(self._finish)
        return task

    async def _slot(self, left: float) -> bool:
        if not self._slots.locked():
            return await self._slots.acquire()  # at once
        try:
            async with asyncio.timeout(left):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    def _finish(self, task: asyncio.Task[object]) -> None:
        self._slots.release()
        self._running.discard(task)

    async def _ended(self, task: asyncio.Task[object], run: _Run) -> bool:
        return await ended(task, max(0.0, run.scope.deadline - self._clock()))

    async def _judged(self, task: asyncio.Task[object], run: _Run) -> Outcome:
        """Cleans a long output in a thread, to keep the loop responsive (UPS-17)."""
        outcome = _classified(task, run)
        size = size_of(outcome.output)
        return await offload(size, storable, outcome, run.scrubber, self._limits.max_output_bytes)

    def _outlive(self, task: asyncio.Task[object], run: _Run) -> None:
        """Lets an effect run on for its grace period; cancels a read at once."""
        run.scope.seal()
        if run.on_late is None:
            _abandon(task)
            return
        on_end = run.on_outlive()
        task.add_done_callback(lambda ended: self._deliver(ended, run))
        # After the late answer: nobody may learn that absence can be proved before learning of the effect.
        task.add_done_callback(lambda ended: on_end(not (ended.cancelled() or ended.cancelling())))
        grace = self._limits.late_seconds + self._limits.linger_seconds
        timer = asyncio.get_running_loop().call_later(grace, _abandon, task)
        task.add_done_callback(lambda _: timer.cancel())

    def _deliver(self, task: asyncio.Task[object], run: _Run) -> None:
        """Hands a late answer to ``on_late`` as evidence; a late exception or timeout is not news."""
        if run.on_late is None or isinstance(result(task), Raised):
            return
        outcome = storable(_classified(task, run), run.scrubber, self._limits.max_output_bytes)
        if not _is_evidence(outcome):
            return
        try:
            run.on_late(outcome)
        except Exception:
            _log.exception("a late outcome could not be recorded")


@dataclass(slots=True)
class _Run:
    """One call under way."""

    scope: Scope
    scrubber: Scrubber
    on_late: OnLate | None = None
    on_outlive: OnOutlive = _ignore_end
    unfit: Callable[[], str] = _fit


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a plugin raised, as type and message."""

    what: str
    fault: AdapterFault | None = None


async def contained(action: Callable[[], Awaitable[object]]) -> object:
    """Turns everything a plugin can raise into a value, including SystemExit, which would end the loop."""
    try:
        return await action()
    except AdapterFault as fault:
        return Raised(sentence(fault), fault)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return Raised(sentence(error))


async def ended(task: asyncio.Task[object], seconds: float) -> bool:
    """Whether the task ends in time; neither the time-out nor a cancelled waiter affects it.

    A cheaper ``asyncio.wait`` for one task: every call to an upstream waits here, some twice.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(seconds, wake)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(wake)
    return task.done()


def result(task: asyncio.Task[object]) -> object:
    """The result of an ended task; a cancellation, ours or the plugin's own, counts as raised."""
    return Raised("CancelledError: cancelled before it answered") if task.cancelled() else task.result()


def _abandon(task: asyncio.Task[object] | None) -> None:
    if task is not None:
        task.cancel()


def _is_evidence(outcome: Outcome) -> bool:
    evidence = outcome.operation or outcome.request_ids or outcome.raw_sha256
    return outcome.sent is not Sent.LOST or outcome.facts.at_work or bool(evidence)


def _classified(task: asyncio.Task[object], run: _Run) -> Outcome:
    run.scope.seal()  # absence may be proved next, so no leftover of the call may send any more
    run.scope.forget_credential()
    answer = result(task)
    if isinstance(answer, Raised):
        return failed(run.scope, "PLUGIN_RAISED", run.scrubber.text(answer.what))
    return classified(answer, run.scope, run.scrubber)


def _bytes_of(answer: object) -> bytes | None:
    """Of a description as a plugin should answer it: equal only for what is equal to its innermost type, as 1, 1.0 and
    true are not. None for any other answer, and for a long one."""
    if type(answer) is not ToolDescription:
        return None
    try:
        said = marshal.dumps((answer.name, answer.server_version, answer.definition), 0)
    except ValueError:
        return None
    return said if len(said) <= INLINE_BYTES else None


def _described(tool: str, answer: object, scrubber: Scrubber) -> Digested:
    if isinstance(answer, Raised):
        fault = answer.fault or AdapterFault("PLUGIN_RAISED", answer.what)
        raise AdapterFault(fault.code, bounded(scrubber.text(str(fault)))) from None
    if not isinstance(answer, ToolDescription) or answer.name != tool:
        raise AdapterFault("PLUGIN_ANSWER_INVALID", f"the plugin did not describe {tool}: {type(answer).__name__}")
    version = bounded(scrubber.text(answer.server_version), 256) if isinstance(answer.server_version, str) else ""
    try:
        canonical.count(answer.definition)
        return Digested(answer.name, version, scrubber.value(answer.definition))
    except (canonical.NotCanonical, RecursionError) as error:
        raise AdapterFault("DEFINITION_NOT_CANONICAL", bounded(scrubber.text(str(error)))) from None
