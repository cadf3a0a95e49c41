"""Foreign text as an approver may read it: quoted, bounded, escaped.

Text that an agent chose must not be able to look like the daemon's own words, hide characters, reorder what is read
or drive a terminal. Everything here takes time and memory linear in its input. Source:
kblockd/domain/digests.md#canonical-form; R048; APV-06.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

from kblockd.domain import normal, pointer

MAX_QUOTED: Final = 200  # characters of one value
MAX_WARNINGS: Final = 19
MAX_NAMED: Final = 8  # different characters that one warning names
BLANK: Final = "␠"  # stands for a blank in a run of them; escaped where foreign text holds it
_RUN: Final = re.compile("  +")
_PIECE: Final = re.compile("  +|.", re.DOTALL)
_HIDES, _STANDS_FOR_ANOTHER, _LATIN, _LOOK_ALIKE = "hides", "stands for another", "Latin", "look-alike"
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
    shown: list[str] = []
    more = 0
    for path, text, is_key in pointer.texts(value):
        if text.isascii():
            continue
        if len(shown) < MAX_WARNINGS:
            shown.append(f"{_place(at, path, is_key=is_key)} holds characters outside ASCII: {_names(text)}")
        else:
            more += 1
    return _with_rest(shown, more)


def warnings(value: Any, at: str = "arguments") -> list[str]:
    """What an approver should know of the characters in a document, at most once a kind and place.

    Linear in the document: each text is looked at by its distinct characters, and a place is written out only for the
    warnings that are shown.
    """
    shown: list[str] = []
    more = 0
    for path, text, is_key in pointer.texts(value):
        kinds = _strange(text)
        if kinds and len(shown) < MAX_WARNINGS:
            where = _place(at, path, is_key=is_key)
            shown += [f"{where} {kind}" for kind in kinds]
        else:
            more += len(kinds)
    return _with_rest(shown[:MAX_WARNINGS], more + len(shown[MAX_WARNINGS:]))


def hidden(character: str) -> bool:
    """Whether a character shows as nothing, as any blank but the space, reorders, or strikes out what it stands on."""
    return _HIDES in _traits(character)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == " " or (character != BLANK and character.isprintable() and not hidden(character)):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _with_rest(shown: list[str], more: int) -> list[str]:
    """Junk in front must not push out that there is more."""
    return [f"{more} more warnings than are shown here: read every argument", *shown] if more else shown


def _names(text: str) -> str:
    found = list(dict.fromkeys(character for character in text if not character.isascii()))
    names = [f"U+{ord(c):04X} {unicodedata.name(c, 'without a name')}" for c in found[:MAX_NAMED]]
    more = len(found) - MAX_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _place(at: str, path: Sequence[str | int], *, is_key: bool) -> str:
    """Cut at every level: one key may be as long as the whole document."""
    above = path[:-1] if is_key else path
    place = "".join([at, *(f"/{str(token)[:MAX_QUOTED]}" for token in above), " (a key)" if is_key else ""])
    return visible_blanks(escape(place[:MAX_QUOTED])[:MAX_QUOTED])


def _strange(text: str) -> list[str]:
    """The kinds of warnings for one text."""
    if text.isascii() and text.isprintable():
        return []
    traits = set().union(*map(_traits, set(text)))
    found = []
    if not normal.is_stream_safe(text):
        found.append(f"holds more than {normal.MAX_MARKS} combining marks in a row; what they mark cannot be read")
    elif not normal.is_normal("NFC", text):
        found.append("holds text that is not in Unicode form NFC; it may look like another text")
    if _STANDS_FOR_ANOTHER in traits:
        found.append("holds characters that stand for others (full-width, styled, foreign digits)")
    if _HIDES in traits:
        found.append("holds invisible, control or direction-changing characters; they are escaped here")
    if traits >= {_LATIN, _LOOK_ALIKE}:
        found.append("mixes Latin letters with look-alikes of another alphabet")
    return found


@functools.lru_cache(maxsize=1 << 14)
def _traits(character: str) -> frozenset[str]:
    """What an approver should know of one character: a text has the traits of its distinct characters.

    An upstream that folds what stands for another acts on another target than the one that the guards compared byte by
    byte. A text folds to another exactly if one of its characters does.
    """
    script = unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
    folds = unicodedata.normalize("NFKD", character) != unicodedata.normalize("NFD", character)
    held = {
        _HIDES: character != " " and (unicodedata.category(character) in _HIDDEN or _BLANK.match(character)),
        _STANDS_FOR_ANOTHER: folds or (character.isdecimal() and not character.isascii()),
        _LATIN: script == "LATIN",
        _LOOK_ALIKE: script in ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"),
    }
    return frozenset(trait for trait, holds in held.items() if holds)
