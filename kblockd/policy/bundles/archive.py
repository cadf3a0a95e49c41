"""A bundle in one file, as OPA writes it: a tar archive in gzip, taken apart in memory with bounds.

Nothing is written anywhere. Links, devices, sparse files, paths outside the bundle, duplicate names and trailing data
are refused, not skipped: two readers of one archive must never see two bundles.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

from kblockd.policy.bundles.files import MANIFEST, MAX_BYTES, MAX_FILES, SIGNATURES
from kblockd.policy.bundles.tar import BLOCK, InvalidTar, entries
from kblockd.policy.faults import refusal

MAX_TAR: Final = MAX_BYTES + MAX_FILES * 4 * BLOCK
"""Bytes after decompression: contents, and for each entry its headers and padding."""

MAX_NAME: Final = 200
_GZIP: Final = 16 + zlib.MAX_WBITS
_SEGMENT: Final = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_RENAME: Final = "copy it beside, then rename it into place"
_AGAIN: Final = "build the bundle again, with `opa build`"


def unpack(packed: bytes, file: str) -> dict[str, bytes]:
    """Contents by name, without the leading slash that ``opa build`` writes; raises ``BundleRefused``.

    ``file`` is only named in faults of the archive as a whole.
    """
    content = _decompressed(packed, file)
    contents: dict[str, bytes] = {}
    try:
        for name, data in _files(content):
            if name in contents:
                raise refusal(name, "appears twice in the archive", _AGAIN)
            contents[name] = data
    except InvalidTar as error:
        raise refusal(file, f"unsupported or invalid tar archive: {error}", _AGAIN) from None
    _check_folders(contents)
    return contents


def _decompressed(packed: bytes, file: str) -> bytes:
    """All of it or nothing; at most ``MAX_TAR`` bytes are ever produced."""
    if not packed:
        raise refusal(file, "is empty", _RENAME)
    stream = zlib.decompressobj(_GZIP)
    try:
        content = stream.decompress(packed, MAX_TAR + 1)
    except zlib.error:
        raise refusal(file, "not a gzip file, or corrupt", _AGAIN) from None
    if len(content) > MAX_TAR:
        raise refusal(file, f"more than {MAX_TAR} bytes when decompressed", "split data from policy")
    if not stream.eof:
        raise refusal(file, "is cut off: the gzip stream has no end", _RENAME)
    if stream.unused_data:
        raise refusal(file, "trailing data after the gzip stream", _AGAIN)
    return content


def _files(content: bytes) -> Iterator[tuple[str, bytes]]:
    count = size = 0
    for entry in entries(content):
        count, size = count + 1, size + len(entry.data or b"")
        if count > MAX_FILES or size > MAX_BYTES:
            raise refusal(_shown(entry.name), f"more than {MAX_BYTES} bytes or {MAX_FILES} entries", "split it")
        if not entry.plain:
            raise refusal(_shown(entry.name), "neither a plain file nor a folder", "put the file itself there")
        if entry.data is not None:
            yield _name(entry.name), entry.data


def _name(written: str) -> str:
    """Relative to the top of the bundle, in the one form that signatures use."""
    name = written.removeprefix("./").removeprefix("/")
    segments = name.split("/")
    if len(name) > MAX_NAME or not all(map(_SEGMENT.fullmatch, segments)) or {".", ".."} & {*segments}:
        step = "run `opa build` in the folder itself, or above it"
        raise refusal(_shown(written), "not a plain path below the top of the bundle", step)
    if name not in (MANIFEST, SIGNATURES) and any(segment.startswith(".") for segment in segments):
        raise refusal(_shown(written), "a hidden name, which a folder would skip", "rename it, or leave it out")
    return name


def _check_folders(contents: dict[str, bytes]) -> None:
    """Refuses a name that is both a file and a folder: OPA could not be given both."""
    for name in contents:
        parts = name.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in contents:
                raise refusal(name, "its folder is also a file of the bundle", _AGAIN)


def _shown(name: str) -> str:
    """As a fault may print it."""
    return name.encode("ascii", "backslashreplace").decode()[:MAX_NAME] if name.isprintable() else repr(name)[:MAX_NAME]
