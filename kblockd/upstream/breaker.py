"""A circuit breaker an upstream, asked in preflight only: before anything is consumed, never between marker and call.

Source: R203.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.model import BreakerLimits

# Faults of our own side say nothing about the upstream.
_OURS: Final = frozenset({"UPSTREAM_BUSY", "CREDENTIAL_UNREADABLE", "CREDENTIAL_INVALID", "LOCAL_RESOURCES"})


class CircuitBreaker:
    """Opens after ``failures`` transport failures in a row; then one probe each ``open_seconds`` until one succeeds."""

    def __init__(self, limits: BreakerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the upstream counts as down; asking takes no probe."""
        return self._open_until is not None

    def allow(self) -> bool:
        """Whether a call may start now. While open, the first to ask after the wait is the probe."""
        if self._open_until is None:
            return True
        if self._clock() < self._open_until:
            return False
        # The probe may never report (another check may refuse it), so the next one is due after the same wait.
        self._open_until = self._clock() + self._limits.open_seconds
        return True

    def observe(self, outcome: Outcome) -> None:
        """Counts: an answer of any kind closes, a call that was not sent or is lost is a failure."""
        if outcome.sent not in (Sent.NOT_SENT, Sent.LOST):
            self._failures = 0
            self._open_until = None
        elif outcome.code not in _OURS and not outcome.code.startswith("PLUGIN_"):
            self._failures += 1
            if self._failures >= self._limits.failures:
                self._open_until = self._clock() + self._limits.open_seconds
