"""``urlquery.*`` as Go's net/url has it. The engine's own drops ``&``, line ends and blanks at the end from what it
decodes, and takes escapes that are none."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote_plus, unquote_to_bytes

from kblockd.policy.builtins.texts import text

_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def encode(value: str) -> str:
    """``urlquery.encode``: a blank becomes ``+``."""
    return quote_plus(text(value), safe="")


def decode(value: str) -> str:
    """``urlquery.decode``; bytes that are no UTF-8 are an error here, broken text in OPA."""
    if _NO_ESCAPE.search(text(value)):
        raise ValueError("a % without two hexadecimal digits")
    return unquote_to_bytes(value.replace("+", " ")).decode()


def encode_object(value: dict[str, Any]) -> str:
    """``urlquery.encode_object``: keys in order; a value is a text, an array of texts or a set of texts."""
    if not isinstance(value, dict):
        raise TypeError("urlquery.encode_object takes an object")
    keys = sorted(value, key=lambda key: text(key).encode())
    return "&".join(f"{encode(key)}={encode(each)}" for key in keys for each in _values(value[key]))


def decode_object(value: str) -> dict[str, list[str]]:
    """``urlquery.decode_object``: every value of every key, in their order."""
    found: dict[str, list[str]] = {}
    for pair in filter(None, text(value).split("&")):
        if ";" in pair:
            raise ValueError("a semicolon separates nothing")
        key, _, each = pair.partition("=")
        found.setdefault(decode(key), []).append(decode(each))
    return found


def _values(value: Any) -> list[str]:
    if isinstance(value, set | frozenset):
        return sorted(map(text, value), key=str.encode)
    return list(map(text, value)) if isinstance(value, list) else [text(value)]
