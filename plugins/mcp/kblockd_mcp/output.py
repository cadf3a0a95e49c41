"""The output of a tool, and whether it keeps the server's own promise. Neither raises: the effect is already there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kblockd.domain.answer import Fault, NotJson, Numbers, Unreadable, decode, first_fault
from kblockd.domain.contract import promise

_OBJECT: Final = re.compile("\ufeff?[ \t\r\n]*+[{]")


def extract(result: Mapping[str, Any], numbers: Numbers, *, reading: bool) -> tuple[Any, Unreadable | None]:
    """``structuredContent``; else the JSON object of a single text; else the content as it came. Or None, and what in
    it cannot be kept.

    A text that is a JSON object stays one where something in it cannot be kept: a policy that looks for its fields
    would find none of them in the content (UPS-18). ``reading``: nor may a text that only begins as one, such as an
    object that the server cut at a length, pass for evidence; of an effect it is a text like any other.
    """
    output, unreadable = result.get("structuredContent"), None
    if output is None:
        output, unreadable = _object(_single_text(result), numbers, reading=reading)
    if output is None:
        output = {"content": result.get("content")}
    unreadable = unreadable or first_fault(output)
    return (output, None) if unreadable is None else (None, unreadable)


def text(result: Mapping[str, Any]) -> str:
    """The words of a result, for a person: an upstream's own error text (R238)."""
    content = result.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str))


def fault(result: Mapping[str, Any], definition: Mapping[str, Any], numbers: Numbers) -> str:
    """OUTPUT_SCHEMA_MISMATCH, OUTPUT_SCHEMA_UNUSABLE or empty: a finding after the fact, never "failed before".

    The standard's draft 2020-12 with RE2 patterns, within bounds, and nothing is fetched for a ``$ref``. Not looked at
    where numbers are kept as text: the schema speaks of numbers.
    """
    schema = definition.get("outputSchema")
    if not isinstance(schema, dict) or numbers == "text":
        return ""
    if "structuredContent" not in result:
        return "OUTPUT_SCHEMA_MISMATCH"
    try:
        kept = promise.keeps(schema, result["structuredContent"])
    except Exception:  # an unusable schema of the server's, in whatever way, must not undo an effect
        return "OUTPUT_SCHEMA_UNUSABLE"
    return "" if kept else "OUTPUT_SCHEMA_MISMATCH"


def _single_text(result: Mapping[str, Any]) -> str:
    """Empty where the content is anything else."""
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return ""
    text = content[0].get("text")
    return text if content[0].get("type") == "text" and isinstance(text, str) else ""


def _object(text: str, numbers: Numbers, *, reading: bool) -> tuple[Any, Unreadable | None]:
    """Both None for what is no JSON object, but a text."""
    if not _OBJECT.match(text):
        return None, None
    try:
        return decode(text.encode(), numbers), None
    except UnicodeError:  # a lone surrogate: found again in the content
        return None, None
    except NotJson as error:
        return None, error.unreadable or (Unreadable(Fault.HALF) if reading else None)
