"""Foreign text cannot speak in the daemon's voice, hide, reorder what is read, or drive a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.approvals.quoting import MAX_QUOTED, escape, quote, warnings


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
    """evidence.md: text that is not NFC is flagged to approvers; so is what hides or imitates."""
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
