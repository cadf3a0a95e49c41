"""RFC 6901 pointers into JSON documents.

The empty pointer is the whole document; ``~1`` stands for ``/`` and ``~0`` for ``~``. The ``-`` of JSON Patch names no
element here, and an index has no leading zero (RFC 6901 section 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

Json = Any

_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
_MAX_INDEX_DIGITS: Final = 9


class InvalidPointer(ValueError):
    """The text is no RFC 6901 pointer."""


class PointerMissing(LookupError):
    """The document has nothing at the pointer; ``pointer`` names it."""

    def __init__(self, pointer: str) -> None:
        super().__init__(f"nothing at {pointer or 'the empty pointer'}")
        self.pointer = pointer


def parse(pointer: str) -> tuple[str, ...]:
    """The unescaped reference tokens; raises ``InvalidPointer``."""
    if pointer == "":
        return ()
    if not pointer.startswith("/"):
        raise InvalidPointer(f"{pointer[:64]!r} is no RFC 6901 pointer: it must be empty or start with /")
    if _BAD_ESCAPE.search(pointer):
        raise InvalidPointer(f"{pointer[:64]!r} is no RFC 6901 pointer: ~ is written ~0 and / inside a name ~1")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def build(tokens: Sequence[str | int]) -> str:
    """The pointer of these reference tokens: the inverse of ``parse``."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def get(document: Json, pointer: str) -> Json:
    """The value at ``pointer``; raises ``InvalidPointer`` or ``PointerMissing``."""
    value = document
    for token in parse(pointer):
        value = _member(value, token, pointer)
    return value


def is_pointer(value: Json) -> bool:
    """Whether a value of an action contract is a pointer: a string that starts with ``/`` (never the empty one)."""
    return isinstance(value, str) and value.startswith("/")


def pointers_in(template: Json, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every pointer in a template, with the path where it stands."""
    if is_pointer(template):
        yield at, template
    elif isinstance(template, dict):
        for key, member in template.items():
            yield from pointers_in(member, (*at, key))
    elif isinstance(template, list | tuple):
        for position, member in enumerate(template):
            yield from pointers_in(member, (*at, position))


def texts(document: Json) -> Iterator[tuple[Sequence[str | int], str, bool]]:
    """Every string of a document: its path, the text, and whether it is a key.

    The path is one list that changes as the walk goes on, so that a walk costs no more than the document: read it at
    once, and build a place from it only where there is something to name.
    """
    path: list[str | int] = []
    waiting: list[Iterator[tuple[str | int, Json]]] = []
    value = document
    while True:
        if isinstance(value, str):
            yield path, value, False
        elif isinstance(value, dict | list | tuple):
            waiting.append(iter(value.items() if isinstance(value, dict) else enumerate(value)))
            path.append("")
        while waiting:
            if (following := next(waiting[-1], None)) is not None:
                break
            waiting.pop()
            path.pop()
        else:
            return
        path[-1], value = following
        if isinstance(path[-1], str):
            yield path, path[-1], True


def resolve(template: Json, document: Json) -> Json:
    """The template with each pointer replaced by the value it names; raises ``PointerMissing``.

    One pass: a value that was put in is never looked at again, so a foreign string that looks like a pointer stays a
    string.
    """
    if is_pointer(template):
        return get(document, template)
    if isinstance(template, dict):
        return {key: resolve(member, document) for key, member in template.items()}
    if isinstance(template, list | tuple):
        return [resolve(member, document) for member in template]
    return template


def project(pointers: Sequence[str], document: Json) -> Json:
    """Only what the pointers name, in its place; what they do not name is absent, in arrays null.

    A pointer to nothing adds nothing. The empty pointer is the whole document; no pointer at all gives None.
    """
    kept: Json = None
    for pointer in pointers:
        try:
            value = get(document, pointer)
        except PointerMissing:
            continue
        kept = _graft(kept, document, parse(pointer), value)
    return kept


def _member(value: Json, token: str, pointer: str) -> Json:
    if isinstance(value, dict) and token in value:
        return value[token]
    if isinstance(value, list | tuple) and _INDEX.fullmatch(token) and len(token) <= _MAX_INDEX_DIGITS:
        position = int(token)
        if position < len(value):
            return value[position]
    raise PointerMissing(pointer)


def _graft(kept: Json, source: Json, tokens: tuple[str, ...], value: Json) -> Json:
    """``kept`` with ``value`` at ``tokens``, in containers shaped like those of ``source``; nothing is shared."""
    if not tokens:
        return value
    if kept is source:
        return kept
    if isinstance(source, dict):
        grown = dict(kept) if isinstance(kept, dict) else {}
        grown[tokens[0]] = _graft(grown.get(tokens[0]), source[tokens[0]], tokens[1:], value)
        return grown
    position = int(tokens[0])
    row = list(kept) if isinstance(kept, list) else [None] * len(source)
    row[position] = _graft(row[position], source[position], tokens[1:], value)
    return row
