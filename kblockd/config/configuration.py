"""The checked configuration: paths and references resolved, everything frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kblockd.domain.contract import ActionContract
from kblockd.domain.principal import Principal
from kblockd.domain.settings import Clocks, Limits
from kblockd.paths import Writers
from kblockd.policy.bundles.signatures import Trust
from kblockd.policy.deciding.floor import Floors
from kblockd.policy.opa.access import RemoteAccess
from kblockd.upstream.model import UpstreamConfig


@dataclass(frozen=True, slots=True)
class Listener:
    """A Unix socket: absolute path, mode bits, the id of its principal, and the gid of the group that may open it, None
    if the mode allows no group."""

    path: Path
    mode: int
    principal: str
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Loopback:
    """A TCP port on the loopback interface without authentication; ``address`` in gRPC's form."""

    address: str
    principal: str


@dataclass(frozen=True, slots=True)
class SupervisedOpa:
    """The OPA binary that kblockd starts, and the folder of its sockets."""

    command: Path
    run_dir: Path


@dataclass(frozen=True, slots=True)
class RemoteOpa:
    """An OPA run by somebody else, the file of checked revisions, and the binary for ``policy check``."""

    access: RemoteAccess
    revisions: Path
    command: Path | None


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The decision point; ``evaluate_timeout_seconds`` bounds one query, ``memory_mib`` one worker or OPA.

    ``opa`` is None for the embedded engine; ``bundle`` is a folder or an archive; ``input_retention_days`` 0 stores no
    inputs. ``writers``: the only users who may write the bundle; None if it never comes into force. ``require_tests``
    is for the embedded engine. ``floors``: minimum approvals by risk tier, whatever the policy answers.
    """

    opa: SupervisedOpa | RemoteOpa | None
    bundle: Path
    trust: Trust
    evaluate_timeout_seconds: float
    workers: int
    memory_mib: int
    input_retention_days: int = 90
    writers: Writers | None = None
    require_tests: bool = True
    floors: Floors = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """``otlp`` is None for no export; only principals in ``trust_parent_sampling`` have their sampled flag honoured."""

    otlp: str | None
    sample_ratio: float
    trust_parent_sampling: frozenset[str]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One checked configuration; paths are absolute. ``warnings`` must be logged at every start.

    ``writers``: the only users who may write files that are read again while the daemon runs.
    """

    file: Path
    instance: str
    data_dir: Path
    origin: str
    adapters: tuple[str, ...]
    policy: PolicySettings
    principals: Mapping[str, Principal]
    listeners: tuple[Listener, ...]
    insecure_loopback: Loopback | None
    clocks: Clocks
    limits: Limits
    telemetry: TelemetrySettings
    unpinned_tools: bool
    failpoints: bool
    contracts: Mapping[tuple[str, str], ActionContract]
    upstreams: Mapping[str, UpstreamConfig]
    writers: Writers
    warnings: tuple[str, ...]
