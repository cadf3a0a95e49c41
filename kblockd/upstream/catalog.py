"""Loads the adapters that the configuration names and opens the upstreams that use them.

kblockd never imports a plugin by name; it loads the entry points of group ``kblockd.adapters``, exactly one per name
and of this daemon's API version. Upstreams are opened in the order of their names and closed in reverse.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2
import pydantic

from kblockd.admission import Slots
from kblockd.paths import Writers
from kblockd.upstream.adapter import API_VERSION, Adapter, AdapterContext, AdapterPlugin
from kblockd.upstream.address_guard import AddressGuard, AddressRefused, Resolver, system_resolver
from kblockd.upstream.breaker import CircuitBreaker
from kblockd.upstream.connection import IdleConnections
from kblockd.upstream.credentials import Credential, CredentialFault
from kblockd.upstream.exchange import Guard, HttpOrigin
from kblockd.upstream.faults import UpstreamFault
from kblockd.upstream.model import UpstreamConfig
from kblockd.upstream.tls import make_context
from kblockd.upstream.wrapper import CallLimits, GuardedAdapter, Raised, contained, result

GROUP: Final = "kblockd.adapters"
NO_SHARE: Final = sys.maxsize
_CLOSE_SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)

EntryPoints = Callable[[], Iterable[importlib.metadata.EntryPoint]]


class CatalogError(Exception):
    """The start is refused: an adapter or an upstream cannot be used as configured. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One configured upstream under both identities: calls with an effect use ``write``, all others ``read``.

    Reads never carry the write credential (R618, R636).
    """

    name: str
    config: UpstreamConfig
    write: GuardedAdapter
    read: GuardedAdapter
    breaker: CircuitBreaker
    address_guard: AddressGuard

    @property
    def origin(self) -> HttpOrigin:
        """Part of the action digest; as text ``scheme://host:port``."""
        return self.config.origin

    async def check_address(self, deadline: float) -> None:
        """Resolves and checks the address without connecting (R076); raises ``UpstreamFault``."""
        try:
            await self.address_guard.check(self.origin.host, self.origin.port, deadline)
        except AddressRefused as refused:
            raise UpstreamFault(refused.code, f"upstream {self.name}: {refused}") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise UpstreamFault("ADDRESS_UNKNOWN", f"upstream {self.name}: {error}") from None

    def check_credentials(self) -> None:
        """Reads both and discards the values (R077); raises ``UpstreamFault``."""
        self.write.check_credential()
        self.read.check_credential()

    async def preflight(self, deadline: float) -> None:
        """Stage 5, before anything is consumed; raises ``UpstreamFault``.

        CREDENTIAL_UNREADABLE and CREDENTIAL_INVALID last until the file is corrected, or during a rotation;
        ADDRESS_REFUSED until the configuration is corrected; ADDRESS_UNKNOWN (the resolver) and BREAKER_OPEN are
        transient. The breaker comes last, because asking an open breaker may use up its probe.
        """
        self.check_credentials()
        await self.check_address(deadline)
        if not self.breaker.allow():
            raise UpstreamFault("BREAKER_OPEN", f"upstream {self.name} failed repeatedly; it is tried again soon")


