"""Canonical text, once: what comes from outside is looked at when it comes, and from then on carried as text.

A document of our own needs no look: its names are ASCII literals, and type checking leaves it no float. ``own`` writes
it as it stands, with the ``Text`` of what is foreign in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kblockd.domain.canonical import NotCanonical, canonical, parse, sha256_hex, written
from kblockd.domain.strict import ordinary
from kblockd.domain.values import value_type

Json = Any

_OWN: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)


@value_type(frozen=True, slots=True)
class Text:
    """A foreign value, its canonical form, and the digest of that (SHA-256, lowercase hex)."""

    value: Json
    data: bytes
    sha256: str

    @property
    def json(self) -> orjson.Fragment:
        """As a member of a document of our own."""
        return orjson.Fragment(self.data)

    @classmethod
    def of(cls, value: Json) -> Text:
        """Of a value that came as one; raises ``NotCanonical``."""
        data = canonical(value)
        return cls(value, data, sha256_hex(data))


def foreign(text: bytes, *, max_bytes: int) -> Text:
    """A JSON object that somebody sent; raises ``NotCanonical``. Its value is the canonical form parsed again.

    What is ordinary needs no walk: in ASCII both orders of names are one, and there is no number but short whole ones.
    """
    value = ordinary(text, max_bytes) if text.isascii() else None
    if not isinstance(value, dict):
        data = canonical(parse(text, max_bytes=max_bytes))
        return Text(written(data), data, sha256_hex(data))
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return Text(orjson.loads(data), data, sha256_hex(data))


def embedded(value: Json) -> orjson.Fragment:
    """A foreign value, or its ``Text``, as a member of a document of our own; raises ``NotCanonical``."""
    return value.json if isinstance(value, Text) else orjson.Fragment(canonical(value))


def partly(document: Mapping[str, Json], *foreign: str) -> dict[str, Json]:
    """A document of our own of which these members are foreign, where it has them."""
    found = {name: embedded(document[name]) for name in foreign if document.get(name) is not None}
    return {**document, **found}


def own(document: Json) -> bytes:
    """The canonical form of a document of our own; its names are ASCII, and it holds texts, whole numbers, truth values
    and null, and what is foreign ``embedded``. Raises ``NotCanonical`` for a lone surrogate and beyond 2^53-1."""
    try:
        return orjson.dumps(document, option=_OWN)
    except orjson.JSONEncodeError as error:
        raise NotCanonical(str(error)) from None
