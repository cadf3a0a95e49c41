"""The tree interface that the store uses; ``kblockd.ledger.merkle`` implements it.

The ledger imports the store, not the other way round, so the tree comes in as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kblockd.store.protocol import Key

RawRead = Callable[[Key], bytes | None]


class Tree(Protocol):
    """An append-only tree whose node rows join the commit of their records. Used by one thread at a time."""

    def restore(self, size: int, raw: RawRead) -> None:
        """Loads the state after ``size`` records; raises ValueError when a node is missing or malformed."""
        ...

    def append(self, first_index: int, leaves: Sequence[bytes]) -> Sequence[tuple[Key, bytes]]:
        """``OnAppend``: the node rows of these leaves."""
        ...

    def root(self) -> bytes:
        """32 bytes: the root over everything appended so far."""
        ...

    def root_at(self, size: int, raw: RawRead) -> bytes:
        """The root over the first ``size`` records, from stored nodes; raises ValueError as ``restore`` does."""
        ...

    def holds(self, index: int, leaf: bytes, raw: RawRead) -> bool:
        """Whether the stored leaf node is the hash of ``leaf``. Thread-safe: it uses only its arguments."""
        ...
