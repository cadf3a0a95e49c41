"""A run of a bundle's tests: their results, the rules that fired, the lines that were evaluated.

Two measures, because one hides what the other shows. A **rule** is covered when it fired in a test: its body held, and
its head was computed. A **line** is covered when an expression on it was evaluated; a line without an expression does
not count. ``deny if input.x`` on one line is a covered line as soon as a test looks at it, and a covered rule only when
a test makes it deny. Tests that fail cover nothing. Rules without a condition (tables) have nothing to test and do not
count. Files of tests count in neither measure (``opa test --coverage`` counts their lines, too).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.entrypoints import ENTRYPOINTS
from kblockd.policy.deciding.explanation import Rule


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    """``why`` is empty for one that passed."""

    file: str
    line: int
    column: int
    name: str
    why: str

    @property
    def passed(self) -> bool:
        """Whether it is true."""
        return not self.why

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Trial:
        """From a frame; raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        return cls(str(row["file"]), int(row["line"]), int(row["column"]), str(row["name"]), str(row["why"]))

    def to_json(self) -> dict[str, Any]:
        """For frames and for ``--json``."""
        return {**asdict(self), "passed": self.passed}


@dataclass(frozen=True, slots=True, order=True)
class Lines:
    """Of one file that decides: the lines that were evaluated and those that were not."""

    file: str
    covered: tuple[int, ...]
    missed: tuple[int, ...]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Lines:
        """From a frame; raises as ``Trial.from_json``."""
        return cls(str(row["file"]), tuple(map(int, row["covered"])), tuple(map(int, row["missed"])))


@dataclass(frozen=True, slots=True)
class Trials:
    """``rules`` are all that count and ``fired`` those of them that a test saw; both in the order of the files.
    ``missing`` are the packages that kblockd asks and the bundle does not have."""

    engine: str
    revision: str
    tests: tuple[Trial, ...]
    rules: tuple[Rule, ...]
    fired: tuple[Rule, ...]
    lines: tuple[Lines, ...]
    missing: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        engine: str,
        bundle: Bundle,
        tests: Iterable[Trial],
        rules: Iterable[Rule],
        fired: Iterable[Rule],
        lines: Iterable[Lines],
    ) -> Trials:
        """Sorted, and without what does not count."""
        deciding = [rule for rule in rules if not rule.is_test]
        counted = tuple(sorted(rule for rule in deciding if rule.kind != "value"))
        seen, names = set(fired), {rule.name for rule in deciding}
        results = {entrypoint.replace("/", ".") for entrypoint in ENTRYPOINTS}
        return cls(
            engine,
            bundle.revision,
            tuple(sorted(tests)),
            counted,
            tuple(rule for rule in counted if rule in seen),
            tuple(sorted(lines)),
            tuple(sorted(result.removesuffix(".result") for result in results - names)),
        )

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Tests that did not pass."""
        return tuple(test for test in self.tests if not test.passed)

    @property
    def never_fired(self) -> tuple[Rule, ...]:
        """Rules that no test saw."""
        seen = set(self.fired)
        return tuple(rule for rule in self.rules if rule not in seen)

    @property
    def rule_percent(self) -> float:
        """Of the rules that count; 100 when there are none."""
        return _percent(len(self.fired), len(self.rules))

    @property
    def line_percent(self) -> float:
        """Of the lines that hold an expression; 100 when there are none."""
        covered = sum(len(each.covered) for each in self.lines)
        return _percent(covered, covered + sum(len(each.missed) for each in self.lines))

    def to_json(self) -> dict[str, Any]:
        """The report of ``kblockd policy test --json``."""
        return {
            "engine": self.engine,
            "revision": self.revision,
            "tests": [test.to_json() for test in self.tests],
            "passed": len(self.tests) - len(self.failed),
            "failed": len(self.failed),
            "missing": self.missing,
            "rules": {
                "covered": len(self.fired),
                "total": len(self.rules),
                "percent": self.rule_percent,
                "never_fired": [rule.to_json() for rule in self.never_fired],
            },
            "lines": {"percent": self.line_percent, "files": [asdict(each) for each in self.lines]},
        }


def _percent(part: int, whole: int) -> float:
    """Rounded down to a tenth, so that 100 means all."""
    return 100.0 if part == whole else part * 1000 // whole / 10


class Tester(Protocol):
    """An engine that runs tests."""

    async def test(self, bundle: Bundle, only: str) -> Trials:
        """Those whose name ``only`` (RE2, empty for all) matches; raises ``BundleRefused`` for a bundle that does not
        load."""
        ...
