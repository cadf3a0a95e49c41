"""RFC 6901 pointers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain import pointer

RFC = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "~", "/", "~0", "~1", "01"]
)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_rfc_6901_section_5(text: str, value: Any) -> None:
    assert pointer.get(RFC, text) == value


@pytest.mark.parametrize("text", ["foo", "#/foo", "/a~b", "/a~2", "/~", " /foo"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(pointer.InvalidPointer):
        pointer.parse(text)


@pytest.mark.parametrize("text", ["/foo/2", "/foo/-", "/foo/00", "/foo/+1", "/foo/-1", "/foo/٠", "/bar", "/foo/0/x"])
def test_what_is_not_there_is_missing(text: str) -> None:
    with pytest.raises(pointer.PointerMissing) as caught:
        pointer.get(RFC, text)
    assert caught.value.pointer == text


def places(document: Any, at: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    found = [(at, document)]
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*at, key))
    elif isinstance(document, list):
        for position, value in enumerate(document):
            found += places(value, (*at, position))
    return found


@given(st.lists(NAMES, max_size=5))
def test_build_and_parse_are_inverse(tokens: list[str]) -> None:
    assert pointer.parse(pointer.build(tokens)) == tuple(tokens)


@given(JSON)
def test_every_value_has_a_pointer(document: Any) -> None:
    for path, value in places(document):
        assert pointer.get(document, pointer.build(path)) is value


@given(JSON, st.data())
def test_a_projection_holds_what_is_named_and_nothing_else(document: Any, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from([path for path, _ in places(document)]), min_size=1, max_size=3))
    kept = pointer.project([pointer.build(path) for path in chosen], document)
    for path in chosen:
        assert pointer.get(kept, pointer.build(path)) == pointer.get(document, pointer.build(path))
    for path, value in places(kept):
        below_or_above = any(path[: len(c)] == c or c[: len(path)] == path for c in chosen)
        assert below_or_above or value is None


def test_a_projection_leaves_the_document_alone() -> None:
    document = {"output": {"a": {"b": 1, "c": 2}, "d": 3}}
    assert pointer.project(["/output/a/b", "/output/d"], document) == {"output": {"a": {"b": 1}, "d": 3}}
    assert pointer.project(["/output/a", "/output/a/b"], document) == {"output": {"a": {"b": 1, "c": 2}}}
    assert document == {"output": {"a": {"b": 1, "c": 2}, "d": 3}}


def test_a_projection_without_pointers_or_with_missing_ones_shows_nothing() -> None:
    assert pointer.project([], {"a": 1}) is None
    assert pointer.project(["/b"], {"a": 1}) is None
    assert pointer.project(["/a/1"], {"a": [1, 2]}) == {"a": [None, 2]}


def test_resolving_looks_at_no_value_twice() -> None:
    """A foreign value that looks like a pointer stays text."""
    document = {"args": {"note": "/args/secret", "secret": "s"}}
    assert pointer.resolve({"n": "/args/note", "l": [1, "/args/note"]}, document) == {
        "n": "/args/secret",
        "l": [1, "/args/secret"],
    }


def test_resolving_what_is_missing_names_the_pointer() -> None:
    with pytest.raises(pointer.PointerMissing, match="/output/id"):
        pointer.resolve({"id": "/output/id"}, {"args": {}})
