"""Every id and every reference in a docstring, a comment or a document leads to something in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import references
from tests.references import ROOT, Text, texts, unresolved

HERE = Path(__file__)


def test_every_reference_resolves() -> None:
    """Of requirements, cases and contradictions to their tables; of documents, headings, files and modules."""
    found = [(path, text, fault) for path in references.files() for text in texts(path) for fault in unresolved(text)]
    assert [f"{text}: {fault}" for _, text, fault in found] == []


def test_every_requirement_refers_to_known_contradictions() -> None:
    text = Text(references.REQUIREMENTS, 1, references.REQUIREMENTS.read_text(encoding="utf-8").replace("_", " "))
    assert list(unresolved(text)) == []


@pytest.mark.parametrize(
    "words",
    [
        "R001 to R763, LED-04, C10, UTF-16 and SHA-256",
        "RFC 9162, section 2.1; W3C Trace Context, sections 3.2 and 3.3",
        "kblockd/store/README.md#head says so",
        "see README.md and config/README.md",
        "``kblockd.domain.canonical`` and ``kblockd.domain.canonical.parse``; group kblockd.adapters; kblockd.record/1",
        "tests/requirements.csv, kblockd/execution/pipeline.py",
    ],
)
def test_what_is_here_resolves(words: str) -> None:
    assert list(unresolved(Text(HERE, 1, words))) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("R764", "R764"),
        ("the LED-99 of old", "LED-99"),
        ("as C33 has it", "C33"),
        ("Source: design.md", "design.md"),
        ("design section 4, *Start*", "section 4"),
        ("interfaces.md\nsection 6", "interfaces.md"),
        ("kblockd/store/README.md#tail", "#tail"),
        ("tests/unit/test_nothing.py", "tests/unit/test_nothing.py"),
        ("interfaces/adapter.py, ``Call``", "interfaces/adapter.py"),
        ("``kblockd.store.transactions``", "kblockd.store.transactions"),
        ("``kblockd.domain.canonical.never_written``", "never_written"),
    ],
)
def test_what_is_not_here_is_named(words: str, named: str) -> None:
    assert any(named in fault for fault in unresolved(Text(HERE, 1, words)))


def test_docstrings_comments_and_names_of_tests_are_read(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        '"""Of a module: R901."""\n'
        "VALUE = 1  # beside code: R902\n"
        '"""Of an attribute: R903."""\n'
        "# over two lines: kblockd/store/\n"
        "# README.md and R904\n"
        "def test_r905_led_98_is_found() -> None:\n"
        '    """Of a function: R906."""\n'
        '    text = "not a docstring: R907"\n',
        encoding="utf-8",
    )
    words = " ".join(text.words for text in texts(file))
    assert [f"R90{n}" in words for n in range(1, 8)] == [True, True, True, True, True, True, False]
    assert "LED-98" in words


def test_the_files_are_those_of_the_repository() -> None:
    found = {str(path.relative_to(ROOT)) for path in references.files()}
    expected = {
        "README.md",
        "Makefile",
        "kblockd/daemon.py",
        "tests/unit/test_references.py",
        "proto/kblock/v1/types.proto",
    }
    assert expected <= found
    assert not any("_proto/" in name or name.startswith((".venv", ".tools")) for name in found)
