"""Properties of the canonical form over generated values."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain import canonical as module
from kblockd.domain import strict
from kblockd.domain.canonical import MAX_INTEGER, NotCanonical, canonical, check, parse, reparse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
EDGES = st.text(st.sampled_from('a\x00\x1f"\\/\x7f\u0301\ud7ff\ue000\uffff\U00010000\U0010ffff'), max_size=4)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-MAX_INTEGER, MAX_INTEGER)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS | EDGES
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | EDGES, inner, max_size=4),
    max_leaves=20,
)


def _text(value: Any) -> bytes:
    """A plain JSON text of a value, as a client would write it."""
    return json.dumps(value, ensure_ascii=False).encode()


_REFUSED = object()


def _taken(text: bytes) -> Any:
    """The value, or ``_REFUSED`` for the one trap that json.dumps may write: a double beyond 2^53 without exponent."""
    try:
        return parse(text, top=object)
    except NotCanonical as error:
        if "beyond 2^53-1" not in str(error):
            raise
        return _REFUSED


@given(VALUES)
def test_canonical_equals_the_reference_package(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(VALUES)
def test_the_fast_path_is_only_taken_where_it_is_right(value: Any) -> None:
    if module._simple(value):
        assert orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == rfc8785.dumps(value)


@given(VALUES)
def test_canonical_is_stable_through_reparse(value: Any) -> None:
    written = canonical(value)
    assert canonical(reparse(written)) == written
    assert reparse(written) == value  # equal numbers, whatever their type


@given(VALUES)
def test_what_the_parser_takes_has_a_form_and_keeps_it(value: Any) -> None:
    taken = _taken(_text(value))
    if taken is _REFUSED:
        return
    check(taken)
    written = canonical(taken)
    assert written == canonical(value)
    assert canonical(reparse(written)) == written


@given(VALUES)
def test_white_space_order_and_escapes_do_not_change_the_form(value: Any) -> None:
    escaped = json.dumps({"v": value}, ensure_ascii=True, indent=3).encode()
    taken = _taken(escaped)
    assert taken is _REFUSED or canonical(taken) == canonical({"v": value})


@given(
    st.binary(max_size=64)
    | st.text(st.sampled_from('{}[]",:\\u0aeE+-.1 \ud800'), max_size=24).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )
)
def test_any_bytes_are_either_taken_or_refused_by_name(text: bytes) -> None:
    try:
        value = parse(text, top=object)
    except NotCanonical:
        return
    assert canonical(value) == rfc8785.dumps(value)


@given(st.integers(), st.integers(-400, 400))
def test_a_decimal_literal_is_taken_only_when_its_value_is_kept(digits: int, power: int) -> None:
    literal = f"{digits}e{power}"
    try:
        value = parse(literal.encode(), top=object)
    except NotCanonical:
        return
    assert strict._decimal(repr(value)) == strict._decimal(literal)


@pytest.mark.skipif(
    shutil.which("node") is None and os.environ.get("CI") != "true",
    reason="Node is missing: ECMAScript is the definition of a number's form",
)
def test_can_02_ten_thousand_doubles_read_as_ecmascript_writes_them() -> None:
    source = random.Random(8785)
    doubles = [struct.unpack("<d", source.randbytes(8))[0] for _ in range(10_000)]
    doubles += [sign * 10.0**power for power in range(-30, 31) for sign in (1, -1)]
    finite = [value for value in doubles if value == value and abs(value) != float("inf")]
    program = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0,'utf8'))))"
    done = subprocess.run(["node", "-e", program], input=json.dumps(finite), capture_output=True, text=True, check=True)
    assert canonical(finite).decode() == done.stdout


def test_agt_01_no_float_is_left_to_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes ten microseconds for one, and a document may hold 65,536: each power of ten, in the package's form."""
    numbers = [
        sign * float(f"{mantissa}e{power}")
        for power in range(-323, 308)
        for mantissa in ("1", "1.5", "9.999999999999999", "1.7976931348623157")
        for sign in (1, -1)
    ]
    wanted = [rfc8785.dumps(number) for number in numbers]

    def never(value: object) -> bytes:
        raise AssertionError(value)

    monkeypatch.setattr(rfc8785, "dumps", never)
    assert [canonical(number) for number in numbers] == wanted
    assert [module._number(number) for number in numbers] == wanted
