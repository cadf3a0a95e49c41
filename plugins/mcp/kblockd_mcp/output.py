"""The output of a tool, and whether it matches the server's schema. Never raises: the effect has already happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kblockd.domain.answer import AnswerFault, NotJson, Numbers, Unreadable, decode, first_fault
from kblockd.domain.contract import promise

_OBJECT: Final = re.compile("\ufeff?[ \t\r\n]*+[{]")


def extract(result: Mapping[str, Any], numbers: Numbers, *, reading: bool) -> tuple[Any, Unreadable | None]:
    """``structuredContent``; else the JSON object in a single text; else the raw content. Or None, with the part that
    cannot be stored.

    A text that is a JSON object counts as one even if part of it cannot be stored, because a policy would not find its
    fields in the raw content (UPS-18). ``reading``: a text that only begins as an object, such as one that the server
    truncated, is not evidence either; as the output of an effect it is ordinary text.
    """
    output, unreadable = result.get("structuredContent"), None
    if output is None:
        output, unreadable = _object(_single_text(result), numbers, reading=reading)
    if output is None:
        output = {"content": result.get("content")}
    unreadable = unreadable or first_fault(output)
    return (output, None) if unreadable is None else (None, unreadable)


def text(result: Mapping[str, Any]) -> str:
    """The text of a result, for a person: an upstream's own error message (R238)."""
    content = result.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str))


def fault(result: Mapping[str, Any], definition: Mapping[str, Any], numbers: Numbers) -> str:
    """OUTPUT_SCHEMA_MISMATCH, OUTPUT_SCHEMA_UNUSABLE or empty: a finding after the fact, never "failed before".

    JSON Schema draft 2020-12 with RE2 patterns, within bounds; a ``$ref`` is never fetched. Skipped when numbers are
    stored as text, because the schema describes numbers.
    """
    schema = definition.get("outputSchema")
    if not isinstance(schema, dict) or numbers == "text":
        return ""
    if "structuredContent" not in result:
        return "OUTPUT_SCHEMA_MISMATCH"
    try:
        matches = promise.keeps(schema, result["structuredContent"])
    except Exception:  # a server's unusable schema, whatever its fault, must not discard an effect
        return "OUTPUT_SCHEMA_UNUSABLE"
    return "" if matches else "OUTPUT_SCHEMA_MISMATCH"


def _single_text(result: Mapping[str, Any]) -> str:
    """The only text of the content; empty if the content is anything else."""
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return ""
    text = content[0].get("text")
    return text if content[0].get("type") == "text" and isinstance(text, str) else ""


def _object(text: str, numbers: Numbers, *, reading: bool) -> tuple[Any, Unreadable | None]:
    """(object, None), or (None, fault) for an object that cannot be stored; both None for other text."""
    if not _OBJECT.match(text):
        return None, None
    try:
        return decode(text.encode(), numbers), None
    except UnicodeError:  # a lone surrogate, which is reported for the content
        return None, None
    except NotJson as error:
        return None, error.unreadable or (Unreadable(AnswerFault.HALF) if reading else None)
