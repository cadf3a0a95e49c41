"""YAML 1.2 with places, and without the parts of YAML that make a file mean something else than it seems to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kblockd.config import document

FILE = Path("a.yaml")
KEYS = st.text("abcyn1-: #'\"", max_size=4)
# The writer leaves NEL and the two separators bare, where they are line breaks: not a text that anybody wrote.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


def faults(text: str) -> list[str]:
    return [str(fault) for fault in document.parse(FILE, text).faults]


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = (
        "a: true\nb: yes\nc: on\nd: 010\ne: 0o10\nf: 0x10\ng: 1_000\nh: 1:30\ni: 2026-11-29\nj: ~\nk:\n"
        "l: 1e3\nm: .5\nn: '5'\no: \"0600\"\np: -7\nq: 30s\nr: null\ns: |\n  text\n"
    )
    assert document.parse(FILE, text).value == {
        "a": True,
        "b": "yes",
        "c": "on",
        "d": 10,
        "e": 8,
        "f": 16,
        "g": "1_000",
        "h": "1:30",
        "i": "2026-11-29",
        "j": None,
        "k": None,
        "l": 1000.0,
        "m": 0.5,
        "n": "5",
        "o": "0600",
        "p": -7,
        "q": "30s",
        "r": None,
        "s": "text\n",
    }


def test_every_key_and_element_has_a_place() -> None:
    read = document.parse(FILE, "a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    assert {path: (p.line, p.column) for path, p in read.places.items() if path} == {
        ("a",): (1, 1),
        ("a", "b"): (2, 3),
        ("a", "c"): (3, 3),
        ("a", "c", 0): (4, 7),
        ("a", "c", 1): (5, 7),
        ("a", "c", 1, "d"): (5, 8),
    }
    assert str(read.place(("a", "c", 1, "missing"))) == "a.yaml:5:7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: a: duplicate key, also in line 1"),
        ("a: {b: 1, b: 2}\n", "a.yaml:1:11: a.b: duplicate key"),
        ('a: 1\n"\\x61": 2\n', "a.yaml:2:1: a: duplicate key"),
        ("a: &x 1\nb: *x\n", "a.yaml:1:4: a: anchors and aliases"),
        ("a: *x\n", "a.yaml:1:4: a: anchors and aliases"),
        ("a: !!str 5\n", "a.yaml:1:4: a: the tag"),
        ("a: !!python/object:os.system {}\n", "a.yaml:1:4: a: the tag"),
        ("<<: {a: 1}\n", "a.yaml:1:1: <<: is not text"),
        ("5: a\n", "a.yaml:1:1: 5: is not text"),
        ("true: a\n", "a.yaml:1:1: true: is not text"),
        ("? [a]\n: b\n", "a key must be plain text"),
        ("a: .inf\n", "a.yaml:1:4: a: .inf is not a finite number"),
        ("a: 1e999\n", "a.yaml:1:4: a: 1e999 is out of range for a double"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("%YAML 1.1\n---\na: 1\n", "a YAML version other than 1.2"),
        ("", "is empty"),
        ("- a\n", "is not a mapping"),
        ("a: [1\n", "a.yaml:2:1: the document: invalid YAML"),
        ("a: 1\n\tb: 2\n", "invalid YAML"),
        ("a: " + "[" * 40 + "]" * 40, "nested deeper than 32 levels"),
        ("a: \x07\n", "invalid YAML"),
        ("a: " + "1" * 5000, "invalid YAML"),
    ],
)
def test_what_deceives_is_refused_with_its_place(text: str, said: str) -> None:
    assert any(said in fault for fault in faults(text)), faults(text)


def test_all_faults_of_a_file_are_told() -> None:
    assert len(faults("a: 1\na: 2\nb: !x 1\nc: .nan\n")) == 3


def test_what_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "latin1.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "long.yaml").write_bytes(b"#" * (document.MAX_BYTES + 1))
    for name in ("absent.yaml", "latin1.yaml", "long.yaml", "."):
        (fault,) = document.read(tmp_path / name).faults
        assert "cannot be read" in fault.message
        assert fault.place.file == tmp_path / name


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_what_another_library_wrote_is_read_back(value: dict[str, Any]) -> None:
    stream = io.StringIO()
    writer = YAML()
    writer.dump(value, stream)
    read = document.parse(FILE, stream.getvalue())
    assert (read.value, read.faults) == (value, ())
