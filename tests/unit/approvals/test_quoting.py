"""Foreign text cannot speak in the daemon's voice, hide, reorder what is read, or drive a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.approvals import quoting
from kblockd.approvals.quoting import (
    MAX_NAMED,
    MAX_QUOTED,
    MAX_WARNINGS,
    escape,
    named,
    quote,
    visible_blanks,
    warnings,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text, ünïcödé 漢字", '"plain text, ünïcödé 漢字"'),
        ('ends its "quotation"', r'"ends its \"quotation\""'),
        ("back\\slash", r'"back\\slash"'),
        ("two\nlines\r\n", r'"two\u000alines\u000d\u000a"'),
        ("\x1b[2J\x1b]0;title\x07", r'"\u001b[2J\u001b]0;title\u0007"'),
        ("\x9b31m", r'"\u009b31m"'),  # the one-byte CSI
        ("refund \u202e00.1 EUR", r'"refund \u202e00.1 EUR"'),  # right-to-left override
        ("\u2066isolate\u2069", r'"\u2066isolate\u2069"'),
        ("zero\u200bwidth\u200d\ufeff", r'"zero\u200bwidth\u200d\ufeff"'),
        ("line\u2028para\u2029", r'"line\u2028para\u2029"'),
        ("no\u00a0break\u3000wide", r'"no\u00a0break\u3000wide"'),
        ("fill\u3164er\u115f", r'"fill\u3164er\u115f"'),
        ("vs\ufe0f\U000e0101", r'"vs\ufe0f\U000e0101"'),
        ("tag\U000e0041", r'"tag\U000e0041"'),
        ("private\ue000\U000f0000", r'"private\ue000\U000f0000"'),
        ("\u2800", r'"\u2800"'),
        ("", '""'),
        (None, "null"),
        (5, "5"),
        (True, "true"),
        ({"b": 1, "a": "x\n"}, r"{\"a\": \"x\\n\", \"b\": 1}"),
    ],
)
def test_a_value_is_quoted_and_escaped(value: object, shown: str) -> None:
    """R306, R040: what an approver reads is what will be sent, or visibly escaped."""
    assert quote(value) == shown


def test_a_value_is_bounded_and_says_how_much_is_missing() -> None:
    """R048: a long text cannot push the rest of the sentence off the screen."""
    shown = quote("x" * (MAX_QUOTED + 17))
    assert shown == '"' + "x" * MAX_QUOTED + '… (17 more characters)"'
    assert quote("x" * MAX_QUOTED) == '"' + "x" * MAX_QUOTED + '"'
    assert len(quote([1] * 10_000)) < 2 * MAX_QUOTED


@given(st.text(max_size=300))
def test_nothing_that_is_escaped_is_invisible_or_ends_the_quotation(text: str) -> None:
    """Whatever comes: printable, no control, and quotes only behind a backslash."""
    shown = escape(text)
    assert all(c == " " or c.isprintable() for c in shown)
    assert '"' not in shown.replace("\\\\", "").replace('\\"', "")


@given(st.text(max_size=60))
def test_escaping_keeps_two_texts_apart(text: str) -> None:
    """No escape can be forged: what looks like one was written with its own backslash escaped."""
    assert (escape(text) == text) == (not any(escape(c) != c for c in text))
    assert escape("\\u202e") != escape("\u202e")


WARNED = [
    ("e\u0301", "not in Unicode form NFC"),
    ("\u202e", "direction-changing"),
    ("a\x00", "invisible, control"),
    ("\u3164", "invisible, control"),
    ("p\u0430ypal", "look-alikes of another alphabet"),  # a Cyrillic a
    ("\u0391ccount", "look-alikes of another alphabet"),  # a Greek A
    ("\uff11\uff10\uff10", "stand for others"),  # full-width digits
    ("\U0001d41a", "stand for others"),  # a mathematical a
    ("100\u00b2", "stand for others"),
    ("\u0661\u0660", "stand for others"),  # Arabic digits
    ("a\u0336b", "invisible, control"),  # struck out
]


@pytest.mark.parametrize(("text", "said"), WARNED)
@pytest.mark.parametrize("place", ["value", "key", "deep"])
def test_a_strange_text_is_flagged_with_its_place(text: str, said: str, place: str) -> None:
    """kblockd/domain/digests.md#canonical-form: text that is not NFC is flagged to approvers; so is what hides or
    imitates."""
    document = {"value": {"memo": text}, "key": {text: "x"}, "deep": {"rows": [{"memo": [text]}]}}[place]
    where = {"value": "arguments/memo", "key": "arguments (a key)", "deep": "arguments/rows/0/memo/0"}[place]
    found = warnings(document)
    assert any(said in warning and warning.startswith(where) for warning in found), found


@pytest.mark.parametrize("text", ["plain", "Grüße", "Привет", "Καλημέρα", "漢字", "100.00", "naïve café"])
def test_an_ordinary_text_is_not_flagged(text: str) -> None:
    """A warning that is always there is read by nobody."""
    assert warnings({"memo": text, text: 1}) == []


def test_warnings_are_bounded() -> None:
    """A thousand strange values give a list that can be read."""
    found = warnings({f"k{i}": "\u202e" * 5 for i in range(1000)})
    assert len(found) == 20
    assert len(warnings({"\u202e" * 5000: 1})[0]) < 2000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\u0410-1001", "U+0410 CYRILLIC CAPITAL LETTER A"),
        ("\u039a\u0391\u03a4\u0395", "U+039A GREEK CAPITAL LETTER KAPPA, U+0391 GREEK CAPITAL LETTER ALPHA"),
        ("p\u0251ypal", "U+0251 LATIN SMALL LETTER ALPHA"),
        ("\u0661\u0660", "U+0661 ARABIC-INDIC DIGIT ONE"),
        ("A\u20101001", "U+2010 HYPHEN"),
        ("Gr\u00fc\u00dfe", "U+00FC LATIN SMALL LETTER U WITH DIAERESIS"),
        ("\U000f0000", "U+F0000 without a name"),
    ],
)
def test_apv_06_what_is_not_ascii_is_named(text: str, said: str) -> None:
    """A word wholly of another script mixes nothing, so only its code points tell it apart."""
    [warning] = named({"id": text, "other": "plain"}, "target")
    assert warning.startswith(f"target/id holds characters outside ASCII: {said}")


def test_apv_06_each_is_named_once_and_only_so_many() -> None:
    text = "".join(chr(0x0410 + n % 30) for n in range(10_000))
    [warning] = named({"id": text}, "target")
    assert warning.count("U+") == MAX_NAMED
    assert warning.endswith(f"and {30 - MAX_NAMED} more")
    many = named({f"k{n}": "\u0410" for n in range(1000)}, "intent")
    assert (len(many), many[0].startswith("981 more warnings")) == (MAX_WARNINGS + 1, True)


def test_apv_06_ascii_is_not_named() -> None:
    assert named({"id": "A-1001", "rows": [1, None, "x"]}, "target") == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" + " " * 200 + "b", '"a␠×200b"'),
        ("a b", '"a b"'),
        ("  a", '"␠×2a"'),
        ("a␠×200b", r'"a\u2420×200b"'),  # a run cannot be forged
        (" " * 100_000 + "b", '"␠×100000b"'),
        ("ab" + " " * 3 + "x" * 500, '"ab␠×3' + "x" * 197 + '… (303 more characters)"'),
    ],
)
def test_apv_06_runs_of_blanks_are_shown(value: str, shown: str) -> None:
    assert quote(value) == shown


def test_apv_06_shown_blanks_are_shown_once() -> None:
    assert visible_blanks(visible_blanks("a" + " " * 9 + "b c")) == "a␠×9b c"


@pytest.mark.parametrize("key", ["k" * 10, "\u0410" * 20_000], ids=["short", "long-and-wide"])
def test_places_are_built_only_where_something_is_said(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long key over many members costs its length once, not once a member."""
    built: list[int] = []
    place = quoting._place

    def counted(at: str, path: Sequence[str | int], *, is_key: bool) -> str:
        built.append(1)
        return place(at, path, is_key=is_key)

    monkeypatch.setattr(quoting, "_place", counted)
    for members in (100, 200, 400):
        built.clear()
        warnings({key: [f"plain {n}" for n in range(members)]})
        plain = len(built)
        warnings({key: ["\u202e" for _ in range(members)]})
        assert plain <= 1
        assert len(built) - plain <= MAX_WARNINGS
