"""The models of kblockd.yaml, key by key. Names carry the units: _seconds, _bytes, _mib, _ratio."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from kblockd.domain.contract.words import FROM_LIST, Name, Part, Seconds, Text
from kblockd.policy.bundles.jws import Algorithm
from kblockd.policy.deciding.entrypoints import MAX_APPROVALS, MAX_ROLES


def _owner_only(mode: str) -> str:
    if mode[-1] != "0":
        raise ValueError("lets everybody act as the principal: opening the socket is the authentication; end it in 0")
    if int(mode, 8) & 0o600 != 0o600:
        raise ValueError("denies the owner access; write 0600 or 0660")
    return mode


def _loopback(address: str) -> str:
    host, _, port = address.rpartition(":")
    literal = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        loopback = ipaddress.ip_address(literal).is_loopback
    except ValueError:
        loopback = False
    if not loopback or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("must be a loopback address and a port, such as 127.0.0.1:9300 or [::1]:9300")
    return address


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("must be a URL such as http://127.0.0.1:4317, without a user")
    return url


def _opa_url(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    bare = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not bare:
        raise ValueError("must be only scheme, host and port, such as https://opa.example.com:8181")
    return url


PrincipalId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}$")]
Owner = PrincipalId
"""The same restricted alphabet as ids: owners that look alike are equal, except for case (LOC-05)."""

Group = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$")] | Annotated[int, Field(ge=0, lt=2**32 - 1)]
Mode = Annotated[str, Field(pattern=r"^0[0-7]{3}$"), AfterValidator(_owner_only)]
Origin = Annotated[str, Field(pattern=r"^[a-z0-9.-]+(/[A-Za-z0-9._-]+)+$", max_length=128)]


class LedgerSection(Part):
    """The origin is also the name of the log's key and never changes; a restore begins a new one."""

    origin: Origin


class OpaSection(Part):
    """An OPA that kblockd starts (``command``, ``run_dir``), or one that somebody else runs (``url``, ``revisions``).

    ``kblockd.config.opa`` checks which keys go together; beside ``url``, ``command`` is used by ``policy check``.
    """

    command: Text | None = None
    run_dir: Text | None = None
    url: Annotated[str, AfterValidator(_opa_url)] | None = None
    revisions: Text | None = None
    token_file: Text | None = None
    ca_file: Text | None = None
    client_cert_file: Text | None = None
    client_key_file: Text | None = None


