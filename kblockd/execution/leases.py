"""Stage 6: the action's lease and the target's lock, with heartbeat and fencing.

In memory: expiry and renewal. In the ledger: the fence, written by the consumption (stage 9), and the target's row.
One daemon owns the store, so a lease of an earlier life is dead at the start. A holder that cannot renew before
``expires - skew`` fences itself: nothing is marked or sent any more. What it has learned of a call that was sent
before still counts, as long as nobody else has moved the execution (C4, LSE-01, LSE-08).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kblockd.domain.clock import Clock
from kblockd.domain.errors import Aborted, Left, Reason
from kblockd.domain.ledger.rows import Key
from kblockd.domain.ledger.values import Fence

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Lease:
    """Authority over one execution and its target, until ``expires_at`` (monotonic seconds) or ``ends_at`` (by the
    ledger's time, which goes on while the machine sleeps: what was read under the lease grows old), whichever is first.
    """

    execution_id: str
    target: Key
    incarnation: int
    counter: int
    expires_at: float
    ends_at: dt.datetime
    lost: bool = False

    @property
    def fence(self) -> Fence:
        """The fencing token as records carry it."""
        return Fence(self.incarnation, self.counter)


@dataclass(slots=True)
class Leases:
    """All leases of this life of the daemon; times in seconds."""

    clock: Clock
    incarnation: int
    ttl: float
    heartbeat: float
    skew: float
    on_lost: Callable[[Lease], None] = lambda lease: None
    _held: dict[str, Lease] = field(default_factory=dict)
    _targets: dict[Key, str] = field(default_factory=dict)
    _counter: int = 0

    def acquire(self, execution_id: str, target: Key) -> Lease:
        """A lease with a new fence, which fences an older lease of the execution; raises ``Aborted`` (TARGET_BUSY)
        while another execution has the target."""
        holder = self._targets.get(target)
        if holder is not None and holder != execution_id:
            raise busy(holder)
        if (older := self._held.get(execution_id)) is not None:
            older.lost = True
        self._counter += 1
        now, ends_at = self.clock.monotonic(), self.clock.now() + dt.timedelta(seconds=self.ttl)
        lease = Lease(execution_id, target, self.incarnation, self._counter, now + self.ttl, ends_at)
        self._held[execution_id] = lease
        self._targets[target] = execution_id
        return lease

    def release(self, lease: Lease) -> None:
        """Gives up the lease, and the target unless a newer lease of the same execution has it. Idempotent."""
        if self._held.get(lease.execution_id) is lease:
            del self._held[lease.execution_id]
            if self._targets.get(lease.target) == lease.execution_id:
                del self._targets[lease.target]

    def drop(self, execution_id: str) -> None:
        """Releases whatever lease the execution has. Idempotent."""
        lease = self._held.get(execution_id)
        if lease is not None:
            self.release(lease)

    def live(self, execution_id: str) -> bool:
        """Whether somebody in this process has authority over the execution now."""
        lease = self._held.get(execution_id)
        return lease is not None and self.holds(lease)

    def holds(self, lease: Lease) -> bool:
        """Whether the holder may still act: looked at right before every dispatch and outcome."""
        if not lease.lost and self._over(lease):
            self._lose(lease)
        return not lease.lost

    def renew(self) -> None:
        """One heartbeat over all leases; one that is past its term is lost, never revived."""
        now, ends_at = self.clock.monotonic(), self.clock.now() + dt.timedelta(seconds=self.ttl)
        for lease in list(self._held.values()):
            if self.holds(lease):
                lease.expires_at, lease.ends_at = now + self.ttl, ends_at

    async def beat(self) -> None:
        """Renews until cancelled, independent of what the holders do (C4)."""
        while True:
            await self.clock.sleep(self.heartbeat)
            try:
                self.renew()
            except Exception:  # out of memory, say: without the next heartbeat every later execution would be lost
                _log.exception("a heartbeat failed; the next one renews what is still live")

    def _over(self, lease: Lease) -> bool:
        awake = lease.expires_at - self.clock.monotonic()
        return awake <= self.skew or lease.ends_at - self.clock.now() <= dt.timedelta(seconds=self.skew)

    def _lose(self, lease: Lease) -> None:
        lease.lost = True
        self.on_lost(lease)


def busy(holder: str) -> Aborted:
    """The refusal while another execution has the target."""
    return Aborted(
        Reason.TARGET_BUSY,
        "another action on the same target is under way.",
        Left.APPROVED,
        retryable=True,
        next_step="repeat the identical call when the other action has ended",
    )
