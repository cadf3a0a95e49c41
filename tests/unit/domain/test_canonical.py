"""The strict parser and the canonical form, case by case (kblockd/domain/digests.md#canonical-form)."""

from __future__ import annotations

import enum
import time

import pytest

from kblockd.domain.canonical import MAX_BYTES, NotCanonical, canonical, check, digest, parse, reparse, unnormalized


def _any(text: bytes) -> object:
    return parse(text, top=object)


@pytest.mark.parametrize(
    "text",
    [b'{"a":1,"a":2}', b'{"a":1,"\\u0061":1}', b'{"x":{"y":[{"z":1,"z":1}]}}', b'{"\\u00e9":1,"\xc3\xa9":2}'],
)
def test_can_01_duplicate_keys_are_refused_at_parse(text: bytes) -> None:
    with pytest.raises(NotCanonical, match="stands twice"):
        parse(text)


def test_can_01_keys_that_differ_only_in_normal_form_are_two_keys() -> None:
    assert len(parse('{"é":1,"e\u0301":2}'.encode())) == 2


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        ("10.0", "10"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("1e-7", "1e-7"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("5e-324", "5e-324"),
        ("0.00001", "0.00001"),
        ("1.50", "1.5"),
        ("100e-2", "1"),
    ],
)
def test_can_02_numbers_are_written_as_the_standard_writes_them(literal: str, written: str) -> None:
    text = canonical(parse(f'{{"n":{literal}}}'.encode()))
    assert text == f'{{"n":{written}}}'.encode()
    assert canonical(reparse(text)) == text


def test_can_02_what_is_executed_is_the_form_parsed_again() -> None:
    value = reparse(canonical(parse(b'{"a":1.0,"b":-0.0,"c":1e20}')))
    assert value == {"a": 1, "b": 0, "c": 1e20}
    assert [type(member) for member in value.values()] == [int, int, float]
    assert str(value["b"]) == "0"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"n":1e400}', "beyond a double"),
        (b'{"n":-1e400}', "beyond a double"),
        (b'{"n":NaN}', "not JSON"),
        (b'{"n":Infinity}', "not JSON"),
        (b'{"n":-Infinity}', "not JSON"),
        (b'{"n":' + b"9" * 5000 + b"}", "send it as a string"),
        (b'{"n":-' + b"9" * 5000 + b"}", "send it as a string"),
        (b'{"n":1e' + b"0" * 5000 + b"1}", "at most 400"),
        (b'{"n":0e' + b"9" * 5000 + b"}", "at most 400"),
        (b'{"n":0.' + b"0" * 5000 + b"}", "at most 400"),
    ],
)
def test_can_05_numbers_beyond_a_double_are_refused_and_nothing_else_is_raised(text: bytes, why: str) -> None:
    with pytest.raises(NotCanonical, match=why):
        parse(text)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), float("-inf"), 1 << 53, -(1 << 53), 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_can_05_values_without_a_form_are_refused_by_check_and_canonical(value: object) -> None:
    with pytest.raises(NotCanonical):
        check({"v": [value]})
    with pytest.raises(NotCanonical):
        canonical({"v": [value]})


@pytest.mark.parametrize("text", [b'{"v":"\\ud800"}', b'{"\\udfff":1}', b'{"v":["\\ude00\\ud83d"]}', b'"\xed\xa0\x80"'])
def test_can_07_lone_surrogates_are_refused(text: bytes) -> None:
    with pytest.raises(NotCanonical, match=r"surrogate|UTF-8"):
        _any(text)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, ["a\udfff"], {"é\ud800": "x"}])
def test_can_07_a_lone_surrogate_in_a_value_is_refused_not_a_crash(value: object) -> None:
    with pytest.raises(NotCanonical):
        canonical(value)
    with pytest.raises(NotCanonical):
        check(value)


