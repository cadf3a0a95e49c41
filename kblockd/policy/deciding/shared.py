"""An engine whose queue no principal can fill: each has a limited number of concurrent queries; further ones wait.

A query's time starts at its turn. The number of waiting ones is bounded by the principal's calls and executions.
Source: AGT-03, AGT-04.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.admission import Slots
from kblockd.policy.deciding.engine import Decision, PolicyEngine, PolicyStatus


class SharedEngine:
    """A ``PolicyEngine`` in front of another."""

    def __init__(self, engine: PolicyEngine, slots: Slots) -> None:
        self._engine = engine
        self._slots = slots

    def status(self) -> PolicyStatus:
        """Never blocks."""
        return self._engine.status()

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """See ``PolicyEngine``."""
        async with self._slots:
            return await self._engine.evaluate(entrypoint, document)

    async def close(self) -> None:
        """Closes the engine behind it."""
        await self._engine.close()
