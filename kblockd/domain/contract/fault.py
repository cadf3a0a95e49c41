"""What is wrong with a contract, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the path of the key in the document, what was wrong, and the next step."""

    path: Path
    message: str
    next_step: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}; {self.next_step}"


class InvalidContract(ValueError):
    """A document that is no action contract; ``faults`` holds every fault that was found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


def dotted(path: Path) -> str:
    """``lookup[0].arguments.key``: the way a path is written in messages."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"
