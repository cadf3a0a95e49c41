"""A tar archive, read strictly: POSIX ustar, with long names as pax or GNU write them, and nothing else.

Not the standard library's reader, because these archives are untrusted: its patch levels differ in how they loop and
backtrack over hostile headers (CVE-2024-6232, CVE-2025-8194), and it stops silently at what it cannot read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BLOCK: Final = 512

_HEADER: Final = struct.Struct("100s24x12s12x8s1s100x8s80x155s12x")
_MAGICS: Final = {b"ustar\x0000": True, b"ustar  \0": False}  # whether a prefix is part of the name (POSIX, GNU)
_OCTAL: Final = re.compile(rb" *([0-7]{1,11})[ \0]*")
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,4}) ")
_PLAIN, _FOLDER, _PAX, _PAX_GLOBAL, _GNU_NAME = (b"0", b"\0"), b"5", b"x", b"g", b"L"
_ACTING: Final = (b"size", b"linkpath", b"hdrcharset")


class InvalidTar(ValueError):
    """Not a readable tar archive, or one with unsupported contents; the message says what."""


@dataclass(frozen=True, slots=True)
class TarEntry:
    """``data`` is None for a folder, and for what is neither file nor folder (then ``plain`` is False)."""

    name: str
    data: bytes | None
    plain: bool


def entries(content: bytes) -> Iterator[TarEntry]:
    """In order; raises ``InvalidTar``. Linear in the size of the archive."""
    at, long_name = 0, None
    while True:
        block = content[at : at + BLOCK]
        if not any(block):
            break
        name, size, kind = _header(block)
        data = content[at + BLOCK : at + BLOCK + size]
        if len(data) != size:
            raise InvalidTar(f"the entry at byte {at} is cut off")
        at += BLOCK + -(-size // BLOCK) * BLOCK
        if kind in (_PAX, _PAX_GLOBAL):
            path = _pax_path(data)
            if path is not None and kind == _PAX_GLOBAL:
                raise InvalidTar("one name for all entries")
            long_name = path or long_name
        elif kind == _GNU_NAME:
            long_name = data.rstrip(b"\0")
        else:
            yield _entry(long_name or name, kind, data)
            long_name = None
    if len(content) < at + 2 * BLOCK or any(memoryview(content)[at:]):
        raise InvalidTar("it has no end marker, or data behind it")


def _header(block: bytes) -> tuple[bytes, int, bytes]:
    """Name, size and kind."""
    if len(block) != BLOCK:
        raise InvalidTar("a header is cut off")
    name, size, checksum, kind, magic, prefix = _HEADER.unpack(block)
    if sum(block) - sum(checksum) + len(checksum) * ord(" ") != _number(checksum):
        raise InvalidTar("a header is damaged")
    if magic not in _MAGICS:
        raise InvalidTar("a header of another format than POSIX or GNU")
    prefix = prefix.partition(b"\0")[0] if _MAGICS[magic] else b""
    name = name.partition(b"\0")[0]
    return (prefix + b"/" + name if prefix else name), _number(size), kind


def _number(field: bytes) -> int:
    """Octal, as both formats write what fits; a binary number is one of gigabytes, or negative."""
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise InvalidTar("a number in a header is not octal")
    return int(match[1], 8)


def _pax_path(records: bytes) -> bytes | None:
    """The ``path`` among the records ``LENGTH KEY=VALUE\\n``; those that change how the archive is read are refused."""
    at, path = 0, None
    while at < len(records):
        length = _LENGTH.match(records, at)
        end = at + int(length[1]) if length else 0
        if length is None or not length.end() < end <= len(records) or records[end - 1] != ord("\n"):
            raise InvalidTar("an extended header that cannot be read")
        key, separator, value = records[length.end() : end - 1].partition(b"=")
        if not separator:
            raise InvalidTar("an extended header that cannot be read")
        if key in _ACTING or key.startswith(b"GNU.sparse"):
            raise InvalidTar(f"an extended header with {key.decode('ascii', 'replace')[:32]}")
        if key == b"path":
            path = value
        at = end
    return path


def _entry(name: bytes, kind: bytes, data: bytes) -> TarEntry:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise InvalidTar("a name that is not UTF-8") from None
    if kind == _FOLDER:
        if data:
            raise InvalidTar("a folder with a content")
        return TarEntry(text, None, True)
    return TarEntry(text, data if kind in _PLAIN else None, kind in _PLAIN)
