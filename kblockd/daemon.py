"""The composition root: the only place where concrete parts meet. One exit stack opens them and closes them in reverse.

The order of the start: configuration, keys, store (its lock is what makes this the one daemon), activations, upstreams,
policy, and only then the sockets. The order of the stop: no new calls, runs end, the store closes last but for traces.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kblockd.admission import Admission, Slots
from kblockd.allocator import bound_heaps
from kblockd.approvals.service import Approvals
from kblockd.config import Account, Configuration, ConfigurationError, load
from kblockd.credentials import keys_passphrase
from kblockd.decision_point import Activated, Watch, Watching, open_engine
from kblockd.domain import rows
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.failpoints import Failpoints, NoFailpoints
from kblockd.domain.fold import fold
from kblockd.domain.records import read
from kblockd.ending import EXIT_FAILED, Ending, leave_nobody, run_alone
from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.keyring import KeyRing
from kblockd.execution import refusals
from kblockd.execution.activate import Activation
from kblockd.execution.capacity import Capacity
from kblockd.execution.changes import Changes
from kblockd.execution.counting import RefusalCounts
from kblockd.execution.flights import Flights
from kblockd.execution.late import LateOutcomes
from kblockd.execution.leases import Leases
from kblockd.execution.parts import Instance, Parts
from kblockd.execution.retention import InputRetention
from kblockd.execution.service import Executions
from kblockd.execution.signing_keys import check_keys
from kblockd.execution.supervisor import Supervisor
from kblockd.execution.sweeper import Sweeper
from kblockd.failpoints import EnvironmentFailpoints
from kblockd.inquiries import Inquiries
from kblockd.ledger import start as ledger_start
from kblockd.ledger.ledger import Ledger
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import verify
from kblockd.policy.engine import PolicyEngine
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine
from kblockd.policy.shared import SharedEngine
from kblockd.policy.standing import StandingFile
from kblockd.rpc.identity import Listener, LoopbackListener, UnixListener
from kblockd.rpc.server import RpcServer
from kblockd.rpc.sockets import UnsafeSocket
from kblockd.store.protocol import StoreFailed, StoreRefused
from kblockd.store.rocks import RocksStore
from kblockd.system import RandomIds, SystemClock, boot_id, since_boot
from kblockd.telemetry import contract as spans
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.setup import set_up_logging
from kblockd.telemetry.tracing import Tracing, open_tracing
from kblockd.upstream.adapter import AdapterPlugin
from kblockd.upstream.catalog import CatalogError, Upstreams, load_plugins, open_upstreams
from kblockd.watchdog import Watchdog

EXIT_REFUSED = 1
GRACE_SECONDS = 20.0
_NEW_OBJECTS = 20_000
_LATE_SECONDS = 30.0
_log = logging.getLogger(__name__)
_TASKS: set[asyncio.Task[Any]] = set()  # asyncio keeps weak references only


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that serves."""

    configuration: Configuration
    rpc: RpcServer
    parts: Parts
    supervisor: Supervisor
    policy: Watch
    standing: StandingFile
    ending: Ending


def run(config: Path) -> int:
    """``kblockd serve``: until SIGTERM or SIGINT. Returns the exit code: 0, 1 refused to start, 75 failed."""
    bound_heaps()
    set_up_logging()
    try:
        return run_alone(_serve(config))
    except (ConfigurationError, CatalogError, KeysRefused, StoreRefused, UnsafeSocket) as refused:
        print(f"kblockd refuses to start:\n{refused}", file=sys.stderr)
        return EXIT_REFUSED
    except StoreFailed as failed:
        # Its reason is in the log already: the store failed under the first commits, before anything was served.
        print(f"kblockd failed while it was starting: {failed}", file=sys.stderr)
        return EXIT_FAILED


async def _serve(config: Path) -> int:
    async with open_daemon(load_checked(config)) as daemon:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.ending.ask, lambda: _spawn(_hasten(daemon)))
        loop.add_signal_handler(signal.SIGHUP, lambda: _spawn(daemon.standing.reload(daemon.policy.reload, "reload")))
        await daemon.standing.listening()
        _log.info("serving on %s", ", ".join(daemon.rpc.targets))
        _spare_the_collector()
        await daemon.ending.event.wait()
        _log.info("stopping")
    code = EXIT_FAILED if daemon.ending.failed else 0
    await leave_nobody(code)
    return code


