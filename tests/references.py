"""What docstrings, comments and documents refer to, and whether it is in the repository.

Requirements (``tests/requirements.csv``), cases (``tests/cases.csv``), contradictions (``kblockd/contradictions.md``),
documents with their headings, files and modules. Standards (an RFC with its section) are nobody's to resolve here.
"""

from __future__ import annotations

import ast
import csv
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cases import ID, of_name

ROOT: Final = Path(__file__).parents[1]
REQUIREMENTS: Final = ROOT / "tests" / "requirements.csv"
CASES: Final = ROOT / "tests" / "cases.csv"
CONTRADICTIONS: Final = ROOT / "kblockd" / "contradictions.md"

_REQUIREMENT: Final = re.compile(r"(?<![\w-])R\d{3}(?!\w)")
_CONTRADICTION: Final = re.compile(r"(?<![\w-])C\d{1,2}(?![\w-])")
_DOCUMENT: Final = re.compile(r"(?<![\w/.-])(?!\w+://)[\w./-]*\w\.md(?:#[\w-]+)?(?![\w/])")
_FILE: Final = re.compile(
    r"(?<![\w/.-])(?:(?:kblockd|tests|plugins|config|proto)/[\w./-]*\w\.(?:csv|json|yaml|rego|proto)|[\w-]+/[\w./-]*\w\.py)\b"
)
_MODULE: Final = re.compile(r"(?<![\w./-])kblockd(?:\.\w+)+(?![\w/-])")
_SECTION: Final = re.compile(r"(?i)\bsections? +\d")
_STANDARD: Final = re.compile(r"RFC|W3C|UAX|YAML|C2SP")
_NO_CASES: Final = frozenset({"UTF-16"})
_NO_MODULES: Final = ("kblockd.adapters", "kblockd.dev", "kblockd.sock", "kblockd.service", "kblockd.yaml")
"""The group of entry points, a domain, and files: names that begin as a module does."""
_KINDS: Final = frozenset({".py", ".md", ".proto", ".rego", ".yaml", ".c", ".go", ".conf", ".service"})


@dataclass(frozen=True, slots=True)
class Text:
    """Words for people: a docstring, the comments that are in one block, the name of a test, or a whole document."""

    path: Path
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def files() -> list[Path]:
    """Every file under version control, or about to be, that may refer to something."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = (ROOT / name for name in listed)
    return sorted(path for path in found if (path.suffix in _KINDS or path.name == "Makefile") and path.exists())


def texts(path: Path) -> Iterator[Text]:
    """All texts of a file; of Python its docstrings, comments and names of tests, of anything else the whole."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield Text(path, 1, source)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text(path, node.lineno, " ".join(node.value.value.split()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(path, node.lineno, _ids_of_a_name(node.name))
    yield from _comments(path, source)


def _comments(path: Path, source: str) -> Iterator[Text]:
    """Comments on lines that follow each other are one text."""
    first, last, words = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1:
            if words:
                yield Text(path, first, words)
            first, words = token.start[0], ""
        last, words = token.start[0], f"{words} {token.string.lstrip('#: ')}".strip()
    if words:
        yield Text(path, first, words)


def _ids_of_a_name(name: str) -> str:
    """``test_ups_07_r268_...`` as ``UPS-07 R268``; only areas that have cases count, so that words stay words."""
    areas = {case.partition("-")[0] for case in cases()}
    found = sorted(case for case in of_name(name) if case.partition("-")[0] in areas)
    return " ".join([*found, *(f"R{number}" for number in re.findall(r"_r(\d{3})(?=_|$)", name))])


def unresolved(text: Text) -> Iterator[str]:
    """Every reference of a text that leads nowhere, and what is wrong with it."""
    yield from _ids(text.words)
    for match in _DOCUMENT.finditer(text.words):
        if fault := _document(text.path, match[0]):
            yield fault
    for match in _FILE.finditer(text.words):
        if not any((base / match[0]).exists() for base in (ROOT, *text.path.parents)):
            yield f"{match[0]}: there is no such file"
    for match in _MODULE.finditer(text.words):
        if not _module(match[0]):
            yield f"{match[0]}: there is no such module, nor such a name in one"
    for match in _SECTION.finditer(text.words):
        before = text.words[max(0, match.start() - 80) : match.start()]
        if not _STANDARD.search(before):
            yield f"{match[0]}: of which document? Name a heading, as in kblockd/store/README.md#head"


def _ids(words: str) -> Iterator[str]:
    for pattern, known, table in (
        (_REQUIREMENT, requirements(), REQUIREMENTS),
        (ID, cases() | _NO_CASES, CASES),
        (_CONTRADICTION, contradictions(), CONTRADICTIONS),
    ):
        for match in pattern.finditer(words):
            if match[0] not in known:
                yield f"{match[0]}: is not in {table.relative_to(ROOT)}"


def _document(source: Path, reference: str) -> str:
    name, _, anchor = reference.partition("#")
    for base in (source.parent, ROOT):
        target = (base / name).resolve()
        if target.exists():
            return "" if not anchor or anchor in headings(target) else f"{reference}: has no such heading"
    return f"{reference}: there is no such document"


@functools.cache
def headings(path: Path) -> frozenset[str]:
    """The anchors of a document, as hosts make them: lower case, punctuation dropped, blanks as hyphens."""
    titles = re.findall(r"^#+ +(.+)$", path.read_text(encoding="utf-8"), re.M)
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles)


@functools.cache
def _module(name: str) -> bool:
    """Whether a dotted name is a module, or a name that one of them contains."""
    if name in _NO_MODULES or name.startswith("kblockd._proto"):  # stubs are built, not kept
        return True
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:end])
        found = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
        if base.is_dir() and end == len(parts):
            return True
        if found.exists():
            rest = parts[end:]
            return not rest or re.search(rf"\b{re.escape(rest[0])}\b", found.read_text(encoding="utf-8")) is not None
    return False


@functools.cache
def requirements() -> frozenset[str]:
    """Ids of all requirements."""
    return _column(REQUIREMENTS)


@functools.cache
def cases() -> frozenset[str]:
    """Ids of all cases."""
    return _column(CASES)


@functools.cache
def contradictions() -> frozenset[str]:
    """Ids of all contradictions."""
    return frozenset(re.findall(r"^\| (C\d+) \|", CONTRADICTIONS.read_text(encoding="utf-8"), re.M))


def _column(path: Path) -> frozenset[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return frozenset(row["id"] for row in csv.DictReader(file))
