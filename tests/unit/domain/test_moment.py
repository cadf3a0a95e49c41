"""Times that somebody else wrote."""

from __future__ import annotations

import datetime as dt

import pytest

from kblockd.domain.clock import moment

GOOD = {
    "2027-01-01T00:00:00Z": dt.datetime(2027, 1, 1, tzinfo=dt.UTC),
    "2027-01-01T01:00:00.5+01:00": dt.datetime(2027, 1, 1, 0, 0, 0, 500_000, dt.UTC),
    "2027-01-01T00:00:00.000001Z": dt.datetime(2027, 1, 1, 0, 0, 0, 1, dt.UTC),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_time_with_an_offset(text: str) -> None:
    assert moment(text) == GOOD[text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2027-01-01T00:00:00", "has no offset"),
        ("2027-01-01T00:00:00.000000", "has no offset"),
        ("2027-01-01", "is not a time in RFC 3339"),
        ("2027-01-01 00:00:00Z", "is not a time in RFC 3339"),
        ("20270101T000000Z", "is not a time in RFC 3339"),
        ("2027-W01-1T00:00:00Z", "is not a time in RFC 3339"),
        ("2027-01-01T00:00:00+0100", "is not a time in RFC 3339"),
        ("٢027-01-01T00:00:00Z", "is not a time in RFC 3339"),
        ("", "is not a time in RFC 3339"),
        ("2027-02-30T00:00:00Z", "is not a time that exists"),
        ("2027-01-01T00:00:00+99:00", "is not a time that exists"),
    ],
)
def test_apv_07_anything_else_says_what_it_is_not(text: str, why: str) -> None:
    """APV-07: a time without an offset is refused as exactly that."""
    with pytest.raises(ValueError, match=why):
        moment(text)
