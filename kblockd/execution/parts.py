"""The concrete parts that the stages work with, put together once by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kblockd.admission import Admission
from kblockd.domain.clock import Clock
from kblockd.domain.contract import ActionContract
from kblockd.domain.failpoints import Failpoints
from kblockd.domain.ids import Ids
from kblockd.domain.principal import Principal
from kblockd.domain.settings import Clocks, Limits
from kblockd.evidence.keyring import KeyRing
from kblockd.execution.capacity import Capacity
from kblockd.execution.changes import Changes
from kblockd.execution.counting import RefusalCounts
from kblockd.execution.flights import Flights
from kblockd.execution.late import LateOutcomes
from kblockd.execution.leases import Leases
from kblockd.ledger.ledger import Ledger
from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.deciding.floor import Floors
from kblockd.store.protocol import Store
from kblockd.upstream.catalog import Upstreams


@dataclass(frozen=True, slots=True)
class Instance:
    """Who signs and where it ran; ``boot_id`` changes at each boot of the machine."""

    name: str
    version: str
    boot_id: str
    origin: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that is injected. Contracts and principals are as configured now; their rows are conditions."""

    store: Store
    ledger: Ledger
    engine: PolicyEngine
    upstreams: Upstreams
    contracts: Mapping[tuple[str, str], ActionContract]
    principals: Mapping[str, Principal]
    keys: KeyRing
    leases: Leases
    late: LateOutcomes
    changes: Changes
    clock: Clock
    ids: Ids
    failpoints: Failpoints
    clocks: Clocks
    limits: Limits
    instance: Instance
    capacity: Capacity
    admission: Admission
    describing: Flights
    refused: RefusalCounts
    floors: Floors  # what approvals an action takes at least, by risk tier
    unpinned_tools: bool = False
    keep_inputs: bool = True  # of policy questions, beside their records
