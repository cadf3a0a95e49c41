"""Foreign text as an approver may read it: quoted, bounded, escaped.

Text that an agent chose must not be able to look like the daemon's own words, hide characters, reorder what is read
or drive a terminal. Everything here takes time and memory linear in its input, and the place of a text in its document
is built only where there is something to say about it. Source: evidence.md (text that is not NFC is flagged); R048;
APV-06.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

MAX_QUOTED: Final = 200  # characters of one value
MAX_WARNINGS: Final = 19
MAX_NAMED: Final = 8  # different characters that one warning names
BLANK: Final = "␠"  # stands for a blank in a run of them; escaped where foreign text holds it
_RUN: Final = re.compile("  +")
_PIECE: Final = re.compile("  +|.", re.DOTALL)
_KEY: Final = " (a key)"
_HIDES: Final = "holds invisible, control or direction-changing characters; they are escaped here"
_Parts = tuple[str | int, ...]
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me"})
# Letters and marks that show as nothing (Default_Ignorable_Code_Point, the blank Braille cell) or strike out others.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
    "\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20e5\u20e6\u20ea\u20eb]"
)


def quote(value: Any) -> str:
    """A value in double quotes (strings) or as JSON (the rest), with every hidden character escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    pieces = list(itertools.islice(_PIECE.finditer(text), MAX_QUOTED))
    shown = "".join(visible_blanks(escape(piece[0])) for piece in pieces)
    rest = len(text) - (pieces[-1].end() if pieces else 0)
    more = f"… ({rest} more characters)" if rest > 0 else ""
    return f'"{shown}{more}"' if isinstance(value, str) else f"{shown}{more}"


def escape(text: str) -> str:
    """Control, format (bidi too), private and unassigned characters become ``\\u…`` escapes; quotes and backslashes
    are escaped so that a value cannot end its own quotation, and ``␠``, so that it can forge no run of blanks."""
    return "".join(_escaped(character) for character in text)


def visible_blanks(text: str) -> str:
    """A run of blanks becomes ``␠×N``: two hundred of them would push what follows onto a line of its own."""
    return _RUN.sub(lambda run: f"{BLANK}×{len(run[0])}", text)


def named(value: Any, at: str) -> list[str]:
    """Names every character outside ASCII by code point and name, one warning for each text that holds any (APV-06).

    For the few texts that say which deed it is. A word wholly of another script looks like the one that was expected
    and mixes nothing, so only its code points tell.
    """
    shown, more = _first((place, text) for place, text in _texts(value, (at,)) if not text.isascii())
    return [*more, *(f"{_place(place)} holds characters outside ASCII: {_names(text)}" for place, text in shown)]


def warnings(value: Any, at: str = "arguments") -> list[str]:
    """What an approver should know of the characters in a document, at most once a kind and place."""
    shown, more = _first((place, fault) for place, text in _texts(value, (at,)) for fault in _faults(text))
    return [*more, *(f"{_place(place)} {fault}" for place, fault in shown)]


def hidden(character: str) -> bool:
    """Whether a character shows as nothing, as any blank but the space, reorders, or strikes out what it stands on."""
    return character != " " and bool(unicodedata.category(character) in _HIDDEN or _BLANK.match(character))


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == " " or (character != BLANK and character.isprintable() and not hidden(character)):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _first(found: Iterator[tuple[_Parts, str]]) -> tuple[list[tuple[_Parts, str]], list[str]]:
    """The first ``MAX_WARNINGS``, and a sentence where there are more: junk in front must not push that out."""
    shown = list(itertools.islice(found, MAX_WARNINGS))
    more = sum(1 for _ in found)
    return shown, [f"{more} more warnings than are shown here: read every argument"] if more else []


def _faults(text: str) -> Iterator[str]:
    if text.isascii():
        if any(map(hidden, text)):
            yield _HIDES
        return
    if not unicodedata.is_normalized("NFC", text):
        yield "holds text that is not in Unicode form NFC; it may look like another text"
    if _stands_for_another(text):
        yield "holds characters that stand for others (full-width, styled, foreign digits)"
    if any(map(hidden, text)):
        yield _HIDES
    if _mixes_scripts(text):
        yield "mixes Latin letters with look-alikes of another alphabet"


def _names(text: str) -> str:
    found = list(dict.fromkeys(character for character in text if not character.isascii()))
    names = [f"U+{ord(c):04X} {unicodedata.name(c, 'without a name')}" for c in found[:MAX_NAMED]]
    more = len(found) - MAX_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _place(parts: _Parts) -> str:
    """Parts as ``arguments/rows/0``, each cut to what can be shown, so that a long key costs nothing."""
    *parents, last = (str(part)[:MAX_QUOTED] for part in parts)
    separator = "" if last == _KEY else "/" if parents else ""
    where = "/".join(parents) + separator + last
    return visible_blanks(escape(where)[:MAX_QUOTED])


def _texts(value: Any, at: _Parts) -> Iterator[tuple[_Parts, str]]:
    """Every text and every key with its place. Documents are at most 32 levels deep (``kblockd.domain.canonical``)."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield (*at, _KEY), key
            yield from _texts(member, (*at, key))
    elif isinstance(value, list):
        for position, member in enumerate(value):
            yield from _texts(member, (*at, position))


def _stands_for_another(text: str) -> bool:
    """An upstream that folds them acts on another target than the one that the guards compared byte by byte."""
    folded = unicodedata.normalize("NFKC", text) != unicodedata.normalize("NFC", text)
    return folded or any(c.isdecimal() and not c.isascii() for c in text)


def _mixes_scripts(text: str) -> bool:
    scripts = {unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
