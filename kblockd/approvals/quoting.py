"""Foreign text as an approver may read it: quoted, bounded, escaped.

Text that an agent chose must not be able to look like the daemon's own words, hide characters, reorder what is read
or drive a terminal. Source: evidence.md (text that is not NFC is flagged); R048; APR.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

MAX_QUOTED: Final = 200  # characters of one value
MAX_WARNINGS: Final = 19
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"})
# Letters and marks that show as nothing (Default_Ignorable_Code_Point, the blank Braille cell) or strike out others.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
    "\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20e5\u20e6\u20ea\u20eb]"
)


def quote(value: Any) -> str:
    """A value in double quotes (strings) or as JSON (the rest), with every hidden character escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    shown = escape(text[:MAX_QUOTED])
    rest = len(text) - MAX_QUOTED
    more = f"… ({rest} more characters)" if rest > 0 else ""
    return f'"{shown}{more}"' if isinstance(value, str) else f"{shown}{more}"


def escape(text: str) -> str:
    """Control, format (bidi too), private and unassigned characters become ``\\u…`` escapes; quotes and backslashes
    are escaped so that a value cannot end its own quotation."""
    return "".join(_escaped(character) for character in text)


def warnings(value: Any, at: str = "arguments") -> list[str]:
    """What an approver should know of the characters in a document, at most once a kind and place."""
    found: list[str] = []
    for place, text in _texts(value, at):
        where = escape(place)[:MAX_QUOTED]
        if unicodedata.normalize("NFC", text) != text:
            found.append(f"{where} holds text that is not in Unicode form NFC; it may look like another text")
        if _stands_for_another(text):
            found.append(f"{where} holds characters that stand for others (full-width, styled, foreign digits)")
        if any(map(hidden, text)):
            found.append(f"{where} holds invisible, control or direction-changing characters; they are escaped here")
        if _mixes_scripts(text):
            found.append(f"{where} mixes Latin letters with look-alikes of another alphabet")
    if len(found) > MAX_WARNINGS:  # junk in front must not push out that there is more
        more = len(found) - MAX_WARNINGS
        return [f"{more} more warnings than are shown here: read every argument", *found[:MAX_WARNINGS]]
    return found


def hidden(character: str) -> bool:
    """Whether a character shows as nothing, as any blank but the space, reorders, or strikes out what it stands on."""
    return character != " " and bool(unicodedata.category(character) in _HIDDEN or _BLANK.match(character))


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == " " or (character.isprintable() and not hidden(character)):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield f"{at} (a key)", key
            yield from _texts(member, f"{at}/{key}")
    elif isinstance(value, list):
        for position, member in enumerate(value):
            yield from _texts(member, f"{at}/{position}")


def _stands_for_another(text: str) -> bool:
    """An upstream that folds them acts on another target than the one that the guards compared byte by byte."""
    if text.isascii():
        return False
    folded = unicodedata.normalize("NFKC", text) != unicodedata.normalize("NFC", text)
    return folded or any(c.isdecimal() and not c.isascii() for c in text)


def _mixes_scripts(text: str) -> bool:
    scripts = {unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
