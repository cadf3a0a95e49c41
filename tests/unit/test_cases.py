"""``tests/cases.csv`` says what each case demands, and which tests hold it; without tests a case is still open.

A case is a fault that a real system had. ``grep -v '::' tests/cases.csv`` lists what is open.
"""

from __future__ import annotations

import re
from collections import Counter

from tests.cases import COLUMNS, FILE, ID, carried
from tests.named import fault, named
from tests.named import rows as read


def rows() -> tuple[dict[str, str], ...]:
    return read(FILE, COLUMNS)


def test_every_case_has_an_id_of_its_own_and_a_sentence() -> None:
    assert [row for row in rows() if not ID.fullmatch(row["id"]) or None in row.values()] == []
    assert [case for case, count in Counter(row["id"] for row in rows()).items() if count > 1] == []
    assert [row["id"] for row in rows() if not re.fullmatch(r"\S.{15,}\.", row["text"])] == []


def test_every_named_test_exists() -> None:
    faults = [(row["id"], name, fault(name)) for row in rows() for name in named(row)]
    assert [found for found in faults if found[2]] == []


def test_no_test_is_named_twice_for_one_case() -> None:
    twice = {row["id"]: [name for name, count in Counter(named(row)).items() if count > 1] for row in rows()}
    assert {case: names for case, names in twice.items() if names} == {}


def test_a_case_that_a_test_carries_is_not_called_open() -> None:
    """The table must not fall behind the tests: ``python -m tests.cases`` brings it up to date."""
    held = carried()
    assert [row["id"] for row in rows() if row["id"] in held and not named(row)] == []
    assert len(held) > 100