class Upstreams:
    """Name to upstream; read-only."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = dict(upstreams)

    def get(self, name: str) -> Upstream | None:
        """None when no upstream of this name is configured."""
        return self._upstreams.get(name)

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def check_credentials(self) -> list[str]:
        """For the start: one warning per credential file that cannot be read now; calls that need it are refused until
        it can, since the next rotation may bring it. A process's environment never changes, so a bad variable raises
        ``CatalogError``. Blocks."""
        warnings = []
        for name, upstream in self._upstreams.items():
            refs = upstream.config.credentials
            for key, ref, identity in (("write", refs.write, upstream.write), ("read", refs.read, upstream.read)):
                try:
                    identity.check_credential()
                except CredentialFault as fault:
                    message = f"upstream {name}: credentials.{key}: {fault}"
                    if ref.startswith("env:"):
                        raise CatalogError(f"{message}; set it in the daemon's environment and start again") from None
                    warnings.append(f"{message}; nothing is sent to this upstream until it is fixed")
        return warnings

    def __iter__(self) -> Iterator[str]:
        return iter(self._upstreams)

    def __len__(self) -> int:
        return len(self._upstreams)


def load_plugins(
    names: Sequence[str],
    entry_points: EntryPoints = lambda: importlib.metadata.entry_points(group=GROUP),
    *,
    used: Collection[str] | None = None,
) -> dict[str, AdapterPlugin]:
    """One plugin per name; raises ``CatalogError`` for none, several, another API version or a lax settings model.

    A plugin that is not ``used`` (None: all are) must be installed, but its code is not loaded.
    """
    installed = list(entry_points())
    loaded: dict[str, AdapterPlugin] = {}
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CatalogError(f"adapters: {name!r} is listed twice")
        matching = [point for point in installed if point.name == name]
        if len(matching) != 1:
            known = ", ".join(sorted({point.name for point in installed})) or "none"
            raise CatalogError(
                f"adapters: {name!r} must be exactly one entry point of group {GROUP}, found {len(matching)}; "
                f"installed: {known}"
            )
        seen.add(name)
        if used is None or name in used:
            loaded[name] = _load(matching[0])
    return loaded


@asynccontextmanager
async def open_upstreams(
    configs: Mapping[str, UpstreamConfig],
    plugins: Mapping[str, AdapterPlugin],
    *,
    max_response_bytes: int,
    share: int = NO_SHARE,
    late_seconds: float = 30.0,
    resolve: Resolver = system_resolver,
    writers: Writers | None = None,
    clock: Callable[[], float] = time.monotonic,
    elapsed: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Upstreams]:
    """Opens every configured upstream and closes them in reverse; raises ``CatalogError``.

    ``share``: calls that one principal may have in flight at one upstream. ``writers``: the only users who may write
    credential files, see ``Credential``. ``elapsed`` also counts while the machine sleeps; it decides when an idle
    connection is too old to reuse.
    """
    limits = CallLimits(max_response_bytes, late_seconds=late_seconds)
    common = _Common(limits, share, resolve, writers, clock, elapsed)
    async with AsyncExitStack() as stack:
        upstreams: dict[str, Upstream] = {}
        for name in sorted(configs):
            upstream, adapter, guard = _open(name, configs[name], plugins, common)
            stack.callback(guard.close)
            stack.push_async_callback(_close, upstream, adapter)
            upstreams[name] = upstream
        yield Upstreams(upstreams)


def _load(point: importlib.metadata.EntryPoint) -> AdapterPlugin:
    try:
        plugin = point.load()
    except Exception as error:
        raise CatalogError(f"adapter {point.name!r}: {point.value} cannot be loaded: {error}") from error
    version = getattr(plugin, "api_version", None)
    if version != API_VERSION:
        raise CatalogError(
            f"adapter {point.name!r} speaks plugin API {version}, this daemon {API_VERSION}; install its other version"
        )
    model = getattr(plugin, "settings_model", None)
    if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
        raise CatalogError(f"adapter {point.name!r}: settings_model must be a pydantic model")
    if model.model_config.get("extra") != "forbid" or not model.model_config.get("frozen"):
        raise CatalogError(f"adapter {point.name!r}: settings_model must be frozen and forbid unknown keys")
    if not callable(getattr(plugin, "open", None)):
        raise CatalogError(f"adapter {point.name!r}: has no open(context)")
    checked: AdapterPlugin = plugin
    return checked


@dataclass(frozen=True, slots=True)
class _Common:
    """Settings that all upstreams share; see ``open_upstreams``."""

    limits: CallLimits
    share: int
    resolve: Resolver
    writers: Writers | None
    clock: Callable[[], float]
    elapsed: Callable[[], float]


def _open(
    name: str, config: UpstreamConfig, plugins: Mapping[str, AdapterPlugin], common: _Common
) -> tuple[Upstream, Adapter, Guard]:
    plugin = plugins.get(config.adapter)
    if plugin is None:
        raise CatalogError(f"upstream {name}: adapter {config.adapter!r} is not among the configured adapters")
    address_guard = AddressGuard(config.allow_addresses, resolve=common.resolve, clock=common.clock)
    guard = Guard(
        origin=config.origin,
        connect=address_guard.connect,
        ssl=_tls(name, config),
        max_response_bytes=common.limits.max_output_bytes,
        pins=frozenset(config.tls.spki_sha256),
        clock=common.clock,
        idle=IdleConnections(common.elapsed),
    )
    adapter = _open_adapter(name, config, plugin, guard)
    return _upstream(name, config, adapter, address_guard, common), adapter, guard


def _upstream(
    name: str, config: UpstreamConfig, adapter: Adapter, address_guard: AddressGuard, common: _Common
) -> Upstream:
    breaker = CircuitBreaker(config.breaker, common.clock)
    slots = Slots(config.maximum_concurrent_calls, min(config.maximum_concurrent_calls, common.share))

    def identity(ref: str, other: str) -> GuardedAdapter:
        return GuardedAdapter(
            adapter,
            credential=Credential(ref, common.writers),
            other=Credential(other, common.writers),
            slots=slots,
            limits=common.limits,
            observe=breaker.observe,
            clock=common.clock,
        )

    refs = config.credentials
    write, read = identity(refs.write, refs.read), identity(refs.read, refs.write)
    return Upstream(name, config, write, read, breaker, address_guard)


def _open_adapter(name: str, config: UpstreamConfig, plugin: AdapterPlugin, guard: Guard) -> Adapter:
    try:
        settings = plugin.settings_model.model_validate(dict(config.settings))
    except pydantic.ValidationError as error:
        faults = "; ".join(f"settings.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise CatalogError(f"upstream {name}: {faults}") from None
    context = AdapterContext(
        upstream=name,
        url=config.url,
        settings=settings,
        ssl=guard.ssl,
        connect=guard.raw_connection,
        max_response_bytes=guard.max_response_bytes,
        exchange=guard.exchange,
    )
    try:
        return plugin.open(context)
    except Exception as error:
        raise CatalogError(f"upstream {name}: adapter {config.adapter!r} cannot be opened: {error}") from error


def _tls(name: str, config: UpstreamConfig) -> ssl.SSLContext | None:
    if config.origin.scheme != "https":
        return None
    ca_file = config.tls.ca_file
    try:
        return make_context(None if ca_file is None else str(ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise CatalogError(f"upstream {name}: tls.ca_file: {ca_file} cannot be read: {error}") from None


async def _close(upstream: Upstream, adapter: Adapter) -> None:
    """A plugin that cannot close does not keep the others open."""
    await upstream.write.close()
    await upstream.read.close()
    closing = asyncio.create_task(contained(adapter.close))
    await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
    if not closing.done():
        closing.cancel()  # it may ignore that; nobody waits for it
        _log.error("the adapter of upstream %s did not close within %s s", upstream.name, _CLOSE_SECONDS)
    elif isinstance(raised := result(closing), Raised):
        _log.error("the adapter of upstream %s did not close: %s", upstream.name, raised.what)
