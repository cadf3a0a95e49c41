"""``tests/requirements.csv`` says of each requirement what stands, and which tests would fail without it.

What is missing is listed by ``grep ',open,' tests/requirements.csv``. Here the list is held to the tree: a test that it
names exists, and nothing is claimed without one. Whether a test really holds its requirement is for a reader to judge.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from typing import Any

import pytest

from kblockd.config import document
from kblockd.domain import contract as contracts
from tests.named import ROOT, fault, named
from tests.named import rows as read

FILE = ROOT / "tests" / "requirements.csv"
COLUMNS = ("id", "source", "text", "state", "tests")
SOURCES = {"S0", "S1", "S2"}  # the gateway, the recovery runtime, the durable engine (kblockd/contradictions.md)
STATES = {"met", "partly", "open"}
IDS = [f"R{number:03}" for number in range(1, 764)]
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


def rows() -> tuple[dict[str, str], ...]:
    return read(FILE, COLUMNS)


@functools.cache
def shipped() -> dict[str, Any]:
    found: dict[str, Any] = document.read(ROOT / "config/actions/payment.refund.create.yaml").value
    return found


def test_every_requirement_stands_there_once_and_in_order() -> None:
    assert [row["id"] for row in rows()] == IDS


def test_every_row_has_its_cells_and_a_known_state() -> None:
    assert [row for row in rows() if tuple(row) != COLUMNS or None in row.values()] == []
    assert {row["state"] for row in rows()} <= STATES
    assert {row["source"] for row in rows()} == SOURCES


def test_every_requirement_says_what_it_asks_for() -> None:
    """Once each: the same sentence twice would be one requirement under two ids."""
    texts = Counter(row["text"] for row in rows())
    assert [text for text in texts if len(text) < 8 or text != text.strip()] == []
    assert [text for text, count in texts.items() if count > 1] == []


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
