"""Which tests carry which case: ``python -m tests.cases`` brings the last column of tests/cases.csv up to date.

A test carries a case by its name (``test_ups_07_...``) or in its docstring (``UPS-07``).
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.named import ROOT, rows

FILE: Final = ROOT / "tests" / "cases.csv"
COLUMNS: Final = ("id", "text", "tests")
ID: Final = re.compile(r"(?<![\w-])[A-Z]{3}-\d\d(?![\w-])")


def carried() -> dict[str, list[str]]:
    """The tests of each case that any carries, as pytest names them, in the order of the files."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, words in _tests(path):
            for case in sorted({*ID.findall(words), *of_name(name)}):
                found.setdefault(case, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def of_name(name: str) -> set[str]:
    """The ids in the name of a test; words of three letters before a number of two digits."""
    return {f"{area.upper()}-{number}" for area, number in re.findall(r"_([a-z]{3})_(\d\d)(?=_|$)", name)}


def _tests(path: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test") else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for test in inside:
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
                yield prefix + test.name, ast.get_docstring(test) or ""


def main() -> None:
    """Writes the table; ids and sentences stay."""
    tests = carried()
    table = [[row["id"], row["text"], ";".join(tests.get(row["id"], ()))] for row in rows(FILE, COLUMNS)]
    with FILE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *table])


if __name__ == "__main__":
    main()
