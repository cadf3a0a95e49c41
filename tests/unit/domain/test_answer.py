"""Whole or not, and what in a whole answer cannot be kept, with its place."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain import canonical
from kblockd.domain.answer import AnswerFault, NotJson, Unreadable, decode, first_fault

UNKEPT = {
    "integer": (b'{"orders":[{"n":12345678901234567890}]}', AnswerFault.INTEGER, "/orders/0/n"),
    "just beyond": (b'{"n":9007199254740992}', AnswerFault.INTEGER, "/n"),
    "negative": (b'{"n":-9007199254740993}', AnswerFault.INTEGER, "/n"),
    "thousands of digits": (b'{"n":' + b"7" * 6000 + b"}", AnswerFault.INTEGER, "/n"),
    "decimal": (b'{"n":[0, 0.12345678901234567890]}', AnswerFault.DECIMAL, "/n/1"),
    "beyond a double": (b'{"n":1e400}', AnswerFault.DECIMAL, "/n"),
    "nan": (b'{"n":NaN}', AnswerFault.CONSTANT, "/n"),
    "infinity": (b'{"n":-Infinity}', AnswerFault.CONSTANT, "/n"),
    "twice": (b'{"a":[{"k":1,"k":2}]}', AnswerFault.TWICE, "/a/0/k"),
    "twice by escape": (b'{"k":1,"\\u006b":1}', AnswerFault.TWICE, "/k"),
    "surrogate": (b'{"s":["\\ud800"]}', AnswerFault.SURROGATE, "/s/0"),
    "surrogate as key": (b'{"\\udfff":1}', AnswerFault.SURROGATE, "/\u2026"),
    "deep": (b"[" * 33 + b"]" * 33, AnswerFault.DEPTH, "/0" * 32),
    "at the top": (b"12345678901234567890", AnswerFault.INTEGER, ""),
    "escaped": (b'{"a/b":{"~":NaN}}', AnswerFault.CONSTANT, "/a~1b/~0"),
    "the first of two": (b'{"a":NaN,"b":1e400}', AnswerFault.CONSTANT, "/a"),
    "first behind good ones": (b'{"a":{"x":[1,2]},"b":[],"c":{},"d":NaN}', AnswerFault.CONSTANT, "/d"),
}


@pytest.mark.parametrize(("text", "fault", "place"), UNKEPT.values(), ids=UNKEPT.keys())
def test_ups_18_what_cannot_be_kept_has_a_place(text: bytes, fault: AnswerFault, place: str) -> None:
    found = first_fault(decode(text))
    assert found == Unreadable(fault, place)
    assert str(found) == (f"unreadable at {place}: {fault}" if place else f"unreadable: {fault}")


BOMS = {
    "between members": (b'{"a":1,\xef\xbb\xbf"b":2}', ""),
    "before a value": (b'{"a":[{"b":\xef\xbb\xbf2}]}', "/a/0/b"),
    "in an array": (b'{"x":[1],"a":[1,"]",\xef\xbb\xbf2]}', "/a/2"),
    "behind the end": (b'{"a":1}\xef\xbb\xbf', ""),
    "twice at the start": (b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}', ""),
}


@pytest.mark.parametrize(("text", "place"), BOMS.values(), ids=BOMS.keys())
def test_ups_18_a_byte_order_mark_is_skipped_at_the_start_and_has_a_place_elsewhere(text: bytes, place: str) -> None:
    assert decode(b'\xef\xbb\xbf {"a":"\xef\xbb\xbf"}') == {"a": "\ufeff"}
    with pytest.raises(NotJson) as raised:
        decode(text)
    assert raised.value.unreadable == Unreadable(AnswerFault.BOM, place)


HALVES = [
    b"",
    b" ",
    b"\xef\xbb\xbf",
    b'{"ok":tru',
    b'{"ok":true',
    b'{"ok":true}}',
    b'{"a":1}{"a":1}',
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"n":' + b"1" * 6000,
    b'["' + b'\\"' * 100_000,
    b"\xff\xfe{\x00}\x00",
    b'{"a":\x00}',
    b"{'a':1}",
]


@pytest.mark.parametrize("text", HALVES, ids=range(len(HALVES)))
@pytest.mark.parametrize("numbers", ["refuse", "text"])
def test_ups_13_what_is_not_whole_is_no_answer(text: bytes, numbers: Any) -> None:
    with pytest.raises(NotJson):
        decode(text, numbers)


def test_ups_13_more_levels_than_are_looked_at_have_a_place() -> None:
    with pytest.raises(NotJson) as raised:
        decode(b'{"a":{"b":1},"c":' + b"[" * 300 + b"]" * 300 + b"}")
    assert raised.value.unreadable is not None
    assert raised.value.unreadable.fault is AnswerFault.DEPTH
    assert raised.value.unreadable.place.startswith("/c/0/0/0")


def test_brackets_inside_texts_are_no_levels() -> None:
    text = b'{"a":"' + b"[" * 1000 + b'\\"{","b":[' + b"[]," * 300 + b"[]]}"
    assert first_fault(decode(text)) is None


def test_ups_18_numbers_as_text() -> None:
    text = b'{"i":12345678901234567890,"f":1.0000000000000000001,"e":1E+400,"n":-7,"h":0.5,"z":1.50,"nan":NaN}'
    value = decode(text, "text")
    assert first_fault(value) == Unreadable(AnswerFault.CONSTANT, "/nan")
    del value["nan"]
    assert value == {
        "i": "12345678901234567890",
        "f": "1.0000000000000000001",
        "e": "1E+400",
        "n": -7,
        "h": 0.5,
        "z": 1.5,
    }
    assert first_fault(value) is None


@pytest.mark.parametrize("key", ["two words", "x" * 65, "ключ", "line\nbreak", ""])
def test_a_key_that_could_be_read_as_a_sentence_is_not_shown(key: str) -> None:
    """Keys are the upstream's words, and the place reaches an agent."""
    found = first_fault(decode(json.dumps({"a": {key: float("nan")}}).encode()))
    assert found == Unreadable(AnswerFault.CONSTANT, "/a/\u2026")


