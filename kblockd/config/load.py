"""From a path to a ``Configuration``, or to all faults at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kblockd.config import clocks, crosscheck, groups, opa, ownership, sources, verification
from kblockd.config.configuration import Configuration, Listener, Loopback, PolicySettings, TelemetrySettings
from kblockd.config.fault import ConfigurationError, ConfigurationFault
from kblockd.config.groups import Account
from kblockd.config.model import DaemonFile
from kblockd.config.sources import SettingsModel, Source, beside
from kblockd.domain.contract import ActionContract
from kblockd.domain.principal import Principal
from kblockd.domain.settings import Clocks, Limits, Shares
from kblockd.paths import Writers
from kblockd.policy.deciding.floor import Floor
from kblockd.upstream.model import UpstreamConfig


def load(
    file: Path,
    *,
    check_pins: bool = True,
    settings_model: SettingsModel | None = None,
    account: Account | None = None,
) -> Configuration:
    """The configuration in ``file`` and in the folders that it names; raises ``ConfigurationError``.

    ``check_pins`` is False only for the command that creates pins. ``settings_model`` returns the settings model of an
    adapter (or None), so that an upstream's ``settings`` are checked here, with file and line. ``account`` is the
    daemon's own; None for a command, which may run as another user and assumes the owner of ``data_dir``.
    """
    daemon = sources.daemon_file(file)
    faults = list(daemon.faults)
    contracts, upstreams = _folders(daemon, faults)
    faults.extend(fault for contract in contracts for fault in contract.faults)
    faults.extend(fault for upstream in upstreams.values() for fault in upstream.faults)
    if daemon.model is not None:
        account = account or Account.of_data(beside(daemon.file, daemon.model.data_dir))
        writers = account.writers(daemon.model)
        faults.extend(_constraints(daemon, daemon.model, contracts, upstreams, check_pins))
        faults.extend(groups.faults(daemon, daemon.model, account))
        faults.extend(ownership.faults(daemon, daemon.model, contracts, upstreams.values(), writers))
    if settings_model is not None:
        for upstream in upstreams.values():
            faults.extend(sources.settings_faults(upstream, settings_model))
    if faults or daemon.model is None or account is None:
        raise ConfigurationError(faults)
    return _configuration(
        daemon.file,
        daemon.model,
        account,
        {s.model.key: s.model for s in contracts if s.model is not None},
        {name: s.model for name, s in upstreams.items() if s.model is not None},
    )


def _folders(
    daemon: Source[DaemonFile], faults: list[ConfigurationFault]
) -> tuple[list[Source[ActionContract]], dict[str, Source[UpstreamConfig]]]:
    """Reads both folders, even if kblockd.yaml has faults, as long as it names them."""
    named: dict[str, Any] = daemon.document.value or {}
    contracts: list[Source[ActionContract]] = []
    upstreams: list[Source[UpstreamConfig]] = []
    if isinstance(named.get("actions"), str):
        contracts, folder_faults = sources.contracts(beside(daemon.file, named["actions"]))
        faults.extend(folder_faults)
    if isinstance(named.get("upstreams"), str):
        upstreams, folder_faults = sources.upstreams(beside(daemon.file, named["upstreams"]))
        faults.extend(folder_faults)
    return contracts, {source.file.stem: source for source in upstreams}


def _constraints(
    daemon: Source[DaemonFile],
    model: DaemonFile,
    contracts: list[Source[ActionContract]],
    upstreams: dict[str, Source[UpstreamConfig]],
    check_pins: bool,
) -> Iterator[ConfigurationFault]:
    yield from crosscheck.principals(daemon, model)
    yield from crosscheck.listeners(daemon, model)
    yield from crosscheck.adapters(daemon, model, upstreams)
    yield from crosscheck.contracts(daemon, model, contracts, upstreams, check_pins=check_pins)
    yield from opa.faults(daemon, model)
    yield from verification.faults(daemon, model)
    yield from clocks.faults(daemon, contracts)


def _configuration(
    file: Path,
    model: DaemonFile,
    account: Account,
    contracts: dict[tuple[str, str], ActionContract],
    upstreams: dict[str, UpstreamConfig],
) -> Configuration:
    loopback = model.development.insecure_loopback
    telemetry = model.telemetry
    writers = account.writers(model)
    return Configuration(
        file=file.absolute(),
        instance=model.instance,
        data_dir=beside(file, model.data_dir),
        origin=model.ledger.origin,
        adapters=model.adapters,
        policy=_policy(file, model, writers),
        principals=MappingProxyType({p.id: Principal(**p.model_dump()) for p in model.principals}),
        listeners=_listeners(file, model, account),
        insecure_loopback=Loopback(loopback.address, loopback.principal) if loopback else None,
        clocks=Clocks(**model.clocks.model_dump()),
        limits=Limits(
            **model.limits.model_dump(exclude={"per_principal"}),
            per_principal=Shares(**model.limits.per_principal.model_dump()),
        ),
        telemetry=TelemetrySettings(telemetry.otlp, telemetry.sample_ratio, frozenset(telemetry.trust_parent_sampling)),
        unpinned_tools=model.development.unpinned_tools,
        failpoints=model.development.failpoints,
        contracts=MappingProxyType(contracts),
        upstreams=MappingProxyType(upstreams),
        writers=writers,
        warnings=(*_warnings(model, upstreams), *_unmet(model, contracts.values()), *groups.warnings(model, account)),
    )


def _policy(file: Path, model: DaemonFile, writers: Writers) -> PolicySettings:
    return PolicySettings(
        opa=opa.settings(file, model, writers),
        bundle=beside(file, model.policy.bundle),
        trust=verification.trust(file, model),
        evaluate_timeout_seconds=model.policy.evaluate_timeout_seconds,
        workers=model.policy.workers,
        memory_mib=model.policy.memory_mib,
        input_retention_days=model.policy.input_retention_days,
        writers=writers,
        require_tests=model.policy.require_tests,
        floors=MappingProxyType({tier: Floor(floor.count, floor.roles) for tier, floor in model.approval_floor}),
    )


def _listeners(file: Path, model: DaemonFile, account: Account) -> tuple[Listener, ...]:
    gids = groups.gids(model, account)
    return tuple(
        Listener(beside(file, listener.unix), int(listener.mode, 8), listener.principal, gids.get(position))
        for position, listener in enumerate(model.listeners)
    )


def _warnings(model: DaemonFile, upstreams: dict[str, UpstreamConfig]) -> Iterator[str]:
    """Dangerous settings that are allowed, one sentence each."""
    development = model.development
    if development.insecure_loopback:
        yield (
            f"development.insecure_loopback: every process on this machine is {development.insecure_loopback.principal}"
            f" on {development.insecure_loopback.address}"
        )
    if development.unpinned_tools:
        yield "development.unpinned_tools: tools may run whose definitions nobody has reviewed"
    if development.failpoints:
        yield "development.failpoints: KBLOCKD_FAILPOINT can kill, fail or stall this daemon"
    if model.policy.verification and model.policy.verification.allow_unsigned:
        yield "policy.verification.allow_unsigned: anybody who can write the policy bundle decides, without a signature"
    if not model.policy.require_tests:
        yield "policy.require_tests: an untested policy may come into force"
    for name, upstream in sorted(upstreams.items()):
        for network in upstream.allow_addresses:
            if network.prefixlen == 0:
                yield f"upstream {name}: allow_addresses holds {network}, so the address guard is off"


def _unmet(model: DaemonFile, contracts: Collection[ActionContract]) -> Iterator[str]:
    """Floors that the configured principals cannot meet, where an action stands on one: it would be asked for, and
    never run."""
    for tier, floor in model.approval_floor:
        actions = sorted({contract.operation for contract in contracts if contract.action.risk_tier == tier})
        people = [one for one in model.principals if one.kind != "agent"]
        owners = {one.owner for one in people if not floor.roles or set(floor.roles) & set(one.roles)}
        if actions and len(owners) < floor.count:
            roles = f" with one of the roles {', '.join(floor.roles)}" if floor.roles else ""
            yield (
                f"approval_floor.{tier}: count is {floor.count}, owners{roles} who can approve: {len(owners)}. "
                f"These actions cannot run: {', '.join(actions)}"
            )
