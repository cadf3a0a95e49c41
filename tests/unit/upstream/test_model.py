"""What an upstream's configuration takes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kblockd.upstream.exchange import HttpOrigin
from kblockd.upstream.model import UpstreamConfig

GOOD: dict[str, Any] = {"adapter": "http", "url": "https://api.example:8443/v1"}

WRONG: dict[str, dict[str, Any]] = {
    "unknown key": {"retries": 3},
    "unknown key within": {"tls": {"verify": False}},
    "scheme": {"url": "ftp://x"},
    "no host": {"url": "https:///x"},
    "password": {"url": "https://user:secret@x"},
    "fragment": {"url": "https://x/#f"},
    "tls over http": {"url": "http://x", "tls": {"spki_sha256": ["a" * 64]}},
    "pin": {"tools": {"t": {"definition_sha256": "…"}}},
    "spki": {"tls": {"spki_sha256": ["A" * 64]}},
    "network": {"allow_addresses": ["10.0.0.1/8"]},
    "credential": {"credentials": {"write": "Bearer literal-secret"}},
    "credential name": {"credentials": {"read": "env:1X"}},
    "no calls": {"maximum_concurrent_calls": 0},
    "breaker": {"breaker": {"failures": 0}},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    """Unknown keys, secrets in the file, pins that are none."""
    with pytest.raises(ValidationError):
        UpstreamConfig.model_validate({**GOOD, **WRONG[case]})


def test_it_is_frozen_and_knows_its_origin() -> None:
    """The origin is part of the action digest."""
    config = UpstreamConfig.model_validate(GOOD)
    assert config.origin == HttpOrigin("https", "api.example", 8443)
    with pytest.raises(ValidationError):
        config.adapter = "mcp"  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://API.example/", "https://api.example:443"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("http://[::1]:9/x", "http://[::1]:9"),
    ],
)
def test_origins_have_one_text(url: str, text: str) -> None:
    """Default ports are written out, names are lower case."""
    assert str(HttpOrigin.of(url)) == text
