"""Effects in memory, counted by item: a doubled one shows."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Effects:
    """What happened so far."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()

    def act(self, item: str) -> dict[str, Any]:
        """The effect."""
        self._done[item] += 1
        return {"id": f"e-{item}", "done": self._done[item]}

    def state(self, item: str) -> dict[str, Any]:
        """How often ``item`` was acted on."""
        return {"done": self._done[item]}

    def count(self) -> dict[str, Any]:
        """All effects, and the most of one item."""
        return {"count": self._done.total(), "most": max(self._done.values(), default=0)}
