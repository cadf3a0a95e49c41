"""Credentials in every disguise in which an upstream may echo them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.upstream.scrub import REMOVED, Scrubber

TOKEN = 'tok/en+with=odd"chars\\and~more'
BASIC = base64.b64encode(b"merchant:correct horse/battery").decode()

ECHOES = {
    "full": f"Bearer {TOKEN}",
    "token": TOKEN,
    "quoted": quote(TOKEN, safe=""),
    "lower-case percent": quote(TOKEN, safe="").lower(),
    "quoted plus": quote_plus(f"Bearer {TOKEN}"),
    "json": json.dumps({"authorization": f"Bearer {TOKEN}"}),
    "json with slashes": json.dumps(TOKEN).replace("/", "\\/"),
    "base64": base64.b64encode(f"Bearer {TOKEN}".encode()).decode(),
    "base64url": base64.urlsafe_b64encode(TOKEN.encode()).decode(),
    "upper": f"BEARER {TOKEN}".upper(),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
def test_every_form_is_removed(echo: str) -> None:
    """R478, R640."""
    scrubbed = Scrubber(f"Bearer {TOKEN}".encode()).text(f"<<{echo}>>")
    assert REMOVED in scrubbed
    assert "with" not in scrubbed.lower()


@pytest.mark.parametrize(
    "echo",
    [BASIC, f"Basic {BASIC}", "merchant:correct horse/battery", "correct horse/battery", "correct%20horse%2Fbattery"],
)
def test_basic_is_removed_decoded_too(echo: str) -> None:
    """User and password, and the password alone."""
    scrubbed = Scrubber(f"Basic {BASIC}".encode()).text(f"error for {echo}!")
    assert scrubbed == f"error for {REMOVED}!"


def test_jwt_parts_are_removed() -> None:
    """The readable payload of a token is the token's content."""
    payload = base64.urlsafe_b64encode(b'{"sub":"merchant-7","scope":"refund"}').decode().rstrip("=")
    scrubber = Scrubber(f"Bearer eyJhbGciOiJub25lIn0.{payload}.c2ln".encode())
    assert "merchant-7" not in scrubber.text('claims {"sub":"merchant-7","scope":"refund"} refused')


def test_values_are_scrubbed_to_any_depth_with_keys_and_numbers() -> None:
    """Nested JSON, keys, and a token of digits that comes back as a number."""
    scrubber = Scrubber(b"Token 1234567890")
    given_value = {"a": [{"Token 1234567890": {"n": 1234567890, "ok": True, "none": None, "f": 1.5}}]}
    assert scrubber.value(given_value) == {"a": [{REMOVED: {"n": REMOVED, "ok": True, "none": None, "f": 1.5}}]}


def test_ups_17_what_overlaps_is_removed_as_one_and_what_touches_is_two() -> None:
    scrubber = Scrubber(b"Bearer ababab1")
    assert scrubber.text("<Bearer ABABAB1ababab1>") == f"<{REMOVED}{REMOVED}>"
    assert scrubber.text("<abababab1>") == f"<ab{REMOVED}>"


def test_without_a_credential_nothing_changes() -> None:
    """And the value is the very same object."""
    value = {"a": ["Bearer x"]}
    assert Scrubber(None).value(value) is value


@given(token=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=40), noise=st.text())
def test_no_token_survives_anywhere(token: str, noise: str) -> None:
    """Whatever the token looks like, wherever it stands."""
    scrubber = Scrubber(f"Bearer {token}".encode())
    text = json.dumps(scrubber.value({"x": [noise + token + noise, {token: quote(token, safe="")}]}))
    assert json.dumps(token)[1:-1] not in text.replace(REMOVED, "")
