"""Lines for people, folded here and not by the terminal: a continuation starts with a mark and never at the margin.

A terminal continues a long line at the margin, where a new row would start, so long foreign text could forge rows
(APV-06).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.cells import get_character_cell_size
from rich.console import Console, ConsoleOptions
from rich.text import Text

CONTINUED: Final = "↪ "
_MIN_WIDTH: Final = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line; its continuations start with ``indent`` blanks and the mark."""

    text: Text
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for position, piece in enumerate(_folded(self.text, options.max_width - self.indent)):
            yield _whole(piece if position == 0 else Text(" " * self.indent) + piece)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names at the margin, values in a column beside them."""

    rows: list[tuple[str, Text]] = field(default_factory=list)

    def add(self, name: str, value: Text) -> None:
        """Adds a row; line breaks in ``value`` must come from the daemon itself."""
        self.rows.append((name, value))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        column = max((len(name) for name, _ in self.rows), default=0) + 1
        for name, value in self.rows:
            lines = (piece for line in value.split("\n") for piece in _folded(line, options.max_width - column))
            for position, piece in enumerate(lines):
                yield _whole(Text((name if position == 0 else "").ljust(column), style="dim") + piece)


def _folded(text: Text, width: int) -> Iterator[Text]:
    """Pieces of at most ``width`` cells, all but the first with the mark in front."""
    start, mark = 0, ""
    for end in _ends(text.plain, max(width, _MIN_WIDTH)):
        yield Text(mark, style="dim") + text[start:end]
        start, mark = end, CONTINUED


def _ends(text: str, width: int) -> Iterable[int]:
    """The end of each piece; all but the first have less room because of the mark."""
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
