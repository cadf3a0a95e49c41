"""Keys and envelopes: what is on disk must be decodable, ordered and free of prefix clashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.store import schema
from kblockd.store.protocol import Append, Key

parts = st.one_of(st.integers(0, 2**64 - 1), st.text(max_size=20))
tables = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
keys = st.tuples(tables, parts, parts) | st.tuples(tables, parts) | st.tuples(tables)


@given(keys)
def test_a_key_comes_back(key: Key) -> None:
    assert schema.decode_key(schema.encode_key(key)) == key


@given(keys, keys)
def test_led_11_an_encoding_is_a_prefix_only_of_keys_that_start_with_the_same_parts(one: Key, two: Key) -> None:
    assert schema.encode_key(two).startswith(schema.encode_key(one)) == (two[: len(one)] == one)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_integers_sort_by_value(one: int, two: int) -> None:
    assert (schema.encode_key(("t", one)) < schema.encode_key(("t", two))) == (one < two)


def test_the_bytes_of_a_key_are_those_of_the_drawing() -> None:
    assert schema.encode_key(("step", "r-1", 258)) == b"\x04step\x02\x00\x03r-1\x01\0\0\0\0\0\0\x01\x02"
    assert schema.leaf_key(7) == schema.encode_key(("leaf", 7))


@pytest.mark.parametrize(
    "key",
    [(), ("",), (1,), ("t", -1), ("t", 2**64), ("t", True), ("t", 1.0), ("t", "x" * 65_536), ("é",), ("t" * 256,)],
)
def test_a_key_without_an_encoding_is_refused(key: Key) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - UnicodeEncodeError is one
        schema.encode_key_once(key)


@given(st.binary(max_size=40))
def test_foreign_bytes_are_refused_or_come_back(encoded: bytes) -> None:
    try:
        key = schema.decode_key(encoded)
    except ValueError:
        return
    assert schema.encode_key_once(key) == encoded


def test_a_row_carries_its_version() -> None:
    assert schema.encode_row(258, {"a": 1}) == b'\0\0\0\0\0\0\x01\x02{"a":1}'
    assert schema.decode_row(("thing",), schema.encode_row(2**63, {"a": ["é", None]})) == (2**63, {"a": ["é", None]})
    for damaged in (b"", b"\0" * 8, b"\0" * 8 + b'{"a":'):
        with pytest.raises(ValueError):  # noqa: PT011 - msgspec's error is one
            schema.decode_row(("thing",), damaged)


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_a_record_and_its_aux_come_back(leaf: bytes, aux: bytes) -> None:
    assert schema.decode_leaf(schema.encode_leaf(leaf, aux)) == Append(leaf, aux)


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0", b"\0\0\0\x05abcd"])
def test_a_record_cut_short_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="record"):
        schema.decode_leaf(damaged)
