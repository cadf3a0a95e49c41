"""The output of a tool, and whether it keeps the server's own promise. Neither raises: the effect is already there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain import canonical
from kblockd.domain.contract import promise


def extract(result: Mapping[str, Any]) -> Any:
    """``structuredContent``; else the JSON object of a single text; else the content as it came."""
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        text = content[0].get("text")
        if content[0].get("type") == "text" and isinstance(text, str):
            return _object(text) or {"content": content}
    return {"content": content}


def text(result: Mapping[str, Any]) -> str:
    """The words of a result, for a person: an upstream's own error text (R238)."""
    content = result.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str))


def fault(result: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    """OUTPUT_SCHEMA_MISMATCH, OUTPUT_SCHEMA_UNUSABLE or empty: a finding after the fact, never "failed before".

    The standard's draft 2020-12 with RE2 patterns, within bounds, and nothing is fetched for a ``$ref``.
    """
    schema = definition.get("outputSchema")
    if not isinstance(schema, dict):
        return ""
    if "structuredContent" not in result:
        return "OUTPUT_SCHEMA_MISMATCH"
    try:
        kept = promise.keeps(schema, result["structuredContent"])
    except Exception:  # an unusable schema of the server's, in whatever way, must not undo an effect
        return "OUTPUT_SCHEMA_UNUSABLE"
    return "" if kept else "OUTPUT_SCHEMA_MISMATCH"


def _object(text: str) -> Any:
    try:
        return canonical.parse(text.encode())
    except (canonical.NotCanonical, UnicodeError):
        return None
