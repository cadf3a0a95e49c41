"""Each named mutant of the real code, in a copy of the tree, is caught by the test that stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT
from tests.mutants.copies import Copy
from tests.mutants.table import MUTANTS, Edit, Mutant


def _cases() -> Iterator[Any]:
    for mutant in MUTANTS:
        yield pytest.param(mutant, marks=[pytest.mark.soak] if mutant.soak else [], id=mutant.name.replace(" ", "-"))


@pytest.mark.timeout(330)
@pytest.mark.parametrize("mutant", [*_cases()])
def test_the_mutant_is_caught_by_its_test(tmp_path: Path, mutant: Mutant) -> None:
    """LED-01, LSE-01, APR-04, IDM-03, REC-08: the guarantee's own test fails without the line that gives it; and what
    ran is the copy, each mutated file of it."""
    copy = Copy(tmp_path)
    copy.apply(mutant)
    done = copy.run([mutant.caught_by])
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"FAILED {mutant.caught_by}" in done.stdout, done.stdout[-4000:]
    assert "1 failed" in done.stdout, done.stdout[-4000:]
    assert set(copy.ran()) == {tmp_path / edit.file for edit in mutant.edits}


@pytest.mark.soak
@pytest.mark.timeout(330)
def test_without_a_mutant_the_same_tests_pass(tmp_path: Path) -> None:
    """The copy itself fails nothing, so it is the mutants that are caught."""
    done = Copy(tmp_path).run(sorted({mutant.caught_by for mutant in MUTANTS}))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("old", ["no such line", "def "])
def test_a_mutant_that_no_longer_fits_is_no_mutant(old: str) -> None:
    """Not there, or there more than once."""
    with pytest.raises(ValueError, match="the mutant must follow the code"):
        Edit("kblockd/watchdog.py", old, "").edited(ROOT)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_every_mutant_still_fits(mutant: Mutant) -> None:
    """Also those that only the soak runs: a change of the code meets its mutant at once."""
    for edit in mutant.edits:
        assert edit.edited(ROOT) != (ROOT / edit.file).read_text()
