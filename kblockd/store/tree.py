"""What the store asks of the tree over its records; it knows no hashing itself (``kblockd.ledger.merkle``).

The import direction is ledger, store, domain, so the tree comes in as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kblockd.store.protocol import Key

RawRead = Callable[[Key], bytes | None]


class Tree(Protocol):
    """An append-only tree whose node rows join the commit of their records. Used by one thread at a time."""

    def restore(self, size: int, raw: RawRead) -> None:
        """Takes up the state after ``size`` records; raises ValueError when a node is missing or malformed."""
        ...

    def append(self, first_index: int, leaves: Sequence[bytes]) -> Sequence[tuple[Key, bytes]]:
        """``OnAppend``: the node rows of these leaves."""
        ...

    def root(self) -> bytes:
        """32 bytes: the root over everything that was appended."""
        ...

    def root_at(self, size: int, raw: RawRead) -> bytes:
        """The root over the first ``size`` records, from stored nodes; raises ValueError as ``restore`` does."""
        ...

    def holds(self, index: int, leaf: bytes, raw: RawRead) -> bool:
        """Whether the stored leaf node is the hash of ``leaf``. Looks at its arguments alone: for several threads."""
        ...
