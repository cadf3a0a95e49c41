"""Values are what frozen dataclasses are, but for the price: nobody may change one, and the type checker says so."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from kblockd.domain.values import replaced, value_type

ROOT = Path(__file__).parents[3]
CHANGED = """
from tests.records import Record
from kblockd.store.protocol import Absent

def change(record: Record, condition: Absent) -> None:
    record.attempt = 2
    condition.key = ("twin", "")
"""


@value_type(frozen=True, slots=True)
class Pair:
    """Two fields."""

    left: str
    right: int = 0


@value_type(frozen=True, slots=True, eq=False)
class Thing:
    """One of its own."""

    name: str


def test_equal_values_are_one_and_what_stands_by_itself_is_not() -> None:
    assert Pair("a", 1) == Pair("a", 1) != Pair("a", 2)
    assert len({Pair("a"), Pair("a", 0), Pair("b")}) == 2
    assert Thing("a") != Thing("a")
    assert replaced(Pair("a"), right=5) == dataclasses.replace(Pair("a"), right=5) == Pair("a", 5)


def test_a_value_takes_no_other_field() -> None:
    with pytest.raises(AttributeError):
        Pair("a").middle = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="middle"):
        replaced(Pair("a"), middle=1)


def test_a_value_is_frozen() -> None:
    with pytest.raises(TypeError, match="frozen"):
        value_type(frozen=False, slots=True)


def test_the_type_checker_refuses_to_change_one() -> None:
    command = [sys.executable, "-m", "mypy", "--config-file", "/dev/null", "--cache-dir", "/dev/null", "-c", CHANGED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.count("is read-only") == 2, done.stdout
