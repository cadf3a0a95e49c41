"""What the rest of the daemon gets: everything checked, resolved and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kblockd.domain.contract import ActionContract
from kblockd.domain.principal import Principal
from kblockd.domain.settings import Clocks, Limits
from kblockd.paths import Writers
from kblockd.policy.floor import Floors
from kblockd.policy.opa.access import RemoteAccess
from kblockd.policy.signatures import Trust
from kblockd.upstream.model import UpstreamConfig


@dataclass(frozen=True, slots=True)
class Listener:
    """A Unix socket to make: absolute path, mode bits, the id of the principal that it is, and the gid of the group
    that may open it, None where the mode lets no group."""

    path: Path
    mode: int
    principal: str
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Loopback:
    """A TCP port of the loopback interface without authentication; ``address`` as gRPC takes it."""

    address: str
    principal: str


@dataclass(frozen=True, slots=True)
class SupervisedOpa:
    """The OPA binary that kblockd starts, and the folder of its sockets."""

    command: Path
    run_dir: Path


@dataclass(frozen=True, slots=True)
class RemoteOpa:
    """An OPA that somebody else runs, the file of the revisions that passed, and the binary of ``policy check``."""

    access: RemoteAccess
    revisions: Path
    command: Path | None


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The decision point; ``evaluate_timeout_seconds`` bounds one question, ``memory_mib`` one worker or OPA.

    ``opa`` is None for the embedded engine; ``bundle`` is a folder or an archive; ``input_retention_days`` 0 keeps no
    inputs. ``writers``: who alone may write the bundle; None where nothing of it comes into force. ``require_tests`` is
    for the embedded engine. ``floors`` (by risk tier) stand under what policy answers.
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
    """``otlp`` is None for no export; the parents' sampled flag counts for ``trust_parent_sampling`` only."""

    otlp: str | None
    sample_ratio: float
    trust_parent_sampling: frozenset[str]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One checked configuration; paths are absolute. ``warnings`` must be said loudly at every start.

    ``writers``: who alone may write what decides, for what is read again while the daemon runs.
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
