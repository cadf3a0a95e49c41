"""Lines for people, folded here and not by the terminal: what was folded starts with a mark and never at the margin.

A terminal puts the rest of a long line where a row of its own would start, so foreign text that is long enough could
write rows (APV-06).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.cells import get_character_cell_size
from rich.console import Console, ConsoleOptions
from rich.text import Text

CONTINUED: Final = "↪ "
_NARROWEST: Final = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line; what does not fit goes on below it, behind ``indent`` blanks and the mark."""

    text: Text
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for position, piece in enumerate(_folded(self.text, options.max_width - self.indent)):
            yield _whole(piece if position == 0 else Text(" " * self.indent) + piece)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names at the margin, values in a column beside them; only names stand at the margin."""

    rows: list[tuple[str, Text]] = field(default_factory=list)

    def add(self, name: str, value: Text) -> None:
        """One more row; line ends in ``value`` are the daemon's own."""
        self.rows.append((name, value))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        column = max((len(name) for name, _ in self.rows), default=0) + 1
        for name, value in self.rows:
            lines = (piece for line in value.split("\n") for piece in _folded(line, options.max_width - column))
            for position, piece in enumerate(lines):
                yield _whole(Text((name if position == 0 else "").ljust(column), style="dim") + piece)


def _folded(text: Text, width: int) -> Iterator[Text]:
    """Pieces of at most ``width`` cells, each but the first with the mark in front."""
    start, mark = 0, ""
    for end in _ends(text.plain, max(width, _NARROWEST)):
        yield Text(mark, style="dim") + text[start:end]
        start, mark = end, CONTINUED


def _ends(text: str, width: int) -> Iterable[int]:
    """Where each piece ends; those after the first have less room, because of their mark."""
    room = width
    for position, character in enumerate(text):
        size = get_character_cell_size(character)
        if size > room:
            yield position
            room = width - len(CONTINUED)
        room -= size
    yield len(text)


def _whole(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text
