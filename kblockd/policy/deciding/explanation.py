"""A decision with the rules that fired, in the same form for both engines.

A rule fires when its body held and the value of its head was computed; a default, when no other rule of its name gave
a value. A rule's place is that of its first character; an ``else``'s, that of the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from kblockd.domain.errors import Reason
from kblockd.policy.deciding.engine import Decision, PolicyFailure
from kblockd.policy.deciding.floor import Ruling

Kind = Literal["rule", "else", "default", "value"]
"""``value``: a rule without a condition, such as a table."""

_KINDS: Final[Mapping[str, Kind]] = {"rule": "rule", "else": "else", "default": "default", "value": "value"}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """``file`` is relative to the bundle; ``line`` and ``column`` count from 1; ``name`` such as
    ``kblock.decision.refusals``, up to its first variable part."""

    file: str
    line: int
    column: int
    name: str
    kind: Kind = "rule"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.name}" + (
            "" if self.kind == "rule" else f" ({self.kind})"
        )

    @property
    def is_test(self) -> bool:
        """Whether it stands in a file of tests."""
        return self.file.endswith("_test.rego")

    def to_json(self) -> dict[str, Any]:
        """For frames and for ``--json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Rule:
        """The inverse; raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        return cls(str(row["file"]), int(row["line"]), int(row["column"]), str(row["name"]), _KINDS[row["kind"]])


def rules_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """From the frames, in the order of the files."""
    return tuple(sorted(map(Rule.from_json, rows)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """``decision`` is what the daemon would be told, or None: then ``failure`` says why that is a denial.

    ``value`` is the result as it came, also if its type is wrong; None if there was none. ``ruling``: what code makes
    of a decision, the approval floor included; None for the other entry points and without a decision.
    """

    entrypoint: str
    revision: str
    decision: Decision | None
    failure: PolicyFailure | None
    value: Any
    rules: tuple[Rule, ...]
    ruling: Ruling | None = None

    @property
    def reason(self) -> Reason | None:
        """Why there is no decision."""
        return self.failure.reason if self.failure else None
