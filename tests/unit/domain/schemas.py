"""Schemas that cost more than they look."""

from __future__ import annotations

from typing import Any


def doubling(levels: int, last: dict[str, Any]) -> dict[str, Any]:
    """Definitions ``a0``, ``a1`` and so on; each asks for the next one twice."""
    definitions: dict[str, Any] = {
        f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)
    }
    return {**definitions, f"a{levels}": last}
