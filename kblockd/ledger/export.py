"""Records out of a store that may be damaged: each one that can be read, and word of each one that cannot.

A record is *proved* when it has the hash that the stored tree holds for it, *unproved* when the tree's node cannot be
read, and *altered* when the node says otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kblockd.ledger.merkle import leaf_hash, node_key
from kblockd.store.database import StoreView
from kblockd.store.protocol import Append, StoreUnreadable


class Condition(enum.StrEnum):
    """What is known of one record."""

    PROVED = "proved"
    UNPROVED = "unproved"
    ALTERED = "altered"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class Exported:
    """How many records were expected (by the head or the last record) and what came of them."""

    expected: int
    indexes: dict[Condition, list[int]] = field(default_factory=lambda: {one: [] for one in Condition})

    @property
    def written(self) -> int:
        """Records that were given out."""
        return self.expected - len(self.indexes[Condition.MISSING]) - len(self.indexes[Condition.UNREADABLE])

    @property
    def whole(self) -> bool:
        """Whether every expected record is there and proved."""
        return len(self.indexes[Condition.PROVED]) == self.expected

    def ranges(self, condition: Condition) -> list[tuple[int, int]]:
        """First and last index of each run of records in that condition."""
        return _ranges(self.indexes[condition])


def export(view: StoreView, head_size: int, write: Callable[[int, Append, Condition], None]) -> Exported:
    """Calls ``write(index, record, condition)`` for every record that can be read, in order."""
    exported = Exported(max(head_size, _size(view)))
    for index in range(exported.expected):
        record, condition = _read(view, index)
        exported.indexes[condition].append(index)
        if record is not None:
            write(index, record, condition)
    return exported


def _size(view: StoreView) -> int:
    try:
        return view.size()
    except (StoreUnreadable, ValueError):
        return 0


def _read(view: StoreView, index: int) -> tuple[Append | None, Condition]:
    try:
        record = view.leaf(index)
    except (StoreUnreadable, ValueError):
        return None, Condition.UNREADABLE
    if record is None:
        return None, Condition.MISSING
    try:
        node = view.raw(node_key((0, index)))
    except StoreUnreadable:
        node = None
    if node is None:
        return record, Condition.UNPROVED
    return record, Condition.PROVED if node == leaf_hash(record.leaf) else Condition.ALTERED


def _ranges(indexes: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found
