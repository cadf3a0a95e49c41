"""The head file: what was on disk when the last group was acknowledged.

Two preallocated slots of 104 bytes, at 0 and 4096; slot = sequence mod 2, so a torn write can only damage the older
one::

    0    8   magic "KBHEAD01"
    8    8   sequence      one more at each write
    16   8   incarnation   one more at each open
    24   8   size          durable records
    32   8   rocks         RocksDB's last sequence number
    40   32  root          of the Merkle tree over ``size`` records
    72   32  SHA-256 of bytes 0 to 71

Integers are big endian. The valid slot with the highest sequence counts; two invalid slots refuse the start. RocksDB
silently drops a torn, bit-flipped or deleted log; this file reveals the loss (LED-10, RCP-01).
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.store.protocol import StoreRefused

_MAGIC: Final = b"KBHEAD01"
_SLOT = struct.Struct(">8sQQQQ32s")
_SLOT_BYTES: Final = _SLOT.size + 32
_OFFSETS: Final = (0, 4096)
_FILE_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Head:
    """One slot."""

    sequence: int
    incarnation: int
    size: int
    rocks: int
    root: bytes

    def encode(self) -> bytes:
        """The 104 bytes of the slot."""
        body = _SLOT.pack(_MAGIC, self.sequence, self.incarnation, self.size, self.rocks, self.root)
        return body + hashlib.sha256(body).digest()

    @classmethod
    def decode(cls, slot: bytes) -> Head | None:
        """None when the slot is not valid."""
        body, checksum = slot[: _SLOT.size], slot[_SLOT.size : _SLOT_BYTES]
        if len(checksum) != 32 or hashlib.sha256(body).digest() != checksum:
            return None
        magic, sequence, incarnation, size, rocks, root = _SLOT.unpack(body)
        return cls(sequence, incarnation, size, rocks, root) if magic == _MAGIC else None


class HeadFile:
    """The open file. Not thread-safe: ``opening`` uses it first, the committer afterwards."""

    def __init__(self, descriptor: int, head: Head) -> None:
        self._descriptor = descriptor
        self.head = head

    @classmethod
    def create(cls, path: Path, head: Head) -> HeadFile:
        """A new file whose length, slot and name are on disk before it returns; raises OSError."""
        spare = path.with_name(path.name + ".new")
        descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(descriptor, bytes(_FILE_BYTES), 0)
            os.pwrite(descriptor, head.encode(), _OFFSETS[head.sequence % 2])
            os.fsync(descriptor)
            spare.rename(path)
            sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, head)

    @classmethod
    def open(cls, path: Path) -> HeadFile:
        """Raises ``StoreRefused`` when neither slot is valid, OSError when the file cannot be read."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            return cls(descriptor, read_head(path))
        except BaseException:
            os.close(descriptor)
            raise

    def write(self, size: int, rocks: int, root: bytes, *, incarnation: int | None = None) -> Head:
        """The next slot, on disk when it returns; raises OSError."""
        last = self.head
        head = Head(last.sequence + 1, last.incarnation if incarnation is None else incarnation, size, rocks, root)
        slot = head.encode()
        if os.pwrite(self._descriptor, slot, _OFFSETS[head.sequence % 2]) != len(slot):
            raise OSError("short write to the head file")
        os.fdatasync(self._descriptor)
        self.head = head
        return head

    def close(self) -> None:
        """Closes the file; every slot is already on disk."""
        os.close(self._descriptor)


def read_head(path: Path) -> Head:
    """The head that counts, without opening for writing; raises ``StoreRefused`` or OSError."""
    content = path.read_bytes()
    slots = [Head.decode(content[offset : offset + _SLOT_BYTES]) for offset in _OFFSETS]
    valid = [head for head in slots if head is not None]
    if not valid:
        raise StoreRefused(
            f"{path}: both slots of the head file are invalid, so it cannot be shown that the store is complete. "
            "Next step: restore store/ and head together from a backup."
        )
    return max(valid, key=lambda head: head.sequence)


def sync_folder(path: Path) -> None:
    """Makes a folder's directory entries durable; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
