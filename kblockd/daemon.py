"""The composition root: the only place that knows concrete parts. One exit stack opens them and closes them in reverse.

Start: configuration, keys, store (whose lock makes this the only daemon), activations, upstreams, policy, and the
sockets last. Stop: no new calls, runs end, then the store closes, and tracing last.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from kblockd.admission import Admission, Slots
from kblockd.allocator import bound_heaps
from kblockd.approvals.service import Approvals
from kblockd.background import cancel, spawn, spawn_endless
from kblockd.config import Account, Configuration, ConfigurationError, load
from kblockd.credentials import keys_passphrase
from kblockd.decision_point import Watch, open_engine
from kblockd.domain.failpoints import Failpoints, NoFailpoints
from kblockd.domain.stages import Stage
from kblockd.ending import EXIT_FAILED, Shutdown, cancel_remaining, run_alone
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
from kblockd.ledger.ledger import Ledger
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger_store import last_record_time, open_store, verify_after_unclean_stop
from kblockd.observability import open_traces
from kblockd.policy.activation.standing import StandingFile
from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.deciding.candidate import ComparingEngine
from kblockd.policy.deciding.shared import SharedEngine
from kblockd.policy_candidate import Candidates
from kblockd.policy_watch import prepare, watch
from kblockd.rpc.identity import Listener, LoopbackListener, UnixListener
from kblockd.rpc.server import RpcServer
from kblockd.rpc.sockets import UnsafeSocket
from kblockd.store.protocol import StoreFailed, StoreRefused
from kblockd.store.rocks import RocksStore
from kblockd.system import RandomIds, SystemClock, boot_id, since_boot
from kblockd.telemetry.setup import set_up_logging
from kblockd.telemetry.tracing import Tracing
from kblockd.upstream.adapter import AdapterPlugin
from kblockd.upstream.catalog import CatalogError, Upstreams, load_plugins, open_upstreams
from kblockd.watchdog import Watchdog

EXIT_REFUSED = 1
GRACE_SECONDS = 20.0
_NEW_OBJECTS = 20_000
_LATE_SECONDS = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """A serving daemon."""

    configuration: Configuration
    rpc: RpcServer
    parts: Parts
    supervisor: Supervisor
    policy: Watch
    standing: StandingFile
    ending: Shutdown


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
        # The reason is in the log already: the store failed during the first commits, before serving anything.
        print(f"kblockd failed while it was starting: {failed}", file=sys.stderr)
        return EXIT_FAILED


async def _serve(config: Path) -> int:
    async with open_daemon(load_checked(config)) as daemon:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.ending.ask, lambda: spawn(_hasten(daemon)))
        loop.add_signal_handler(signal.SIGHUP, lambda: spawn(daemon.standing.reload(daemon.policy.reload, "reload")))
        await daemon.standing.listening()
        _log.info("serving on %s", ", ".join(daemon.rpc.targets))
        _tune_garbage_collector()
        await daemon.ending.event.wait()
        _log.info("stopping")
    code = EXIT_FAILED if daemon.ending.failed else 0
    await cancel_remaining(code)
    return code


async def _hasten(daemon: Daemon) -> None:
    await daemon.rpc.stop(0.0)
    await daemon.supervisor.stop(0.0)


def _tune_garbage_collector() -> None:
    """Freezes start-up objects and raises the GC thresholds; per-call garbage is freed by reference counting."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def load_checked(config: Path) -> Configuration:
    """The configuration with the plugins' settings checked; raises ``ConfigurationError`` or ``CatalogError``."""
    account = Account.of_process()
    plugins = _plugins(load(config, account=account))
    # The second pass checks the upstreams' settings, whose models come from the plugins that the first pass named.
    return load(
        config,
        settings_model=lambda name: plugins[name].settings_model if name in plugins else None,
        account=account,
    )


@asynccontextmanager
async def open_daemon(configuration: Configuration) -> AsyncIterator[Daemon]:
    """Opens everything and serves; closes in reverse. Raises the errors that refuse a start, with the next step."""
    for warning in configuration.warnings:
        _log.warning("%s", warning)
    async with AsyncExitStack() as stack:
        yield await _compose(configuration, stack)


async def _compose(configuration: Configuration, stack: AsyncExitStack) -> Daemon:
    """In the order of the start; a failure closes everything opened before it."""
    clock, ending = SystemClock(elapsed=since_boot), Shutdown()
    ids = RandomIds(lambda: int(clock.now().timestamp() * 1000))
    tracing = open_traces(configuration, ids)
    stack.push_async_callback(tracing.aclose)  # after the ledger is closed: an unreachable collector must not delay it
    keys = KeyRing.load(configuration.data_dir / "keys", passphrase=keys_passphrase(os.environ))
    failpoints = _failpoints(configuration)
    engine, new_watch = open_engine(configuration.policy, clock, ids)
    stack.push_async_callback(engine.close)  # for a start that fails; an orderly stop closes it before the store
    prepared = spawn(prepare(engine, configuration.policy))  # in its own processes, while the store is being checked
    stack.push_async_callback(cancel, prepared)
    tree = MerkleTree()
    store, activation = await _open_ledger(configuration, stack, tree, clock, keys, failpoints, ending)
    watchdog = Watchdog(asyncio.get_running_loop(), configuration.clocks.lease_ttl_seconds)
    stack.callback(watchdog.stop)  # after the upstreams are closed: a plugin may block the loop there too
    upstreams = await _open_upstreams(configuration, stack, clock)
    stack.push_async_callback(engine.close)
    ledger = Ledger(store, configuration.origin, lambda: [keys.log], tree.recent)
    store.when_headed(
        lambda head, labels: ledger.sign_head(head.size, head.root) if Stage.SEAL.label in labels else None
    )
    comparing = ComparingEngine(SharedEngine(engine, Slots(None, configuration.limits.per_principal.policy_questions)))
    candidates = Candidates(comparing, configuration.policy, clock, ids)
    stack.push_async_callback(candidates.clear)
    parts = _parts(configuration, store, ledger, comparing, upstreams, keys, clock, ids, failpoints)
    stack.push_async_callback(refusals.write_counts, parts)  # after the last call, before the store closes
    supervisor = Supervisor(parts, tracing.begin, tracing.finish)
    inquiries = Inquiries(engine, store, configuration.policy, clock, ids)
    rpc = _rpc(configuration, parts, inquiries, candidates, supervisor, tracing)
    standing = StandingFile(configuration.data_dir, engine, clock)
    policy = watch(engine, new_watch, activation, standing)
    await prepared
    await standing.reload(policy.reload, "start")
    watchdog.start()
    stack.push_async_callback(supervisor.stop, GRACE_SECONDS)
    await rpc.start()
    stack.push_async_callback(rpc.stop, GRACE_SECONDS)
    daemon = Daemon(configuration, rpc, parts, supervisor, policy, standing, ending)
    _run_in_background(daemon, store, engine, stack)
    return daemon


