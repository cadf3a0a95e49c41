"""The books of an honest provider of refunds. It does not deduplicate by itself: a double send is a second effect."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

LONG = "x" * 500_000  # the text of an error that goes on and on


class Refunds:
    """The books: ``done`` is every refund that was really made."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.deduplicates = False  # by effect key
        self.hidden = False  # the lookup finds nothing
        self._lock = threading.Lock()

    def add(self, asked: Mapping[str, Any], key: str) -> None:
        """The effect."""
        with self._lock:
            if not (self.deduplicates and any(row["key"] == key for row in self.done)):
                self.done.append({**asked, "refund_id": f"re_{len(self.done) + 1}", "key": key})

    def of(self, order_id: str) -> list[dict[str, Any]]:
        """The refunds of one order, oldest first."""
        return [row for row in self.done if row["order_id"] == order_id]

    def last(self, order_id: str) -> str:
        """What a good answer names, also when there is nothing to name."""
        found = self.of(order_id)
        return str(found[-1]["refund_id"]) if found else "re_none"

    def order(self, order_id: str) -> dict[str, Any]:
        """An order of 100.00 EUR that was paid."""
        found = self.of(order_id)
        return {
            "order_id": order_id,
            "exists": True,
            "version": 1 + len(found),
            "status": "refunded" if found else "paid",
            "amount": "100.00",
            "currency": "EUR",
            "refunded": "100.00" if found else "0.00",
        }

    def found(self, key: str) -> dict[str, Any]:
        """Whether a refund was made under an effect key; strongly consistent."""
        return {"found": not self.hidden and any(row["key"] == key for row in self.done)}

    def listed(self, order_id: str) -> dict[str, Any]:
        """The refunds of an order."""
        return {"refunds": self.of(order_id)}
