"""Clocks and limits as plain values: what execution takes instead of a configuration file.

The defaults are the numbers of kblockd/execution/README.md#clocks; ``kblockd.config`` fills them from kblockd.yaml and
holds C3 over all contracts before anything starts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """Four clocks that must not be confused (C3, C4), all in seconds.

    ``lease_ttl`` is detection: nobody advances this. ``close_after`` is closure of orphans, counted from the
    consumption, found by a sweep every ``sweep``. ``reconcile`` bounds the lookups after an unknown outcome, ``skew``
    is how early a holder fences itself. ``approval_ttl``: how long an approval may wait; ``client_wait``: how long a
    caller that says nothing waits for an answer.
    """

    lease_ttl_seconds: int = 30
    heartbeat_seconds: int = 10
    close_after_seconds: int = 660
    sweep_seconds: int = 240
    reconcile_seconds: int = 60
    skew_seconds: int = 5
    approval_ttl_seconds: int = 600
    client_wait_seconds: int = 120


@dataclass(frozen=True, slots=True)
class Shares:
    """What one principal may have at a time, so that the others do not notice (AGT-03 to AGT-07).

    ``executions`` run at once; ``calls`` are in flight, waiting ones included; ``calls_per_second`` are begun, and the
    next ones wait; ``request_bytes`` are those of all requests in flight; ``policy_questions`` are with the engine at
    once, the next ones wait; ``upstream_calls`` are under way at one upstream, the next ones wait; ``streams`` are
    watches, lists and ledger reads at once; ``records_per_minute`` is how fast the ledger may grow, in bursts of a
    sixth of it.
    """

    executions: int = 32
    calls: int = 128
    calls_per_second: int = 50
    request_bytes: int = 8_388_608
    policy_questions: int = 4
    upstream_calls: int = 8
    streams: int = 64
    records_per_minute: int = 6000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one daemon takes on. ``executions`` counts those that execute at once; ``per_principal`` is each
    principal's share."""

    executions: int = 64
    pending_approvals_per_agent: int = 20
    arguments_bytes: int = 1_048_576
    response_bytes: int = 1_048_576
    free_space_mib: int = 512
    per_principal: Shares = Shares()
