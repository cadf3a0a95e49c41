"""The documents of a bundle: strictly read, hung where OPA hangs them, and digested as OPA digests them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from kblockd.domain.canonical import MAX_DEPTH, NotCanonical, canonical, parse
from kblockd.policy.faults import refusal
from kblockd.policy.files import MANIFEST, MAX_BYTES, is_data

MAX_YAML: Final = 128 << 10
"""Bytes of one YAML file: the parser takes ten microseconds for each, and reads before any signature is believed."""

_SEPARATORS: Final = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})


class _Literal(str):
    """A number as it was written."""

    __slots__ = ()


def read(name: str, content: bytes, *, top: type = dict) -> Any:
    """The strict value of a JSON or YAML file; raises ``PolicyRefused``. ``top``: the type that it must have."""
    try:
        return parse(content if name.endswith(("json", MANIFEST)) else _yaml(content), max_bytes=MAX_BYTES, top=top)
    except (NotCanonical, YAMLError, TypeError, ValueError, RecursionError) as error:
        raise refusal(name, " ".join(str(error).split())[:500], "correct the document") from None


def merged(files: Mapping[str, bytes]) -> dict[str, Any]:
    """One document of all: that of ``a/b/data.json`` is ``data.a.b``. Raises ``PolicyRefused`` where two meet."""
    whole: dict[str, Any] = {}
    for name in sorted(filter(is_data, files)):
        path = name.split("/")[:-1]
        value = read(name, files[name], top=object if path else dict)
        for key in reversed(path):
            value = {key: value}
        if at := _merge(whole, value):
            raise refusal(name, f"{at} stands in another document as well", "keep one of them")
    return whole


def digest(name: str, content: bytes) -> str:
    """SHA-256 as a signature of OPA holds it: of a document over its values, keys in order, without blanks; of any
    other file over its bytes. Raises ``PolicyRefused`` for a document that cannot be read."""
    if name.rpartition("/")[2] == MANIFEST or is_data(name):
        value = read(name, content, top=object)
        content = _encoded(_written(content, value)).encode()
    return hashlib.sha256(content).hexdigest()


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> str:
    """Objects are merged, anything else may stand once: the path of the first clash, or nothing."""
    for key, value in more.items():
        if key not in into:
            into[key] = value
        elif not (isinstance(into[key], dict) and isinstance(value, dict)):
            return key
        elif below := _merge(into[key], value):
            return f"{key}/{below}"
    return ""


@lru_cache(maxsize=32)
def _yaml(content: bytes) -> bytes:
    """As JSON, so that YAML data meet the same strictness; dates and other tags are refused by the encoder. Aliases,
    a few of which stand for gigabytes, and depth, which costs the parser its square, are refused before anything is
    built. Remembered, because a bundle is looked at every second and changes once a month."""
    if len(content) > MAX_YAML:
        raise ValueError(f"more than {MAX_YAML} bytes of YAML; write it as JSON")
    text = content.decode()
    _check_events(text)
    return json.dumps(YAML(typ="safe", pure=True).load(text), allow_nan=False).encode()


def _check_events(text: str) -> None:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            raise ValueError("aliases are not taken")


def _written(content: bytes, value: Any) -> Any:
    """The same with its numbers as written, as OPA keeps them in JSON; in YAML it reads them first."""
    try:
        return json.loads(content, parse_int=_Literal, parse_float=_Literal, parse_constant=_constant)
    except ValueError:
        return value


def _constant(literal: str) -> NoReturn:
    raise ValueError(literal)


def _encoded(value: Any) -> str:
    if isinstance(value, _Literal):
        return value
    if isinstance(value, dict):
        rows = (f"{_encoded(key)}:{_encoded(value[key])}" for key in sorted(value))
        return "{" + ",".join(rows) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).translate(_SEPARATORS)
    return canonical(value).decode()
