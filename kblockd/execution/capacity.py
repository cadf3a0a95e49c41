"""What must be free before something new is recorded: disk, places to run, the principal's share (R174, AGT-06).

Looked at before stage 3 asks anybody, and again in the same turn of the loop as its commit: from there to the start of
the run nobody else comes between, so that what has been recorded as allowed has its place. What finishes something
that has begun is never looked at: the disk's reserve is for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kblockd.admission import Admission
from kblockd.domain.errors import KblockError, Reason, ResourceExhausted
from kblockd.domain.settings import Limits

LOOK_SECONDS: Final = 0.05
"""One look at the disk serves the three of one call, and those of calls at the same moment."""


@dataclass(slots=True)
class Capacity:
    """``running`` is kept by the supervisor; ``monotonic`` is in seconds."""

    limits: Limits
    free_bytes: Callable[[], int]
    monotonic: Callable[[], float]
    admission: Admission
    running: int = 0
    _free: int = field(default=0, init=False)
    _looked: float = field(default=-math.inf, init=False)

    def check(self) -> None:
        """For something new that may run. Raises ``ResourceExhausted``."""
        self.check_place()
        self.admission.check_records()

    def check_place(self) -> None:
        """For a run. Raises ``ResourceExhausted``."""
        self.check_space()
        if self.running >= self.limits.executions:
            raise ResourceExhausted(
                Reason.OVERLOAD,
                f"{self.running} executions are under way, which is the limit. Nothing was executed or consumed.",
                retryable=True,
                next_step="repeat the identical call in a moment",
                retry_after_seconds=1.0,
            )
        self.admission.check_execution()

    def check_space(self) -> None:
        """For any record that begins something. Raises ``ResourceExhausted``."""
        if not self.has_space():
            raise no_space()

    def has_space(self) -> bool:
        """``check_space`` as an answer."""
        return self._free_bytes() >= self.limits.free_space_mib << 20

    def _free_bytes(self) -> int:
        now = self.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._free, self._looked = self.free_bytes(), now
        return self._free


def no_space() -> KblockError:
    """The disk is short; what has begun goes on."""
    return ResourceExhausted(
        Reason.OVERLOAD,
        "the disk of the ledger has less free space than limits.free_space_mib. Nothing was executed or consumed.",
        retryable=True,
        next_step="an operator must free space",
        retry_after_seconds=30.0,
    )
