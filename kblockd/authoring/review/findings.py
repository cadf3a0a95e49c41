"""A finding: what a reviewer would say, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from kblockd.policy.rego.syntax import Module, Node

Level = Literal["error", "warning", "note"]
_LEVELS: Final[Mapping[str, Level]] = {"error": "error", "warning": "warning", "note": "note"}


@dataclass(frozen=True, slots=True, order=True)
class ReviewFinding:
    """``code`` names the check: ``schema``, ``metadata``, ``input-path``, ``unused-package``, ``broad-allow``,
    ``undefined``, ``object-rule``."""

    file: str
    line: int
    column: int
    level: Level
    code: str
    message: str
    next_step: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.level}: {self.message} [{self.code}]; {self.next_step}"

    def to_json(self) -> dict[str, Any]:
        """For frames and for ``--json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> ReviewFinding:
        """The inverse; raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        place = str(row["file"]), int(row["line"]), int(row["column"])
        return cls(*place, _LEVELS[row["level"]], str(row["code"]), str(row["message"]), str(row["next_step"]))


def at(module: Module, node: Node, level: Level, code: str, message: str, next_step: str) -> ReviewFinding:
    """At a node of the syntax tree, or at a bare span."""
    place = node.get("span", node)
    return ReviewFinding(module.file, place["line"], place["col"], level, code, message, next_step)
