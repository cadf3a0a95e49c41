"""Constraints between the files, and between the keys of kblockd.yaml."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile
from kblockd.config.sources import Source, beside
from kblockd.domain.contract import ActionContract
from kblockd.domain.contract import Path as KeyPath
from kblockd.policy.opa.access import is_loopback
from kblockd.upstream.model import UpstreamConfig

SOCKET_PATH_BYTES: Final = 107  # Linux's sun_path has 108 bytes, the last of which is NUL
OPERATOR: Final = "operator"

Contracts = Sequence[Source[ActionContract]]
Upstreams = Mapping[str, Source[UpstreamConfig]]


def principals(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    """Ids are unique, even to the eye, and no principal can both request and approve, or both approve and resolve."""
    yield from _look_alikes(daemon, model)
    seen: set[str] = set()
    for position, principal in enumerate(model.principals):
        at: KeyPath = ("principals", position)
        if principal.id in seen:
            message = f"duplicate id {principal.id!r}"
            yield daemon.document.fault((*at, "id"), message, "give each principal its own id")
        seen.add(principal.id)
        if principal.kind == "agent" and principal.roles:
            yield daemon.document.fault(
                (*at, "roles"), "an agent with roles could approve", "give the role to another principal"
            )
        if principal.kind == "agent" and principal.tenant == "*":
            yield daemon.document.fault((*at, "tenant"), "an agent cannot have all tenants", "name one tenant")
        if OPERATOR in principal.roles and len(set(principal.roles)) > 1:
            yield daemon.document.fault(
                (*at, "roles"), "operator and approver on one socket", "make two principals, each with its own socket"
            )
    for position, name in enumerate(model.telemetry.trust_parent_sampling):
        if name not in seen:
            yield _unknown(daemon, ("telemetry", "trust_parent_sampling", position), name)


def _look_alikes(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    """Ids and owners that differ, but that people read as the same (LOC-05). Their alphabet allows only a difference in
    case; compatibility forms are folded too, in case the alphabet ever grows."""
    for name in ("id", "owner"):
        first: dict[str, tuple[str, int]] = {}
        for position, principal in enumerate(model.principals):
            value: str = getattr(principal, name)
            other, where = first.setdefault(unicodedata.normalize("NFKC", value).casefold(), (value, position))
            if other != value:
                place = daemon.document.place(("principals", where, name))
                message = f"{value!r} differs from {other!r} ({place}) only in case"
                yield daemon.document.fault(("principals", position, name), message, "write both alike, or rename one")


def listeners(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    """Principals are known, each socket has one principal, and paths fit into a socket address."""
    known = {principal.id: principal for principal in model.principals}
    first: dict[Path, int] = {}
    for position, listener in enumerate(model.listeners):
        at: KeyPath = ("listeners", position)
        path = Path(os.path.normpath(beside(daemon.file, listener.unix)))
        length = len(str(path).encode())
        if length > SOCKET_PATH_BYTES:
            message = f"{path} has {length} bytes, more than the {SOCKET_PATH_BYTES} of a socket address"
            yield daemon.document.fault((*at, "unix"), message, "use a shorter path, such as one below /run")
        if path in first:
            place = daemon.document.place(("listeners", first[path]))
            message = f"is also the socket of {place}"
            yield daemon.document.fault((*at, "unix"), message, "give each principal its own socket")
        first.setdefault(path, position)
        if listener.principal not in known:
            yield _unknown(daemon, (*at, "principal"), listener.principal)
    yield from _loopback(daemon, model, {name: principal.roles for name, principal in known.items()})
    if not model.listeners and model.development.insecure_loopback is None:
        yield daemon.document.fault(("listeners",), "nobody can call", "add a socket for each principal")


def _loopback(
    daemon: Source[DaemonFile], model: DaemonFile, roles: Mapping[str, tuple[str, ...]]
) -> Iterator[ConfigurationFault]:
    loopback = model.development.insecure_loopback
    if loopback is None:
        return
    at: KeyPath = ("development", "insecure_loopback", "principal")
    if loopback.principal not in roles:
        yield _unknown(daemon, at, loopback.principal)
    elif roles[loopback.principal]:
        message = "every process on this machine could approve or resolve"
        yield daemon.document.fault(at, message, "name a principal without roles")


def adapters(daemon: Source[DaemonFile], model: DaemonFile, upstreams: Upstreams) -> Iterator[ConfigurationFault]:
    """Every upstream's adapter is enabled, and no secret travels in clear text."""
    for source in upstreams.values():
        upstream = source.model
        if upstream is None:
            continue
        if upstream.adapter not in model.adapters:
            place = daemon.document.place(("adapters",))
            message = f"{upstream.adapter!r} is not among the adapters ({place}): {', '.join(model.adapters)}"
            yield source.document.fault(("adapter",), message, "add it there, or correct the name")
        host = upstream.origin.host
        local = host == "localhost" or is_loopback(host)  # a name such as 127.example.com is anybody's
        for name, reference in upstream.credentials.model_dump().items():
            if reference != "none" and upstream.origin.scheme == "http" and not local:
                message = "would travel in clear text"
                yield source.document.fault(("credentials", name), message, "use https, or a loopback address")


