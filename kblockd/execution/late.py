"""What becomes of calls after their deadline: answers that come late, and tasks that still run.

A late answer is evidence, never a second outcome. While the run goes on, it takes them from here (stage 13 may be
decided by one); afterwards the supervisor stores them. They never write past a newer fence
(kblockd/execution/README.md#late-answers; C3, RPC-09). A task that still runs may still send: until it has ended
nothing proves an absence (UPS-08).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from kblockd.upstream.adapter import Outcome, Sent


class LateOutcomes:
    """At most one answer a call; ``on_late`` is told of each. ``monotonic`` is the clock of the stages, in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._waiting: dict[str, list[tuple[int, Outcome]]] = {}
        self._running: Counter[str] = Counter()
        self._ended: dict[str, float] = {}  # of runs that still go on
        self._on_record: set[str] = set()  # as well
        self.on_late: Callable[[str], None] = lambda execution_id: None

    def add(self, execution_id: str, attempt: int, outcome: Outcome) -> None:
        """From the guarded adapter; never raises."""
        self._waiting.setdefault(execution_id, []).append((attempt, outcome))
        self.on_late(execution_id)

    def waiting(self, execution_id: str) -> bool:
        """Whether something has come that nobody took."""
        return execution_id in self._waiting

    def acted(self, execution_id: str) -> bool:
        """Whether something that nobody took, or that the ledger held when the run took it up, says that an earlier
        attempt had its effect: no proof of absence holds."""
        return execution_id in self._on_record or any(
            outcome.sent is Sent.ACCEPTED or (outcome.sent is Sent.ANSWERED and not outcome.is_error)
            for _, outcome in self._waiting.get(execution_id, ())
        )

    def take(self, execution_id: str) -> list[tuple[int, Outcome]]:
        """Everything that has come for this execution since the last call."""
        return self._waiting.pop(execution_id, [])

    def outlives(self, execution_id: str) -> Callable[[bool], None]:
        """From the guarded adapter: an effect's task goes on after its answer was given. Returns what it tells when the
        task has ended; of one that did not end by itself the end is never known, since a thread of it may go on."""
        self._running[execution_id] += 1
        self._ended.setdefault(execution_id, self._monotonic())

        def ended(by_itself: bool) -> None:
            if not by_itself:
                return
            if execution_id in self._ended:
                self._ended[execution_id] = self._monotonic()
            self._running[execution_id] -= 1
            if self._running[execution_id] == 0:
                del self._running[execution_id]

        return ended

    def ended(self, execution_id: str, since: float) -> float | None:
        """When the last of this execution's tasks had ended, ``since`` at the earliest; None while one may go on."""
        if execution_id in self._running:
            return None
        return max(since, self._ended.get(execution_id, since))

    def taken_up(self, execution_id: str, *, acted: bool) -> None:
        """A run goes on with what an earlier one left. ``acted``: a late answer on record says that the effect was
        done. The end of a task that the earlier one left running counts for this one as well."""
        if acted:
            self._on_record.add(execution_id)
        if execution_id in self._running:
            self._ended.setdefault(execution_id, self._monotonic())

    def forget(self, execution_id: str) -> None:
        """Its run has ended: whoever takes it up again counts from a later moment. What still runs is remembered."""
        self._ended.pop(execution_id, None)
        self._on_record.discard(execution_id)