def test_a_place_is_bounded() -> None:
    value: Any = float("nan")
    for _ in range(30):
        value = {"k" * 60: value}
    found = first_fault(value)
    assert found is not None
    assert len(found.place) <= 201


NO_JSON: list[tuple[Any, Unreadable]] = [
    ({1: 2}, Unreadable(AnswerFault.NOT_JSON)),
    ({"a": {None: 1}}, Unreadable(AnswerFault.NOT_JSON, "/a")),
    ({"a": {1, 2}}, Unreadable(AnswerFault.NOT_JSON, "/a")),
    (b"bytes", Unreadable(AnswerFault.NOT_JSON)),
    (10**6000, Unreadable(AnswerFault.INTEGER)),
    ((1, [2**60]), Unreadable(AnswerFault.INTEGER, "/1/0")),
    (float("inf"), Unreadable(AnswerFault.CONSTANT)),
]


@pytest.mark.parametrize(("value", "found"), NO_JSON, ids=range(len(NO_JSON)))
def test_values_of_a_plugin_are_judged_alike(value: Any, found: Unreadable) -> None:
    assert first_fault(value) == found


def test_a_value_that_contains_itself_ends() -> None:
    value: list[Any] = []
    value.append(value)
    assert first_fault(value) == Unreadable(AnswerFault.VALUES)


def test_ups_17_more_values_than_a_document_holds_are_not_looked_at() -> None:
    assert first_fault([1] * (canonical.MAX_VALUES - 1)) is None
    assert first_fault([1] * canonical.MAX_VALUES) == Unreadable(AnswerFault.VALUES)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_subnormal=True) | st.text(max_size=5)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner))


@given(_VALUES)
def test_what_has_no_fault_is_what_the_canonical_form_takes(value: Any) -> None:
    """One rule for answers and for everything else that is kept."""
    try:
        canonical.check(value)
        kept = True
    except canonical.NotCanonical:
        kept = False
    assert (first_fault(value) is None) is kept


@given(st.binary(max_size=60) | _VALUES.map(lambda value: json.dumps(value).encode()))
def test_what_is_decoded_without_fault_is_what_the_strict_parser_takes(text: bytes) -> None:
    """But for the mark at the start, which only an answer may have."""
    try:
        decoded = decode(text)
        value = decoded if first_fault(decoded) is None else None
    except NotJson:
        value = None
    try:
        strict = canonical.parse(text.removeprefix(b"\xef\xbb\xbf"), top=object)
    except canonical.NotCanonical:
        strict = None
    assert value == strict


def _steps(work: Callable[[], object]) -> int:
    """Lines and calls of Python that ``work`` takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


GROWING: dict[str, Callable[[int], bytes]] = {
    "members": lambda n: b"{" + b",".join(b'"k%d":1' % i for i in range(n)) + b',"z":NaN}',
    "elements": lambda n: b"[" + b"1," * n + b"NaN]",
    "long key over many members": lambda n: b'{"' + b"k" * n + b'":[' + b"1," * n + b"NaN]}",
    "open brackets": lambda n: b"[" * n,
    "brackets side by side": lambda n: b"[" + b"[]," * n + b"NaN]",
    "quotes": lambda n: b'["' + b'\\"' * n,
    "texts before a stray mark": lambda n: b"[" + b'"a",' * n + b"\xef\xbb\xbf1]",
    "equal keys": lambda n: b"{" + b'"k":1,' * n + b'"k":1}',
    "digits": lambda n: b"[" + b"1" * n + b"]",
}


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING.keys())
def test_ups_17_the_steps_grow_with_the_text_and_no_faster(text: Callable[[int], bytes]) -> None:
    def work(size: int) -> int:
        def look() -> None:
            with contextlib.suppress(NotJson):
                first_fault(decode(text(size)))

        return _steps(look)

    small, large = work(2000), work(4000)
    assert large <= 2.2 * small + 200
