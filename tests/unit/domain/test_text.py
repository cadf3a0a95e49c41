"""Canonical text, once: what the short ways give is what the long ones give, and what they refuse is refused alike."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain import canonical, strict
from kblockd.domain.canonical import NotCanonical, parse, reparse
from kblockd.domain.text import Text, embedded, foreign, own
from tests.unit.domain.test_canonical_corpus import ACCEPTED, REFUSED
from tests.unit.domain.test_canonical_properties import EDGES, INTEGERS, TEXTS, VALUES

LIMIT = 1 << 16
OWN_NAMES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=4)
OWN = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS | EDGES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(OWN_NAMES, inner, max_size=4),
    max_leaves=20,
)


def the_long_way(text: bytes) -> Text:
    """Each step by itself, with its walk."""
    data = rfc8785.dumps(careful(text))
    return Text(reparse(data), data, hashlib.sha256(data).hexdigest())


def careful(text: bytes) -> Any:
    """``parse`` where nothing is taken for ordinary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict, "ordinary", lambda *_: None)
        return parse(text, max_bytes=LIMIT)


def either(find: Any, text: bytes) -> tuple[Any, str]:
    """What was found, or in which words it was refused."""
    try:
        found = find(text)
    except NotCanonical as refusal:
        return None, str(refusal)
    return found, ""


def told_apart(value: Any) -> str:
    """1 from 1.0, and the order of members."""
    return repr(value)


@given(st.dictionaries(TEXTS | EDGES, VALUES, max_size=4), st.booleans())
def test_what_somebody_sent_is_the_same_text_either_way(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    short, long = either(lambda sent: foreign(sent, max_bytes=LIMIT), text), either(the_long_way, text)
    assert short == long
    assert told_apart(short[0]) == told_apart(long[0])


@given(
    st.text(st.sampled_from('{}[]",:\\u0aeE+-.1 é'), max_size=24).map(str.encode)
    | st.binary(max_size=32)
    | st.sampled_from([text.encode() for text, _ in ACCEPTED] + [text for text, _ in REFUSED])
)
def test_can_12_what_is_refused_is_refused_in_the_same_words(text: bytes) -> None:
    for whole in (text, b'{"a":' + text + b"}"):
        assert either(lambda sent: parse(sent, max_bytes=LIMIT), whole) == either(careful, whole)
        assert either(lambda sent: foreign(sent, max_bytes=LIMIT), whole) == either(the_long_way, whole)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":9007199254740992}',
        b'{"a":"\\ud800"}',
        b"[" * 33 + b"]" * 33,
        b'{"a":[' + b",".join([b"1"] * canonical.MAX_VALUES) + b"]}",
        b"[]",
        b"{}{}",
        b'{"a":"\xff"}',
        b"",
    ],
)
def test_no_trap_is_ordinary(text: bytes) -> None:
    with pytest.raises(NotCanonical):
        foreign(text, max_bytes=1 << 20)


def test_the_size_is_looked_at_first() -> None:
    with pytest.raises(NotCanonical, match="at most 8"):
        foreign(b'{"a":1,"a":2}', max_bytes=8)


@given(OWN, VALUES)
def test_a_document_of_our_own_is_written_as_the_standard_says(value: Any, sent: Any) -> None:
    expected = rfc8785.dumps({"own": value, "sent": sent})
    assert (
        own({"own": value, "sent": embedded(sent)}) == own({"own": value, "sent": embedded(Text.of(sent))}) == expected
    )


@given(VALUES, VALUES)
def test_a_text_may_stand_in_any_value(value: Any, sent: Any) -> None:
    """Floats, and names beyond ASCII, beside it."""
    expected = rfc8785.dumps({"value": value, "sent": [sent, 1.5]})
    assert canonical.canonical({"value": value, "sent": [embedded(sent), 1.5]}) == expected


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, 1 << 53, -(1 << 53), b"bytes", {1: 2}, {1, 2}, object()])
def test_what_has_no_form_is_refused_in_a_document_of_our_own(value: object) -> None:
    with pytest.raises(NotCanonical):
        own({"value": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 1 << 53])
def test_can_05_what_has_no_form_is_not_embedded(value: object) -> None:
    with pytest.raises(NotCanonical):
        embedded({"value": value})
