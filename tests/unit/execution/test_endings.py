"""What an operator's finding, or the sweep, makes of an execution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.outcome import Finding
from kblockd.domain.states import Phase, ResultClass, State
from kblockd.execution.resolve import ending_of
from kblockd.execution.sweeper import closure

VERDICTS = [None, "expected", "tolerated", "inconclusive", "prohibited"]


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("finding", list(Finding))
def test_c23_an_operators_finding_decides_state_and_class(verdict: str | None, finding: Finding) -> None:
    """kblockd/execution/README.md#held: present is success unless the authority showed something prohibited."""
    row: Any = SimpleNamespace(verification=SimpleNamespace(verdict=verdict) if verdict else None)
    state, result_class, code = ending_of(row, finding)
    if finding is Finding.PRESENT and verdict == "prohibited":
        assert (state, result_class) == (State.FAILED, ResultClass.FAILED_AFTER_SIDE_EFFECT)
    elif finding is Finding.PRESENT:
        assert (state, result_class, code) == (State.SUCCEEDED, ResultClass.COMPLETED_VERIFIED, "")
    elif finding is Finding.ABSENT:
        assert (state, result_class) == (State.FAILED, ResultClass.FAILED_BEFORE_SIDE_EFFECT)
    else:
        assert (state, result_class) == (State.FAILED, ResultClass.UNKNOWN_OUTCOME)
    assert (code == "") == (state is State.SUCCEEDED)


def row(marker: int, phase: Phase, finding: str = "", result_class: str = "") -> Any:
    """An execution that nobody can take further."""
    found = SimpleNamespace(finding=finding) if finding else None
    return SimpleNamespace(marker=marker, phase=phase, result_class=result_class, finding=found)


BEFORE = ResultClass.FAILED_BEFORE_SIDE_EFFECT


@pytest.mark.parametrize(
    ("closed", "result_class"),
    [
        (row(0, Phase.CLAIMED), ResultClass.NOT_STARTED),
        (row(1, Phase.SENT), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.ACCEPTED), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECONCILING), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECONCILING, finding="unprovable"), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECONCILING, finding="present"), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECONCILING, finding="absent"), BEFORE),
        (row(1, Phase.VERIFYING), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECOVERING, result_class=BEFORE), BEFORE),
        (row(1, Phase.RECOVERING, result_class=ResultClass.UNKNOWN_OUTCOME), ResultClass.UNKNOWN_OUTCOME),
        (row(1, Phase.RECOVERING, finding="absent"), BEFORE),
    ],
)
def test_r460_a_closure_by_age_says_what_is_proved(closed: Any, result_class: ResultClass) -> None:
    """R460, R461, C7: before the upstream was called where the missing marker proves it, else unknown; a proved
    absence stays one."""
    found, words = closure(closed)
    assert found is result_class
    assert words.startswith("interrupted")
    assert ("unknown" in words) == (result_class is ResultClass.UNKNOWN_OUTCOME)