async def _open_ledger(
    configuration: Configuration,
    stack: AsyncExitStack,
    tree: MerkleTree,
    clock: SystemClock,
    keys: KeyRing,
    failpoints: Failpoints,
    ending: Shutdown,
) -> tuple[RocksStore, Activation]:
    """Opens the store and records the start and the configuration in force."""
    store = await open_store(configuration.data_dir, tree, failpoints, ending)
    stack.push_async_callback(store.close)
    clock.after(await last_record_time(store))
    await check_keys(store, keys)
    activation = Activation(store, clock)
    stack.push_async_callback(_record_stop, activation, store.incarnation)
    await activation.started(store.incarnation, configuration.instance, version("kblockd"), clean=store.clean)
    await activation.keys(keys)
    await activation.principals(configuration.principals)
    await activation.contracts(configuration.contracts)
    await activation.upstreams(configuration.upstreams)
    return store, activation


async def _open_upstreams(configuration: Configuration, stack: AsyncExitStack, clock: SystemClock) -> Upstreams:
    opening = open_upstreams(
        configuration.upstreams,
        _plugins(configuration),
        max_response_bytes=configuration.limits.response_bytes,
        share=configuration.limits.per_principal.upstream_calls,
        # No absence is proved while a call may still answer, so half of the reconciliation time is left for that.
        late_seconds=min(_LATE_SECONDS, configuration.clocks.reconcile_seconds / 2),
        writers=configuration.writers,
        clock=clock.monotonic,
        elapsed=since_boot,
    )
    upstreams = await stack.enter_async_context(opening)
    for warning in upstreams.check_credentials():
        _log.warning("%s", warning)
    return upstreams


def _run_in_background(daemon: Daemon, store: RocksStore, engine: PolicyEngine, stack: AsyncExitStack) -> None:
    parts, ending = daemon.parts, daemon.ending
    sweeper = Sweeper(parts, daemon.supervisor)
    retention = InputRetention(store, parts.clock, daemon.configuration.policy.input_retention_days)
    for work in (
        parts.leases.beat(),
        sweeper.run(),
        daemon.policy.run(),
        retention.run(),
        refusals.keep_counts(parts),
        _report_health(engine, daemon.rpc, ending),
    ):
        stack.push_async_callback(cancel, spawn_endless(work, ending))
    if not store.clean:
        stack.push_async_callback(cancel, spawn(verify_after_unclean_stop(store, ending)))


def _parts(
    configuration: Configuration,
    store: RocksStore,
    ledger: Ledger,
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
        ledger=ledger,
        engine=engine,
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


def _plugins(configuration: Configuration) -> dict[str, AdapterPlugin]:
    """Loads only adapters that an upstream uses, to keep the start fast."""
    used = {upstream.adapter for upstream in configuration.upstreams.values()}
    return load_plugins(configuration.adapters, used=used)


def _rpc(
    configuration: Configuration,
    parts: Parts,
    inquiries: Inquiries,
    candidates: Candidates,
    supervisor: Supervisor,
    tracing: Tracing,
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
        policies=inquiries,
        candidates=candidates,
        admission=parts.admission,
        max_arguments=configuration.limits.arguments_bytes,
    )


def _listeners(configuration: Configuration) -> list[Listener]:
    principals = configuration.principals
    listeners: list[Listener] = [
        UnixListener(each.path, principals[each.principal], each.mode, each.gid) for each in configuration.listeners
    ]
    if loopback := configuration.insecure_loopback:
        host, _, port = loopback.address.rpartition(":")
        listeners.append(LoopbackListener(principals[loopback.principal], host.strip("[]"), int(port)))
    return listeners


async def _report_health(engine: PolicyEngine, rpc: RpcServer, ending: Shutdown) -> None:
    """SERVING while a policy is in force and the store has neither failed nor become distrusted."""
    while True:
        await rpc.set_serving(engine.status().ready and not (ending.failed or ending.distrusted))
        await asyncio.sleep(0.2)


def _failpoints(configuration: Configuration) -> Failpoints:
    text = os.environ.get("KBLOCKD_FAILPOINT", "")
    return EnvironmentFailpoints(text) if configuration.failpoints else NoFailpoints()


async def _record_stop(activation: Activation, incarnation: int) -> None:
    with suppress(StoreFailed):
        await activation.stopped(incarnation)
