"""Clocks and limits as plain values: what execution takes instead of a configuration file.

The defaults are the numbers of design section 5; ``kblockd.config`` fills them from kblockd.yaml and holds C3 over all
contracts before anything starts.
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
class Limits:
    """Bounds on what one daemon takes on. ``executions`` counts those that execute at once."""

    executions: int = 64
    pending_approvals_per_agent: int = 20
    arguments_bytes: int = 1_048_576
    response_bytes: int = 1_048_576
    free_space_mib: int = 512
