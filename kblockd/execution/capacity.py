"""How many executions may run at once, and on how much free disk. Beyond it nothing new is recorded (R174).

Looked at before stage 3 asks anybody, and again in the same turn of the loop as its commit: from there to the start of
the run nobody else comes between, so that what has been recorded as allowed has its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kblockd.domain.errors import Reason, ResourceExhausted
from kblockd.domain.settings import Limits


@dataclass(slots=True)
class Capacity:
    """``running`` is kept by the supervisor."""

    limits: Limits
    free_bytes: Callable[[], int]
    running: int = 0

    def check(self) -> None:
        """Raises ``ResourceExhausted``."""
        if self.free_bytes() < self.limits.free_space_mib << 20:
            raise ResourceExhausted(
                Reason.OVERLOAD,
                "the disk of the ledger has less free space than limits.free_space_mib. "
                "Nothing was executed or consumed.",
                retryable=True,
                next_step="an operator must free space",
                retry_after_seconds=30.0,
            )
        if self.running >= self.limits.executions:
            raise ResourceExhausted(
                Reason.OVERLOAD,
                f"{self.running} executions are under way, which is the limit. Nothing was executed or consumed.",
                retryable=True,
                next_step="repeat the identical call in a moment",
                retry_after_seconds=1.0,
            )
