"""The Store protocol: one commit is conditions, records and payloads, and is atomic.

Rows are the fold of the records; nothing else writes them. A row's version is the index of the record that
wrote it last. Source: kblockd/store/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kblockd.domain.ledger.rows import CounterRow, Key, R, Read, Row, RowKey
from kblockd.domain.values import value_type

__all__ = ["Key", "Read", "Row", "RowKey"]  # text of a key is length-framed on disk and integers are of fixed width

Fold = Callable[[Read, int, bytes], Sequence[tuple[Key, Row | None]]]
"""``fold(read, index, leaf)`` returns the rows that the record changes; None deletes. Pure; ``read`` sees the earlier
commits of the group."""

OnAppend = Callable[[int, Sequence[bytes]], Sequence[tuple[Key, bytes]]]
"""``on_append(first_index, leaves)`` returns raw rows (tree nodes) that join the same commit."""


@value_type(frozen=True, slots=True)
class Absent:
    """The row must not exist."""

    key: RowKey[Row]


@value_type(frozen=True, slots=True)
class AtVersion:
    """The row must exist and have been written last by record ``version``."""

    key: RowKey[Row]
    version: int


@value_type(frozen=True, slots=True)
class AtMost:
    """After the fold, the counter (absent counts as 0) must not exceed ``limit``."""

    key: RowKey[CounterRow]
    limit: int


Condition = Absent | AtVersion | AtMost


@value_type(frozen=True, slots=True)
class Append:
    """A record to append: the leaf that the tree hashes, and aux (signatures, DSSE bytes) stored beside it.

    ``sign`` makes the aux in the thread that writes, and must not fail: if it does, the write has failed.
    """

    leaf: bytes
    aux: bytes = b""
    sign: Callable[[], bytes] | None = None


@value_type(frozen=True, slots=True)
class Payload:
    """Deletable bytes under their digest; key ``("payload", scope, sha256)``."""

    key: Key
    data: bytes


class Conflict(Exception):
    """A condition did not hold; nothing was written. ``condition`` is the first that failed."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(f"condition failed: {condition}")
        self.condition = condition


class StoreFailed(Exception):
    """The store cannot serve; ``unknown``: the commit may have reached the disk."""

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message)
        self.unknown = unknown


class StoreRefused(Exception):
    """The store refuses to open; the message carries the numbers and the next step."""


class StoreUnreadable(Exception):
    """The store's files cannot be read; the message is for the log and the operator only."""


class Ticket(Protocol):
    """A commit whose conditions held and whose positions are fixed (*ordered*)."""

    @property
    def first_index(self) -> int:
        """Index of the first of its records; the others follow."""
        ...

    async def durable(self) -> None:
        """Returns when the commit is on disk and in the head; raises ``StoreFailed``. May be awaited many times."""
        ...


class Store(Protocol):
    """One daemon owns it. Every method raises ``StoreFailed`` once the store has failed.

    No undurable reads: ``get`` and ``scan`` return only rows that are on disk, and ``Conflict`` is raised only once the
    row that caused it is.
    """

    async def get(self, key: RowKey[R]) -> tuple[int, R] | None:
        """(version, row), or None."""
        ...

    def ordered(self, key: RowKey[R]) -> tuple[int, R] | None:
        """(version, row) as ordered, perhaps not yet durable: for a run that reads its own writes.

        Its later commits are ordered, and so become durable, after this row; it must not answer anybody from the row
        before then.
        """
        ...

    async def scan(
        self, prefix: RowKey[R], *, after: Key | None = None, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[Key, int, R]]:
        """Rows whose key starts with ``prefix``, in key order, strictly after ``after``."""
        ...

    async def commit(
        self,
        conditions: Sequence[Condition],
        records: Sequence[Append],
        payloads: Sequence[Payload] = (),
        *,
        label: str = "",
    ) -> Ticket:
        """Ordered when it returns; raises ``Conflict`` or ``StoreFailed``. ``label`` (``consume``) names the
        failpoints inside the commit."""
        ...

    async def delete_payload(self, key: Key) -> None:
        """Removes a payload permanently; the record with its digest stays."""
        ...

    async def payload(self, key: Key) -> bytes | None:
        """The payload, or None when it was never written or has been deleted."""
        ...

    async def leaf(self, index: int) -> Append | None:
        """A durable record, or None beyond the size."""
        ...

    async def raw(self, key: Key) -> bytes | None:
        """A raw row that ``on_append`` wrote (a tree node), or None."""
        ...

    def size(self) -> int:
        """Number of durable records, as in the head file."""
        ...

    async def backup(self, target: str) -> None:
        """A consistent copy in a new folder."""
        ...

    async def close(self) -> None:
        """Lets pending commits end, then closes. Idempotent."""
        ...