async def _hasten(daemon: Daemon) -> None:
    await daemon.rpc.stop(0.0)
    await daemon.supervisor.stop(0.0)


def _spare_the_collector() -> None:
    """What was opened stays: the collector need not walk it again and again, nor look after every few hundred objects
    of a call, which die by their reference counts."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def load_checked(config: Path) -> Configuration:
    """The configuration with the plugins' settings checked; raises ``ConfigurationError`` or ``CatalogError``."""
    account = Account.of_process()
    plugins = _plugins(load(config, account=account))
    # Only now are the plugins known whose settings the upstreams hold.
    return load(
        config,
        settings_model=lambda name: plugins[name].settings_model if name in plugins else None,
        account=account,
    )


@asynccontextmanager
async def open_daemon(configuration: Configuration) -> AsyncIterator[Daemon]:
    """Everything open and serving; closed in reverse. Raises what refuses a start, naming the next step."""
    for warning in configuration.warnings:
        _log.warning("%s", warning)
    async with AsyncExitStack() as stack:
        yield await _compose(configuration, stack)


async def _compose(configuration: Configuration, stack: AsyncExitStack) -> Daemon:
    """In the order of the start; what fails here closes what was opened before it."""
    clock, ending = SystemClock(elapsed=since_boot), Ending()
    ids = RandomIds(lambda: int(clock.now().timestamp() * 1000))
    tracing = _tracing(configuration, ids)
    stack.push_async_callback(tracing.aclose)  # after the ledger is closed: a black hole must not delay it
    keys = KeyRing.load(configuration.data_dir / "keys", passphrase=keys_passphrase(os.environ))
    failpoints = _failpoints(configuration)
    engine, watching = open_engine(configuration.policy, clock, ids)
    stack.push_async_callback(engine.close)  # of a start that fails; an orderly stop closes it before the store
    early = _spawn(_prepare(engine, configuration))  # in processes of its own, while the store is looked at
    stack.push_async_callback(_cancel, early)
    store = await _open_store(configuration, failpoints, ending)
    stack.push_async_callback(store.close)
    clock.after(await _last_record(store))
    await check_keys(store, keys)
    activation = Activation(store, clock)
    stack.push_async_callback(_record_stop, activation, store.incarnation)
    await _activate(configuration, activation, store, keys)
    watchdog = Watchdog(asyncio.get_running_loop(), configuration.clocks.lease_ttl_seconds)
    stack.callback(watchdog.stop)  # after the upstreams are closed: a plugin may block the loop there, too
    upstreams = await stack.enter_async_context(_upstreams(configuration, clock))
    for warning in upstreams.check_credentials():
        _log.warning("%s", warning)
    stack.push_async_callback(engine.close)
    parts = _parts(configuration, store, engine, upstreams, keys, clock, ids, failpoints)
    stack.push_async_callback(refusals.write_counts, parts)  # after the last call, before the store closes
    supervisor = Supervisor(parts, tracing.begin, tracing.finish)
    rpc = _rpc(configuration, parts, engine, supervisor, tracing)
    standing = StandingFile(configuration.data_dir, engine, clock)
    policy = _watch(engine, watching, activation, standing)
    await early
    await standing.reload(policy.reload, "start")
    watchdog.start()
    stack.push_async_callback(supervisor.stop, GRACE_SECONDS)
    await rpc.start()
    stack.push_async_callback(rpc.stop, GRACE_SECONDS)
    sweeper = Sweeper(parts, supervisor)
    retention = InputRetention(store, clock, configuration.policy.input_retention_days)
    for work in (
        parts.leases.beat(),
        sweeper.run(),
        policy.run(),
        retention.run(),
        refusals.keep_counts(parts),
        _say_serving(engine, rpc, ending),
    ):
        stack.push_async_callback(_cancel, _endless(work, ending))
    if not store.clean:
        stack.push_async_callback(_cancel, _spawn(_verify(store, ending)))
    return Daemon(configuration, rpc, parts, supervisor, policy, standing, ending)


async def _open_store(configuration: Configuration, failpoints: Failpoints, ending: Ending) -> RocksStore:
    return await RocksStore.open(
        configuration.data_dir,
        fold=fold,
        tree=MerkleTree(),
        failpoints=failpoints,
        on_failure=ending.fail,
        inspect=ledger_start.inspect(fold),
    )


