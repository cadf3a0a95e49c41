"""Unicode normal forms of foreign text, in linear time.

Normalising sorts each run of combining marks by insertion, which takes the square of its length: a megabyte of accents
would take hours, inside one call that nothing can interrupt.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

Form = Literal["NFC", "NFKC"]

MAX_MARKS: Final = 30
"""Combining marks in a row, as in the Stream-Safe Text Format (UAX #15, section 13): no orthography needs more."""

_BECOME_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""No marks themselves, but what they decompose to begins with one."""


def is_stream_safe(text: str) -> bool:
    """Whether no more than ``MAX_MARKS`` combining marks stand in a row."""
    if text.isascii():
        return True
    characters = set(text)
    marks = {*filter(unicodedata.combining, characters), *(characters & _BECOME_MARKS)}
    if not marks:
        return True
    return max(map(len, re.findall(f"[{re.escape(''.join(marks))}]+", text))) <= MAX_MARKS


def is_normal(form: Form, text: str) -> bool:
    """Whether ``text`` is in that form; False for what is not stream-safe, which is not looked at any further."""
    return text.isascii() or (is_stream_safe(text) and unicodedata.is_normalized(form, text))


def normalized(form: Form, text: str) -> str:
    """In that form; raises ``ValueError`` for what is not stream-safe."""
    if not is_stream_safe(text):
        raise ValueError(f"more than {MAX_MARKS} combining marks in a row")
    return unicodedata.normalize(form, text)
