"""The frame between parent and child: four bytes of length, big-endian, then ``header JSON \\n body``.

The body of an evaluation is the canonical input as it was digested, so that what is evaluated is what is recorded.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import orjson

LENGTH: Final = struct.Struct(">I")
MAX_REQUEST: Final = 64 << 20
MAX_REPLY: Final = 4 << 20


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    payload = orjson.dumps(header) + b"\n" + body
    return LENGTH.pack(len(payload)) + payload


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and body; raises ``ValueError`` for anything that is not a frame."""
    line, _, body = payload.partition(b"\n")
    header = orjson.loads(line)
    if not isinstance(header, dict):
        raise ValueError("the header of a frame must be an object")
    return header, body


def taken(received: bytearray) -> bytes | None:
    """Removes and returns the payload of the first complete reply; None while it is incomplete.

    Raises ``ValueError`` for one that is longer than replies may be.
    """
    if len(received) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(received)
    if length > MAX_REPLY:
        raise ValueError(f"a reply of {length} bytes, at most {MAX_REPLY} are taken")
    end = LENGTH.size + length
    if len(received) < end:
        return None
    payload = bytes(received[LENGTH.size : end])
    del received[:end]
    return payload


def read_blocking(descriptor: int) -> bytes | None:
    """The payload of the next frame, None at the end of the stream; for the child."""
    head = _exactly(descriptor, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > MAX_REQUEST:
        raise ValueError(f"a frame of {length} bytes, at most {MAX_REQUEST} are taken")
    return _exactly(descriptor, length)


def write_blocking(descriptor: int, frame: bytes) -> None:
    """All of it; for the child."""
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def _exactly(descriptor: int, length: int) -> bytes | None:
    parts = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