def contracts(
    daemon: Source[DaemonFile], model: DaemonFile, sources: Contracts, upstreams: Upstreams, *, check_pins: bool
) -> Iterator[ConfigurationFault]:
    """One contract per (operation, environment); upstreams exist; tools are pinned; reads name no write tool."""
    first: dict[tuple[str, str], Source[ActionContract]] = {}
    writes = {(s.model.tool.upstream, s.model.tool.name): s for s in sources if s.model is not None}
    for source in sources:
        contract = source.model
        if contract is None:
            continue
        if contract.key in first:
            place = first[contract.key].document.place(("action", "type"))
            message = f"{contract.operation} in {contract.environment} already has a contract, {place}"
            yield source.document.fault(("action", "type"), message, "keep one of them")
        first.setdefault(contract.key, source)
        name = contract.tool.upstream
        if name not in upstreams:
            message = f"no upstream {name!r} in {beside(daemon.file, model.upstreams)}"
            yield source.document.fault(("tool", "upstream"), message, f"write {name}.yaml there, or correct the name")
            continue
        yield from _write_tools_as_reads(source, contract, writes)
        yield from _credential(source, contract, upstreams[name])
        if check_pins and not model.development.unpinned_tools:
            yield from _pins(source, contract, upstreams[name])


def tools(contract: ActionContract) -> Iterator[tuple[KeyPath, str]]:
    """Every tool that the contract names, with the path of the key."""
    yield ("tool", "name"), contract.tool.name
    if contract.reads.snapshot:
        yield ("reads", "snapshot", "tool"), contract.reads.snapshot.tool
    if contract.reads.verify:
        yield ("reads", "verify", "tool"), contract.reads.verify.tool
    for position, entry in enumerate(contract.lookup):
        yield ("lookup", position, "tool"), entry.tool


def _pins(
    source: Source[ActionContract], contract: ActionContract, upstream: Source[UpstreamConfig]
) -> Iterator[ConfigurationFault]:
    if upstream.model is None:
        return
    name = contract.tool.upstream
    for path, tool in tools(contract):
        pin = upstream.model.tools.get(tool)
        if pin is None or pin.definition_sha256 is None:
            place = upstream.document.place(("tools", tool))
            message = f"the tool {tool!r} has no reviewed definition ({place})"
            step = f"run `kblockd upstream pin {name}`, review, paste it there"
            yield source.document.fault(path, message, step)


def _write_tools_as_reads(
    source: Source[ActionContract],
    contract: ActionContract,
    writes: Mapping[tuple[str, str], Source[ActionContract]],
) -> Iterator[ConfigurationFault]:
    for path, tool in tools(contract):
        writer = writes.get((contract.tool.upstream, tool))
        if path != ("tool", "name") and writer is not None:
            message = f"{tool!r} has effects according to {writer.document.place(('tool', 'name'))}"
            yield source.document.fault(path, message, "name a tool that only reads")


def _credential(
    source: Source[ActionContract], contract: ActionContract, upstream: Source[UpstreamConfig]
) -> Iterator[ConfigurationFault]:
    wanted = contract.execution.credential_source
    if wanted is None or upstream.model is None:
        return
    actual = "none" if upstream.model.credentials.write == "none" else "static"
    if wanted != actual:
        place = upstream.document.place(("credentials", "write"))
        message = f"{wanted!r} differs from the upstream, whose credential is {actual} ({place})"
        yield source.document.fault(("execution", "credential_source"), message, "make the two agree")


def _unknown(daemon: Source[DaemonFile], path: KeyPath, name: str) -> ConfigurationFault:
    return daemon.document.fault(path, f"no principal {name!r}", "add it to principals, or correct the name")
