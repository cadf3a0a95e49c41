"""An engine whose queue no principal can fill: each has some questions with it at once, and its next ones wait.

The time for a question counts from its turn on. What waits is bounded by the principal's calls and executions.
Source: AGT-03, AGT-04.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kblockd.admission import Slots
from kblockd.policy.engine import Decision, PolicyEngine, PolicyStatus


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """A ``PolicyEngine`` in front of another."""

    engine: PolicyEngine
    slots: Slots

    def status(self) -> PolicyStatus:
        """Never blocks."""
        return self.engine.status()

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """See ``PolicyEngine``."""
        async with self.slots:
            return await self.engine.evaluate(entrypoint, document)

    async def close(self) -> None:
        """Closes the engine behind it."""
        await self.engine.close()
