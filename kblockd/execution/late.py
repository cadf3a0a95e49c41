"""Answers that come after their deadline: evidence, never a second outcome.

While the run goes on, it takes them from here (stage 13 may be decided by one); afterwards the supervisor stores
them. They never write past a newer fence (design section 5, Late answers; C3, RPC-09).
"""

from __future__ import annotations

from collections.abc import Callable

from kblockd.upstream.adapter import Outcome, Sent


class LateOutcomes:
    """At most one a call; ``on_late`` is told of each."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, Outcome]]] = {}
        self.on_late: Callable[[str], None] = lambda execution_id: None

    def add(self, execution_id: str, attempt: int, outcome: Outcome) -> None:
        """From the guarded adapter; never raises."""
        self._waiting.setdefault(execution_id, []).append((attempt, outcome))
        self.on_late(execution_id)

    def waiting(self, execution_id: str) -> bool:
        """Whether something has come that nobody took."""
        return execution_id in self._waiting

    def acted(self, execution_id: str) -> bool:
        """Whether something that nobody took says that an earlier attempt had its effect: no proof of absence holds."""
        return any(
            outcome.sent is Sent.ACCEPTED or (outcome.sent is Sent.ANSWERED and not outcome.is_error)
            for _, outcome in self._waiting.get(execution_id, ())
        )

    def take(self, execution_id: str) -> list[tuple[int, Outcome]]:
        """Everything that has come for this execution since the last call."""
        return self._waiting.pop(execution_id, [])
