"""One circuit breaker per upstream, consulted only in preflight: before the consumption, never between marker and call.

Source: R203.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kblockd.admission import principal
from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.model import BreakerLimits

# Faults on our own side say nothing about the upstream.
_OURS: Final = frozenset({"UPSTREAM_BUSY", "CREDENTIAL_UNREADABLE", "CREDENTIAL_INVALID", "LOCAL_RESOURCES"})


@dataclass(slots=True)
class _State:
    """Of one principal."""

    failures: int = 0
    open_until: float | None = None


class CircuitBreaker:
    """Opens after ``failures`` transport failures in a row; then one probe per ``open_seconds`` until one succeeds.

    Counted per principal: a principal whose requests make an upstream fail must not close it to the others.
    """

    def __init__(self, limits: BreakerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._states: dict[str, _State] = {}

    @property
    def is_open(self) -> bool:
        """Whether the upstream counts as down for the current principal; reading it uses up no probe."""
        return self._state().open_until is not None

    def allow(self) -> bool:
        """Whether a call may start now. While open, the first caller after the wait becomes the probe."""
        state = self._state()
        if state.open_until is None:
            return True
        if self._clock() < state.open_until:
            return False
        # The probe may never report back (another check may refuse it), so the next one is due after the same wait.
        state.open_until = self._clock() + self._limits.open_seconds
        return True

    def observe(self, outcome: Outcome) -> None:
        """Any answer closes the breaker; a call that was not sent or is lost counts as a failure."""
        state = self._state()
        if outcome.sent not in (Sent.NOT_SENT, Sent.LOST):
            state.failures, state.open_until = 0, None
        elif outcome.code not in _OURS and not outcome.code.startswith("PLUGIN_"):
            state.failures += 1
            if state.failures >= self._limits.failures:
                state.open_until = self._clock() + self._limits.open_seconds

    def _state(self) -> _State:
        return self._states.setdefault(principal(), _State())