@pytest.mark.parametrize("levels", [33, 34, 50, 200, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_can_08_nesting_beyond_the_declared_depth_is_refused(levels: int, opening: bytes, closing: bytes) -> None:
    with pytest.raises(NotCanonical, match=r"deeper than 32|bytes"):
        _any(opening * levels + b"1" + closing * levels)


def test_can_08_thirty_two_levels_are_taken_and_brackets_in_texts_do_not_count() -> None:
    text = b'{"a":' * 31 + b'{"k":"' + b"[{" * 100 + b'\\"["}' + b"}" * 31
    assert canonical(parse(text)) == text
    deep: object = 1
    for _ in range(33):
        deep = [deep]
    with pytest.raises(NotCanonical, match="deeper than 32"):
        check(deep)


@pytest.mark.parametrize(
    "text", [b'"' + b'\\"' * 500_000, b'"' * 1_000_000, b"\\" * 1_000_000, b'{"a":"' + b"\\\\" * 500_000]
)
def test_can_08_a_hostile_megabyte_costs_linear_time(text: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(NotCanonical):
        _any(text)
    assert time.monotonic() - begun < 20  # a backtracking first look takes hours


@pytest.mark.parametrize("levels", [200, 254, 255, 300])
def test_our_own_documents_may_nest_deeper_than_arguments(levels: int) -> None:
    value: object = {"b": 1, "a": 2}
    for _ in range(levels):
        value = [value]
    assert canonical(value) == b"[" * levels + b'{"a":2,"b":1}' + b"]" * levels


def test_what_no_interpreter_can_walk_is_refused_with_the_right_error() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotCanonical, match="deep"):
        canonical(value)


def test_can_10_integers_stay_integers_and_large_ones_travel_as_texts() -> None:
    assert type(parse(b'{"count":5}')["count"]) is int
    assert canonical(parse(b'{"count":5}')) == b'{"count":5}'
    for literal in (b"9007199254740993", b"9007199254740992", b"-9007199254740992", b"9007199254740993.0"):
        with pytest.raises(NotCanonical, match="as a string"):
            parse(b'{"id":' + literal + b"}")
    assert parse(b'{"id":"9007199254740993"}') == {"id": "9007199254740993"}
    assert digest(parse(b'{"id":9007199254740991}')) != digest(parse(b'{"id":9007199254740990}'))


@pytest.mark.parametrize(
    "literal", ["0.1000000000000000055511151231257827", "1.00000000000000000001", "1e-400", "2e-324"]
)
def test_a_decimal_that_a_double_would_change_is_refused(literal: str) -> None:
    with pytest.raises(NotCanonical, match="shortest form"):
        parse(f'{{"amount":{literal}}}'.encode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b"[]", "top level"),
        (b'"text"', "top level"),
        (b"null", "top level"),
        (b"{}{}", "not JSON"),
        (b"", "not JSON"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
    ],
)
def test_other_traps_of_the_table_are_refused(text: bytes, why: str) -> None:
    with pytest.raises(NotCanonical, match=why):
        parse(text)


def test_the_size_limit_counts_bytes() -> None:
    fits = b'{"a":"' + b"x" * (MAX_BYTES - 8) + b'"}'
    assert len(fits) == MAX_BYTES
    parse(fits)
    with pytest.raises(NotCanonical, match=f"{MAX_BYTES + 1} bytes"):
        parse(fits + b" ")
    with pytest.raises(NotCanonical, match="at most 4"):
        parse(b'{"a":1}', max_bytes=4)


def test_a_fault_names_its_place_and_stays_short() -> None:
    with pytest.raises(NotCanonical) as caught:
        parse(b'{"a/b":[{"~":"\\ud800"}]}')
    assert caught.value.at == "/a~1b/0/~0"
    with pytest.raises(NotCanonical) as caught:
        parse(b'{"' + b"k" * 100_000 + b'":"\\ud800"}')
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        b'{"b":1,"a":2}',
        b'{"a":1.0}',
        b'{"a":1e0}',
        b'{ "a":1}',
        b'{"a":1,"a":1}',
        b'{"a":"\\u0061"}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":100000000000000000001}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":1}\n',
        b'{"a":"\xff"}',
        b"[" * 100_000,
        b"",
    ],
)
def test_reparse_takes_nothing_but_the_canonical_form(text: bytes) -> None:
    with pytest.raises(NotCanonical):
        reparse(text)


class _Word(enum.StrEnum):
    A = "é"


class _Number(enum.IntEnum):
    ONE = 1


def test_subclasses_are_written_as_what_they_are() -> None:
    assert canonical({"w": _Word.A, "n": _Number.ONE, "t": (True, None)}) == '{"n":1,"t":[true,null],"w":"é"}'.encode()
    assert canonical({_Word.A: 1}) == '{"é":1}'.encode()
    for value in ({1: 2}, {None: 1}, {"a": object()}, {"a": b"bytes"}, {"a": {1, 2}}):
        with pytest.raises(NotCanonical):
            canonical(value)
        with pytest.raises(NotCanonical):
            check(value)


def test_text_that_is_not_nfc_is_pointed_at_and_left_alone() -> None:
    value = parse('{"name":"e\u0301","list":["ok","\u212b"],"k\u0301/":"x"}'.encode())
    assert unnormalized(value) == ["/name", "/list/1", "/k\u0301~1"]
    assert "e\u0301".encode() in canonical(value)
    assert unnormalized(parse(b'{"a":["plain",1,null]}')) == []
