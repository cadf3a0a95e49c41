"""``tests/requirements.csv`` says of each requirement what stands, and which tests would fail without it.

What is missing is listed by ``grep ',open,' tests/requirements.csv``. Here the list is held to the tree: a test that it
names exists, and nothing is claimed without one. Whether a test really holds its requirement is for a reader to judge.
"""

from __future__ import annotations

import ast
import copy
import csv
import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kblockd.config import document
from kblockd.domain import contract as contracts

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "requirements.csv"
COLUMNS = ["id", "state", "tests"]
STATES = {"met", "partly", "open"}
IDS = [f"R{number:03}" for number in range(1, 764)]
PATH = re.compile(r"tests/[\w./]+")
OWNERS = {
    "R678": "action_contract",
    "R679": "runtime_engine",
    "R680": "idempotency",
    "R681": "sandbox_identity",
    "R682": "verification",
    "R683": "compensation",
    "R684": "telemetry",
    "R685": "incident",
    "R686": "final_outcome",
}


@functools.cache
def rows() -> tuple[dict[str, str], ...]:
    with FILE.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        assert reader.fieldnames == COLUMNS
        return tuple(reader)


@functools.cache
def shipped() -> dict[str, Any]:
    found: dict[str, Any] = document.read(ROOT / "config/actions/payment.refund.create.yaml").value
    return found


def named(row: dict[str, str]) -> list[str]:
    return row["tests"].split(";") if row["tests"] else []


@functools.cache
def definitions(path: Path) -> frozenset[str]:
    """Tests of a module as pytest names them, ``function`` or ``Class::method``; not those that a class inherits."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            functions = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {node.name, *(f"{node.name}::{function.name}" for function in functions)}
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


def fault(node_id: str) -> str:
    """What is wrong with one name, or nothing."""
    path, separator, name = node_id.partition("::")
    if not PATH.fullmatch(path) or ".." in path:
        return "is no path below tests/"
    if not (ROOT / path).exists():
        return "names a file that does not exist"
    if not separator:
        return ""
    return "" if path.endswith(".py") and name in definitions(ROOT / path) else "names no test of that file"


def test_every_requirement_stands_there_once_and_in_order() -> None:
    assert [row["id"] for row in rows()] == IDS


def test_every_row_has_three_cells_and_a_known_state() -> None:
    assert [row for row in rows() if list(row) != COLUMNS or None in row.values()] == []
    assert {row["state"] for row in rows()} <= STATES


def test_what_is_claimed_names_a_test_and_what_is_open_names_none() -> None:
    assert [row["id"] for row in rows() if bool(named(row)) != (row["state"] in ("met", "partly"))] == []


def test_every_named_test_exists() -> None:
    """Functions and methods are found by reading the file, so nothing has to be imported."""
    faults = [(row["id"], name, fault(name)) for row in rows() for name in named(row)]
    assert [found for found in faults if found[2]] == []


def test_no_test_is_named_twice_for_one_requirement() -> None:
    twice = {row["id"]: [name for name, count in Counter(named(row)).items() if count > 1] for row in rows()}
    assert {requirement: names for requirement, names in twice.items() if names} == {}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tests/unit/test_requirements.py", ""),
        ("tests/unit/test_requirements.py::test_every_named_test_exists", ""),
        ("tests/unit/test_requirements.py::test_of_nothing", "no test"),
        ("tests/unit/test_requirements.py::rows", "no test"),
        ("tests/unit/test_requirements.py::test_a_false_name_is_noticed[x]", "no test"),
        ("tests/unit/test_requirements.py::", "no test"),
        ("tests/unit/test_nothing.py", "does not exist"),
        ("tests/unit::test_every_named_test_exists", "no test"),
        ("tests/../README.md", "no path"),
        ("README.md", "no path"),
        ("/tests/unit", "no path"),
        (" tests/unit", "no path"),
    ],
)
def test_a_false_name_is_noticed(name: str, wrong: str) -> None:
    found = fault(name)
    assert wrong in found
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize("key", OWNERS.values(), ids=OWNERS.keys())
def test_every_owner_has_a_key_of_the_contract(key: str) -> None:
    """R678 to R686: whom a contract names is read, kept, and part of the digest that approvals and results bind."""
    changed = copy.deepcopy(shipped())
    changed["owners"][key] = "a team that nobody has named yet"
    read = contracts.parse(changed)
    assert read.document["owners"][key] == "a team that nobody has named yet"
    assert read.sha256 != contracts.parse(shipped()).sha256
    changed["owners"][key] = 7
    with pytest.raises(contracts.InvalidContract, match=f"owners.{key}"):
        contracts.parse(changed)