async def _prepare(engine: PolicyEngine, configuration: Configuration) -> None:
    """What a remote OPA serves is not ours to prepare; why a bundle is refused is said when it is to be activated."""
    if isinstance(engine, LoadingEngine):
        with suppress(PolicyRefused):
            await engine.prepare(configuration.policy.bundle)


async def _activate(configuration: Configuration, activation: Activation, store: RocksStore, keys: KeyRing) -> None:
    await activation.started(store.incarnation, configuration.instance, version("kblockd"), clean=store.clean)
    await activation.keys(keys)
    await activation.principals(configuration.principals)
    await activation.contracts(configuration.contracts)
    await activation.upstreams(configuration.upstreams)


def _parts(
    configuration: Configuration,
    store: RocksStore,
    engine: PolicyEngine,
    upstreams: Upstreams,
    keys: KeyRing,
    clock: SystemClock,
    ids: RandomIds,
    failpoints: Failpoints,
) -> Parts:
    clocks, limits = configuration.clocks, configuration.limits
    admission = Admission(limits.per_principal, clock)
    return Parts(
        store=store,
        ledger=Ledger(store, configuration.origin, lambda: [keys.log]),
        engine=SharedEngine(engine, Slots(None, limits.per_principal.policy_questions)),
        upstreams=upstreams,
        contracts=configuration.contracts,
        principals=configuration.principals,
        keys=keys,
        leases=Leases(
            clock, store.incarnation, clocks.lease_ttl_seconds, clocks.heartbeat_seconds, clocks.skew_seconds
        ),
        late=LateOutcomes(clock.monotonic),
        changes=Changes(),
        clock=clock,
        ids=ids,
        failpoints=failpoints,
        clocks=clocks,
        limits=limits,
        instance=Instance(configuration.instance, version("kblockd"), boot_id(), configuration.origin),
        capacity=Capacity(limits, store.free_bytes, clock.monotonic, admission),
        admission=admission,
        describing=Flights(),
        refused=RefusalCounts(),
        floors=configuration.policy.floors,
        unpinned_tools=configuration.unpinned_tools,
        keep_inputs=configuration.policy.input_retention_days > 0,
    )


def _upstreams(configuration: Configuration, clock: SystemClock) -> AbstractAsyncContextManager[Upstreams]:
    return open_upstreams(
        configuration.upstreams,
        _plugins(configuration),
        max_response_bytes=configuration.limits.response_bytes,
        share=configuration.limits.per_principal.upstream_calls,
        # While a call may still answer, no absence is proved: the other half of the reconciliation is for that.
        late_seconds=min(_LATE_SECONDS, configuration.clocks.reconcile_seconds / 2),
        writers=configuration.writers,
        clock=clock.monotonic,
        elapsed=since_boot,
    )


def _plugins(configuration: Configuration) -> dict[str, AdapterPlugin]:
    """An adapter that no upstream uses costs no start its imports."""
    used = {upstream.adapter for upstream in configuration.upstreams.values()}
    return load_plugins(configuration.adapters, used=used)


def _rpc(
    configuration: Configuration, parts: Parts, engine: PolicyEngine, supervisor: Supervisor, tracing: Tracing
) -> RpcServer:
    approvals = Approvals(
        parts.store,
        parts.principals,
        parts.keys,
        parts.clock,
        parts.ids,
        on_decided=parts.changes.notify,
        check_space=parts.capacity.check_space,
    )
    return RpcServer(
        _listeners(configuration),
        Executions(parts, supervisor, tracing.finish),
        approvals,
        parts.ledger,
        parts.engine,
        parts.clock,
        parts.ids,
        tracing,
        policies=Inquiries(engine, parts.store, configuration.policy, parts.clock, parts.ids),
        admission=parts.admission,
        max_arguments=configuration.limits.arguments_bytes,
    )


def _listeners(configuration: Configuration) -> list[Listener]:
    principals = configuration.principals
    found: list[Listener] = [
        UnixListener(one.path, principals[one.principal], one.mode, one.gid) for one in configuration.listeners
    ]
    if loopback := configuration.insecure_loopback:
        host, _, port = loopback.address.rpartition(":")
        found.append(LoopbackListener(principals[loopback.principal], host.strip("[]"), int(port)))
    return found


