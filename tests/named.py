"""Tables of this folder that name tests, and what is wrong with a name."""

from __future__ import annotations

import ast
import csv
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"tests/[\w./]+")


@functools.cache
def rows(file: Path, columns: tuple[str, ...]) -> tuple[dict[str, str], ...]:
    """All rows of a table with exactly these columns."""
    with file.open(newline="", encoding="utf-8") as opened:
        reader = csv.DictReader(opened, strict=True)
        assert reader.fieldnames == list(columns)
        return tuple(reader)


def named(row: dict[str, str]) -> list[str]:
    """The tests of a row, as pytest names them; a file alone means all of it."""
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
    """What is wrong with one name, or nothing. Files are read, not imported."""
    path, separator, name = node_id.partition("::")
    if not PATH.fullmatch(path) or ".." in path:
        return "is no path below tests/"
    if not (ROOT / path).exists():
        return "names a file that does not exist"
    if not separator:
        return ""
    return "" if path.endswith(".py") and name in definitions(ROOT / path) else "names no test of that file"
