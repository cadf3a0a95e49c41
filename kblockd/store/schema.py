"""Everything that is on disk, and how it is encoded.

One RocksDB column family in raw mode (``bytes`` only), so that no part of a write can be lost alone. A key is the
concatenation of its parts; the first part is the table::

    table    1 byte length n, n bytes of ASCII
    integer  01, 8 bytes big endian             sorts by value
    text     02, 2 bytes length n, n bytes UTF-8   sorts by length, then by bytes

A part is never a prefix of another one, so a scan over ``("step", "run-1")`` cannot meet ``("step", "run-10")``.

::

    table     parts                value                                              written by
    --------  -------------------  -------------------------------------------------  -------------------------------
    meta      "format"             b"kblockd.store/3"                                 the first open, an upgrade
    meta      "group"              u64: sequence of the head slot of the last batch   every batch
    leaf      index                u32 n, n bytes of leaf, then aux                   commit: one per record
    node      level, index         32 bytes: hash of a complete subtree               on_append (kblockd.ledger.merkle)
    payload   scope, sha256        the bytes                                          commit, removed by delete_payload
    any other chosen by the fold   u64 version, then the row as JSON                  the fold (kblockd.domain.ledger)

Files beside the database, in the data directory::

    store/    RocksDB
    head      two slots (kblockd.store.head)
    lock      flock of the daemon that owns the directory, with its pid
    clean     sequence of the head at the last orderly stop; not synced: losing it only costs a verification
    frozen-*  copies for a running verification; removed by the next open
    ballast   reserved space, given back when the disk is full

Rule for a change: fields may be added. A change to anything above, or a table that the fold adds, gets a new ``FORMAT``
and a step in ``kblockd ledger upgrade``; a store of another format is refused (LED-15), never guessed at.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import Decode
from kblockd.store.protocol import Append, Key, Row

FORMAT: Final = b"kblockd.store/3"
OLDER_FORMATS: Final = frozenset({b"kblockd.store/1", b"kblockd.store/2"})
"""``kblockd.store.upgrade`` converts these to ``FORMAT``."""
FORMAT_KEY: Final[Key] = ("meta", "format")
GROUP_KEY: Final[Key] = ("meta", "group")
RAW_TABLES: Final = frozenset({"meta", "leaf", "node", "payload"})
MAX_LEAF_BYTES: Final = 65_535
"""tlog-tiles frames an entry by a u16 (kblockd/ledger/README.md#records)."""

_INTEGER: Final = b"\x01"
_TEXT: Final = b"\x02"
_U16 = struct.Struct(">H")
_TEXT_HEAD = struct.Struct(">BH")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")


def encode_key_once(key: Key) -> bytes:
    """Bytes of a key or of a key prefix; raises ValueError for a key without an encoding."""
    if not key or not isinstance(key[0], str):
        raise ValueError(f"key {key!r}: the first part must be the table's name")
    parts = [_encode_table(key[0])]
    for part in key[1:]:
        if isinstance(part, str):
            text = part.encode()
            if len(text) > 0xFFFF:
                raise ValueError(
                    f"key of table {key[0]!r}: a text part of {len(text)} bytes exceeds the limit of 65535"
                )
            parts += (_TEXT_HEAD.pack(_TEXT[0], len(text)), text)
        else:
            parts.append(_encode_integer(part, key))
    return b"".join(parts)


encode_key = lru_cache(maxsize=1 << 15)(encode_key_once)
"""``encode_key_once``, cached, for keys that recur."""


@lru_cache(maxsize=256)
def _encode_table(name: str) -> bytes:
    table = name.encode("ascii")
    if not 0 < len(table) < 256:
        raise ValueError(f"table {name!r}: a table name has 1 to 255 characters")
    return bytes((len(table),)) + table


def _encode_integer(part: int, key: Key) -> bytes:
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < 1 << 64:
        raise ValueError(f"key {key!r}: a part must be text or an integer from 0 to 2^64-1")
    return _INTEGER + _U64.pack(part)


def decode_key(encoded: bytes) -> Key:
    """The inverse of ``encode_key``; raises ValueError for bytes that it cannot have produced."""
    try:
        at = 1 + encoded[0]
        parts: list[str | int] = [encoded[1:at].decode("ascii")]
        while at < len(encoded):
            tag, at = encoded[at : at + 1], at + 1
            if tag == _INTEGER:
                parts.append(_U64.unpack_from(encoded, at)[0])
                at += 8
            elif tag == _TEXT:
                (length,) = _U16.unpack_from(encoded, at)
                at += 2 + length
                parts.append(encoded[at - length : at].decode())
            else:
                raise ValueError(f"tag {tag!r}")
        if at != len(encoded) or not parts[0]:
            raise ValueError("truncated")
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError(f"not a key of this store: {encoded.hex()} ({error})") from None
    return tuple(parts)


def leaf_key(index: int) -> bytes:
    """``("leaf", index)`` without the cache."""
    return b"\x04leaf\x01" + _U64.pack(index)


def encode_row(version: int, row: Row) -> bytes:
    """Row envelope: version, then JSON; raises TypeError for a row that is not JSON."""
    return _U64.pack(version) + rows.encode(row)


def decode_row(key: Key, value: bytes, decode: Decode = rows.decode) -> tuple[int, Any]:
    """(version, row), the row of the type of its table; raises ValueError."""
    if len(value) < 10:
        raise ValueError(f"row of {len(value)} bytes is too short for a version and an object")
    return _U64.unpack_from(value)[0], decode(str(key[0]), value[8:])


def encode_leaf(leaf: bytes, aux: bytes) -> bytes:
    """A record with its aux framed beside it."""
    return _U32.pack(len(leaf)) + leaf + aux


def decode_leaf(value: bytes) -> Append:
    """The inverse of ``encode_leaf``; raises ValueError."""
    if len(value) < 4:
        raise ValueError("record without a length")
    end = 4 + _U32.unpack_from(value)[0]
    if end > len(value):
        raise ValueError(f"record of {end} bytes has only {len(value)}")
    return Append(value[4:end], value[end:])


def encode_u64(number: int) -> bytes:
    """Eight bytes, big endian."""
    return _U64.pack(number)


def decode_u64(value: bytes) -> int:
    """The inverse of ``encode_u64``; raises ValueError."""
    if len(value) != 8:
        raise ValueError(f"expected 8 bytes, got {len(value)}")
    return int(_U64.unpack(value)[0])