class VerificationKeySection(Part):
    """A public key for signed bundles: the id used by signers and in the ledger, and the only algorithm it is for."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}$")]
    algorithm: Algorithm
    file: Text


class VerificationSection(Part):
    """Whose bundles may come into force; ``scope`` "" matches tokens without a scope."""

    allow_unsigned: bool
    scope: Annotated[str, Field(pattern=r"^[!-~]{0,128}$")]
    keys: Annotated[tuple[VerificationKeySection, ...], FROM_LIST, Field(max_length=16)]


class PolicySection(Part):
    """The decision point. ``evaluate_timeout_seconds`` bounds one query; a time-out denies.

    ``input_retention_days``: how long query inputs are stored beside their records; 0 stores none. ``require_tests``:
    the embedded engine refuses a bundle without tests.
    """

    engine: Literal["embedded", "opa"]
    opa: OpaSection | None
    bundle: Text
    verification: VerificationSection | None
    evaluate_timeout_seconds: Annotated[float, Field(gt=0, le=10)]
    workers: Annotated[int, Field(ge=1, le=8)]
    memory_mib: Annotated[int, Field(ge=64, le=65_536)]
    input_retention_days: Annotated[int, Field(ge=0, le=36_500)]
    require_tests: bool


class FloorSection(Part):
    """How many distinct owners must approve, whatever the policy answers, each with one of ``roles`` (empty: any)."""

    count: Annotated[int, Field(ge=0, le=MAX_APPROVALS)]
    roles: Annotated[tuple[Name, ...], FROM_LIST, Field(max_length=MAX_ROLES)]

    @model_validator(mode="after")
    def _roles_of_somebody(self) -> Self:
        if self.roles and self.count == 0:
            raise ValueError("roles without a count have no effect; raise count to at least 1, or leave roles empty")
        return self


class FloorsSection(Part):
    """By risk tier; ``{count: 0, roles: []}`` leaves a tier to the policy alone."""

    low: FloorSection
    medium: FloorSection
    high: FloorSection
    critical: FloorSection


class PrincipalSection(Part):
    """A caller. Separation of duties compares ``owner``, the person or team behind it."""

    id: PrincipalId
    kind: Literal["agent", "person", "service"]
    tenant: Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})$")]
    owner: Owner
    roles: Annotated[tuple[Name, ...], FROM_LIST]
    organization: Annotated[str, Field(max_length=128)] = ""


class ListenerSection(Part):
    """A Unix socket stands for its principal: whoever can open it calls as that principal.

    ``group`` (a name or gid) is the socket's group; by default the daemon's own.
    """

    unix: Annotated[str, Field(min_length=1)]
    mode: Mode
    group: Group | None = None
    principal: PrincipalId


class ClocksSection(Part):
    """``kblockd.domain.settings.Clocks`` as written; ``kblockd.config.clocks`` checks C3."""

    lease_ttl_seconds: Seconds
    heartbeat_seconds: Seconds
    close_after_seconds: Seconds
    sweep_seconds: Annotated[int, Field(ge=1, le=240)]
    reconcile_seconds: Seconds
    skew_seconds: Seconds
    approval_ttl_seconds: Seconds
    client_wait_seconds: Seconds


class SharesSection(Part):
    """``kblockd.domain.settings.Shares`` as written. A request must fit into its principal's share of bytes."""

    executions: Annotated[int, Field(ge=1, le=10_000)]
    calls: Annotated[int, Field(ge=1, le=2048)]
    calls_per_second: Annotated[int, Field(ge=1, le=1_000_000)]
    request_bytes: Annotated[int, Field(ge=4_194_304, le=1_073_741_824)]
    policy_questions: Annotated[int, Field(ge=1, le=1024)]
    upstream_calls: Annotated[int, Field(ge=1, le=10_000)]
    streams: Annotated[int, Field(ge=1, le=2048)]
    records_per_minute: Annotated[int, Field(ge=60, le=100_000_000)]


class LimitsSection(Part):
    """``kblockd.domain.settings.Limits`` as written."""

    executions: Annotated[int, Field(ge=1, le=10_000)]
    pending_approvals_per_agent: Annotated[int, Field(ge=1, le=10_000)]
    arguments_bytes: Annotated[int, Field(ge=1, le=1_048_576)]
    response_bytes: Annotated[int, Field(ge=1024, le=1_048_576)]
    free_space_mib: Annotated[int, Field(ge=1, le=1_048_576)]
    per_principal: SharesSection


class TelemetrySection(Part):
    """``otlp``: the collector's URL, null for none. ``trust_parent_sampling``: principals whose sampled flag counts."""

    otlp: Annotated[str, AfterValidator(_endpoint)] | None
    sample_ratio: Annotated[float, Field(ge=0, le=1)]
    trust_parent_sampling: Annotated[tuple[PrincipalId, ...], FROM_LIST]


class InsecureLoopback(Part):
    """A TCP port without authentication: every process on this machine acts as the principal."""

    address: Annotated[str, AfterValidator(_loopback)]
    principal: PrincipalId


class DevelopmentSection(Part):
    """Off in production; every enabled setting is logged as a warning at each start."""

    insecure_loopback: InsecureLoopback | None
    unpinned_tools: bool
    failpoints: bool


class DaemonFile(Part):
    """The whole of kblockd.yaml. Every key is required, so that no setting depends on a default that may change."""

    instance: Name
    data_dir: Text
    ledger: LedgerSection
    actions: Text
    upstreams: Text
    adapters: Annotated[tuple[Name, ...], FROM_LIST, Field(min_length=1)]
    policy: PolicySection
    approval_floor: FloorsSection
    principals: Annotated[tuple[PrincipalSection, ...], FROM_LIST, Field(min_length=1)]
    listeners: Annotated[tuple[ListenerSection, ...], FROM_LIST]
    clocks: ClocksSection
    limits: LimitsSection
    telemetry: TelemetrySection
    development: DevelopmentSection
