"""The faults of a configuration, each with file, line, key, message and next step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kblockd.domain.contract.fault import Path as KeyPath
from kblockd.domain.contract.fault import dotted


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a key; line and column count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class ConfigurationFault:
    """One fault of one key."""

    place: Place
    path: KeyPath
    message: str
    next_step: str

    @property
    def key(self) -> str:
        """``clocks.lease_ttl_seconds``, or "the document"."""
        return dotted(self.path)

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.message}; {self.next_step}"


class ConfigurationError(Exception):
    """The start is refused. The message has one line per fault, in the order of files and lines."""

    def __init__(self, faults: Iterable[ConfigurationFault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.place))
        count = len(self.faults)
        head = f"{count} fault{'s' if count != 1 else ''} in the configuration; nothing was started"
        super().__init__("\n".join([head, *map(str, self.faults)]))
