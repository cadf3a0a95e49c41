"""Unicode normal forms of hostile text."""

from __future__ import annotations

import sys
import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.approvals import quoting
from kblockd.domain import normal

RUN = "a" + "\u0315\u0300" * 200_000
HOSTILE = [RUN, "a" + "\u0f73" * 200_000, "\uff9e\uff9f" * 200_000, "x" * 1000 + "\u0300" * 31]


def test_every_character_that_sorts_is_known() -> None:
    """What normalising sorts are combining marks, and what decomposes to something that begins with one."""
    found = {
        chr(code)
        for code in range(sys.maxunicode + 1)
        if not unicodedata.combining(chr(code)) and unicodedata.combining(unicodedata.normalize("NFKD", chr(code))[0])
    }
    assert found == normal._BECOME_MARKS


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_agt_01_a_run_of_marks_is_never_sorted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library sorts by insertion, in one call that nothing interrupts: hours for a megabyte."""

    def refuse(*arguments: Any) -> Any:
        assert len(arguments[1]) == 1, "a whole text was normalised"
        return arguments[1]

    asked = SimpleNamespace(normalize=refuse, is_normalized=refuse, combining=unicodedata.combining)
    monkeypatch.setattr(normal, "unicodedata", asked)
    assert not normal.is_stream_safe(text)
    assert not normal.is_normal("NFC", text)
    assert any("combining marks in a row" in warning for warning in quoting.warnings({"memo": text}))


@pytest.mark.parametrize("text", ["", "plain", "e\u0301", "\u0915\u093c", "a" + "\u0300" * 30, "각", "\u1100\u1161"])
def test_ordinary_text_is_safe_and_judged_as_before(text: str) -> None:
    assert normal.is_stream_safe(text)
    assert normal.is_normal("NFC", text) == unicodedata.is_normalized("NFC", text)