def _watch(engine: PolicyEngine, watching: Watching, activation: Activation, standing: StandingFile) -> Watch:
    async def activated(fresh: Activated) -> None:
        name = engine.status().engine
        await activation.policy(fresh.revision, name, fresh.tests, fresh.to_json(), fresh.origin)

    async def in_force(fresh: Activated) -> None:
        recorded = await activation.store.get(rows.policy())  # durable
        _log.info("policy revision %s is in force, %s", fresh.revision, fresh.origin)
        await standing.activated(fresh.revision, recorded[1]["at"] if recorded else "", fresh.origin.signer)

    async def refused(error: PolicyRefused) -> None:
        _log.error("policy refused, %s: %s", _standing(engine), error)
        await activation.policy_refused(error.revision, len(error.faults))
        await standing.refused(error)

    return watching(activated, in_force, refused)


def _standing(engine: PolicyEngine) -> str:
    status = engine.status()
    return (
        f"revision {status.revision} stays in force" if status.ready else "there is none in force: every call is denied"
    )


async def _say_serving(engine: PolicyEngine, rpc: RpcServer, ending: Ending) -> None:
    """Health follows what is true: a policy is in force, and the store has not failed."""
    while True:
        await rpc.set_serving(engine.status().ready and not (ending.failed or ending.distrusted))
        await asyncio.sleep(0.2)


async def _verify(store: RocksStore, ending: Ending) -> None:
    """After an unclean stop: the whole ledger against its rows and tree; a difference means NOT_SERVING and that
    nothing is committed, so nothing is sent, any more. A ledger that cannot be verified is not one that verifies."""
    try:
        async with store.frozen() as (view, head):
            report = await asyncio.to_thread(verify, view, fold, heads={head.size: head.root})
    except StoreFailed:
        return  # the daemon is ending
    except Exception as error:
        _distrust(store, ending, f"the ledger cannot be verified: {error}")
        return
    if report.ok:
        _log.info("the ledger of %d records verifies after the unclean stop", report.size)
    else:
        _distrust(store, ending, f"the ledger does not verify, {report.faults} differences: {report.differences[0]}")


def _distrust(store: RocksStore, ending: Ending, reason: str) -> None:
    store.distrust(reason)
    ending.distrust(reason)


def _tracing(configuration: Configuration, ids: RandomIds) -> Tracing:
    telemetry = configuration.telemetry
    sampling = Sampling(telemetry.sample_ratio, telemetry.trust_parent_sampling, os.urandom(32))
    return open_tracing(
        telemetry.otlp,
        sampling,
        ids,
        instance=configuration.instance,
        version=version("kblockd"),
        configured=_vocabulary(configuration),
    )


def _vocabulary(configuration: Configuration) -> dict[str, set[str]]:
    """The names that may stand in spans: those that somebody configured."""
    contracts = configuration.contracts.values()
    tools = {contract.tool.name for contract in contracts}
    for contract in contracts:
        tools |= {one.tool for one in (contract.reads.snapshot, contract.reads.verify) if one is not None}
        tools |= {lookup.tool for lookup in contract.lookup}
    return {
        spans.AGENT: set(configuration.principals),
        spans.OPERATION: {contract.operation for contract in contracts},
        spans.ENVIRONMENT: {contract.environment for contract in contracts},
        spans.UPSTREAM: set(configuration.upstreams),
        spans.TOOL: tools,
    }


def _failpoints(configuration: Configuration) -> Failpoints:
    text = os.environ.get("KBLOCKD_FAILPOINT", "")
    return EnvironmentFailpoints(text) if configuration.failpoints else NoFailpoints()


async def _last_record(store: RocksStore) -> dt.datetime | None:
    record = await store.leaf(store.size() - 1) if store.size() else None
    return parse_rfc3339(read(record.leaf).at) if record else None


async def _record_stop(activation: Activation, incarnation: int) -> None:
    with suppress(StoreFailed):
        await activation.stopped(incarnation)


def _spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(work)
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    return task


def _endless(work: Coroutine[Any, Any, None], ending: Ending) -> asyncio.Task[Any]:
    """Work that only ``_cancel`` ends. Nobody waits for it meanwhile, so a defect in it (no lease is renewed any more,
    health says what was true once) would be seen by nobody; the next start has all of it again."""
    task = _spawn(work)
    task.add_done_callback(lambda ended: _died(ended, ending))
    return task


def _died(task: asyncio.Task[Any], ending: Ending) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("what must run all the time has ended", exc_info=error)
        ending.fail(f"{task.get_name()} ended with {type(error).__name__}")


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
