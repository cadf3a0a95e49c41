"""Why a bundle was refused: every fault with its place and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BundleFault:
    """``file`` is relative to the folder; ``line`` and ``column`` count from 1, 0 means the whole file."""

    file: str
    line: int
    column: int
    message: str
    next_step: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}; {self.next_step}"

    def to_json(self) -> dict[str, Any]:
        """For the frame from child to parent."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> BundleFault:
        """The inverse; raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        return cls(str(row["file"]), int(row["line"]), int(row["column"]), str(row["message"]), str(row["next_step"]))


class LoadFailed(Exception):
    """The process that should serve a bundle could not be started; the message says why."""


class BundleRefused(Exception):
    """A bundle that may not be activated; the revision in force stays. ``faults`` is never empty.

    ``transient``: an environment failure, not the bundle's; retrying may succeed.
    """

    def __init__(self, faults: Sequence[BundleFault], *, revision: str = "", transient: bool = False) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)
        self.revision = revision
        self.transient = transient


def refusal(file: str, message: str, next_step: str) -> BundleRefused:
    """One fault of a whole file; raise it."""
    return BundleRefused([BundleFault(file, 0, 0, message, next_step)])


def unloadable(message: str) -> BundleFault:
    """The fault of a bundle that is refused as a whole because a process that handled it failed."""
    return BundleFault(".", 0, 0, message, "nest less, shorten the rules or the tests, or keep less data")
