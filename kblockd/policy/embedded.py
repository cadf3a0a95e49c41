"""The embedded Rego engine: regorus in killable children, one revision at a time, swapped whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kblockd.domain.canonical import NotCanonical, canonical, sha256_hex
from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason
from kblockd.domain.ids import Ids
from kblockd.policy import entrypoints
from kblockd.policy.bundle import Bundle, read
from kblockd.policy.child import Child, ChildFailed
from kblockd.policy.engine import Decision, PolicyFailure, PolicyStatus
from kblockd.policy.faults import Fault, PolicyRefused
from kblockd.policy.pool import EmbeddedLimits, Pool

ENGINE: Final = "embedded"

BeforeSwap = Callable[[Bundle], Awaitable[None]]


class EmbeddedEngine:
    """A ``PolicyEngine`` that loads. Without an active bundle every question raises POLICY_UNDEFINED."""

    def __init__(self, limits: EmbeddedLimits, clock: Clock, ids: Ids) -> None:
        self._limits = limits
        self._clock = clock
        self._ids = ids
        self._pool: Pool | None = None
        self._last_error = ""
        self._swap = asyncio.Lock()
        self._closed = False
        self._retiring: dict[Pool, asyncio.Task[None]] = {}

    def status(self) -> PolicyStatus:
        """Never blocks; ``last_error`` is empty while the newest folder that was read is the one in force."""
        revision = self._pool.bundle.revision if self._pool else ""
        return PolicyStatus(ENGINE, revision, self._pool is not None, self._last_error)

    async def prepare(self, folder: Path) -> Bundle:
        """Reads and checks a folder in a throw-away child; activates nothing. Raises ``PolicyRefused``."""
        try:
            bundle = await check(await asyncio.to_thread(read, folder), self._limits)
        except PolicyRefused as refused:
            self._last_error = str(refused)
            raise
        if self._pool and bundle.revision == self._pool.bundle.revision:
            self._last_error = ""
        return bundle

    async def activate(self, bundle: Bundle, *, before_swap: BeforeSwap | None = None) -> None:
        """Loads the bundle, awaits ``before_swap`` (the place to record the activation), swaps.

        Whatever fails before the swap leaves the old revision in force and is raised: ``PolicyRefused`` for a bundle
        that does not load, ``PolicyFailure`` (POLICY_DOWN) after ``close``, and what ``before_swap`` raises.
        Questions that were asked before the swap are answered by the old revision, and say so.
        """
        async with self._swap:
            pool = Pool(bundle, self._limits)
            try:
                await pool.start()
            except (ChildFailed, OSError) as failure:
                refused = PolicyRefused([_fault(str(failure))], revision=bundle.revision)
                self._last_error = str(refused)
                raise refused from failure
            try:
                if before_swap:
                    await before_swap(bundle)
                if self._closed:
                    raise PolicyFailure(Reason.POLICY_DOWN, "the policy engine is closed")
            except BaseException as error:
                self._last_error = f"revision {bundle.revision} was not activated: {type(error).__name__}"
                await pool.close()
                raise
            old, self._pool, self._last_error = self._pool, pool, ""
        if old:
            self._retire(old)

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """See ``PolicyEngine``; the deadline counts from here, queue included."""
        started = self._clock.monotonic()
        pool = self._pool
        if pool is None:
            message = "the policy engine is closed" if self._closed else "no policy is active"
            raise PolicyFailure(
                Reason.POLICY_DOWN if self._closed else Reason.POLICY_UNDEFINED, message, entrypoint=entrypoint
            )
        revision = pool.bundle.revision
        try:
            body = _canonical(document)
            result = await self._result(pool, entrypoint, body)
        except PolicyFailure as failure:
            failure.entrypoint, failure.revision = entrypoint, revision
            raise
        microseconds = int((self._clock.monotonic() - started) * 1_000_000)
        return Decision(entrypoint, result, ENGINE, revision, self._ids.new("decision"), sha256_hex(body), microseconds)

    async def close(self) -> None:
        """Ends every child. Idempotent."""
        self._closed = True
        async with self._swap:
            pool, self._pool = self._pool, None
        if pool:
            await pool.close()
        retiring = dict(self._retiring)
        for task in retiring.values():
            task.cancel()
        await asyncio.gather(*retiring.values(), return_exceptions=True)
        for old in retiring:
            await old.close()

    async def _result(self, pool: Pool, entrypoint: str, body: bytes) -> Mapping[str, Any]:
        if entrypoint not in entrypoints.ENTRYPOINTS:
            raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is not an entry point")
        reply = await pool.ask("data." + entrypoint.replace("/", "."), body)
        if "value" in reply:
            return entrypoints.check(entrypoint, reply["value"])
        if reply.get("undefined") is True:
            raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is undefined for this input")
        raise PolicyFailure(Reason.POLICY_DOWN, f"{entrypoint}: {reply.get('error', 'no answer')}")

    def _retire(self, pool: Pool) -> None:
        task = asyncio.create_task(pool.drain())
        self._retiring[pool] = task
        task.add_done_callback(lambda _: self._retiring.pop(pool, None))


async def check(bundle: Bundle, limits: EmbeddedLimits) -> Bundle:
    """Lint, compile, probes and the bundle's own tests in a throw-away child; raises ``PolicyRefused``.

    The bundle comes back with the number of tests that passed. Whatever kills the child or keeps it beyond
    ``load_seconds`` refuses the bundle: a parser bomb, a runaway test, a bundle that wants too much memory.
    """
    try:
        child = await Child.spawn(limits.memory_mib)
    except OSError as error:
        raise PolicyRefused([_fault(f"no process to check it ({error.strerror})")]) from error
    try:
        async with asyncio.timeout(limits.load_seconds):
            reply = await child.request({"op": "check"}, bundle.to_json())
        faults = [Fault.from_json(row) for row in reply["faults"]]
        tests = int(reply["tests"])
    except TimeoutError:
        faults = [_fault(f"checking it took longer than {limits.load_seconds:g} s")]
    except ChildFailed:
        faults = [_fault(f"checking it ended the process, which may use {limits.memory_mib} MiB")]
    except (KeyError, TypeError, ValueError):
        faults = [_fault(str(reply.get("error", "the check sent something that is not a reply")))]
    finally:
        await child.kill()
    if faults:
        raise PolicyRefused(faults, revision=bundle.revision)
    return Bundle(bundle.modules, bundle.data, bundle.revision, tests)


def _canonical(document: Mapping[str, Any]) -> bytes:
    try:
        return canonical(document)
    except NotCanonical as error:
        raise PolicyFailure(Reason.POLICY_TYPE, f"the input has no canonical form: {error}") from None
    except RecursionError:
        raise PolicyFailure(Reason.POLICY_TYPE, "the input is nested too deeply") from None


def _fault(message: str) -> Fault:
    return Fault(".", 0, 0, message, "nest less, shorten the rules or the tests, or keep less data")
