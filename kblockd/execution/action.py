"""One action as it was agreed: what stage 3 decided on, what an approval binds, what every later stage uses."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

from kblockd.domain.contract import ActionContract, EffectiveLimits
from kblockd.domain.envelope import Envelope
from kblockd.domain.ledger.values import Target
from kblockd.domain.principal import Principal
from kblockd.domain.text import Text
from kblockd.domain.values import value_type
from kblockd.execution.journal import Journal
from kblockd.telemetry.recorder import Trace


@value_type(frozen=True, slots=True)
class IncomingCall:
    """What comes in: an authenticated principal and its envelope."""

    caller: Principal
    envelope: Envelope
    trace: Trace


@value_type(frozen=True, slots=True)
class Admitted:
    """After stage 1: the call is well-formed, and everything that follows from it alone is derived."""

    caller: Principal
    envelope: Envelope
    trace: Trace
    contract: ActionContract
    args: Text
    target: Mapping[str, str]
    intent: Any
    fingerprint: str
    caller_key: str  # digest, or empty for a keyless call
    twin: str
    limits: EffectiveLimits


@value_type(frozen=True, slots=True)
class Action:
    """After stage 3, or loaded again from the ledger's payloads: the same values either way."""

    execution_id: str
    tenant: str
    agent: str
    requester: str
    environment: str
    operation: str
    contract: ActionContract
    envelope: Mapping[str, Any]  # the document that policies see; pins and bounds as they came
    args: Any
    args_sha256: str
    target: Target
    intent: Any
    twin: str
    fingerprint: str
    caller_key: str
    limits: EffectiveLimits
    tool_version: str
    definition_sha256: str
    action_sha256: str
    origin: str
    effect: str  # what stage 3 decided: require_approval, allow or observe
    observe_until: str
    not_after: str

    @property
    def upstream(self) -> str:
        """Name of the upstream that has the effect."""
        return self.contract.tool.upstream

    @property
    def tool(self) -> str:
        """Name of the tool that has the effect."""
        return self.contract.tool.name


@value_type(frozen=True, slots=True)
class Run:
    """An execution that may go on: its action and its journal. ``attempt`` is the one that is being made, by the number
    of its send marker; ``unbegun`` of those before were marked and then not made, and do not count as attempts."""

    action: Action
    journal: Journal
    attempt: int
    again: bool  # consumed before: 9r
    described_at: dt.datetime | None = None  # when stage 3 asked for the tool's definition; None: stage 5 asks
    deadline: float = math.inf  # monotonic seconds: no attempt after it; known once consumed
    unbegun: int = 0

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.journal.trace
