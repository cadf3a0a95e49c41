"""The Merkle tree over the ledger records: RFC 6962 and RFC 9162, section 2.1, with SHA-256.

Leaf hash SHA-256(00 ‖ leaf), node hash SHA-256(01 ‖ left ‖ right), empty tree SHA-256 of nothing. Every *complete*
subtree is one stored row ``("node", level, index)``: it covers the 2^level records from index · 2^level on. Rows never
change, so a proof for any earlier size can be built at any time. Proofs are planned as ranges first (pure), then the
hashes are fetched, so that one plan serves blocking and asynchronous readers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from kblockd.store.protocol import Key

EMPTY_ROOT: Final = hashlib.sha256().digest()

Range = tuple[int, int]
"""First record and the one after the last; a left-aligned subtree, complete or not."""

Node = tuple[int, int]
"""Level and index of a complete subtree."""

NODES_REMEMBERED: int = 8192

RawRead = Callable[[Key], bytes | None]


class ProofError(ValueError):
    """A proof does not lead to the root."""


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256(00 ‖ leaf)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(01 ‖ left ‖ right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def node_key(node: Node) -> Key:
    """The row of a complete subtree."""
    return ("node", *node)


class MerkleTree:
    """A ``kblockd.store.tree.Tree``: the frontier of an append-only tree. Used by one thread at a time, but for
    ``recent``: node rows as they were made, which the ledger reads on the loop and adds to. Nobody asks for one before
    it is durable, and it never changes; each step on the dictionary is one of the interpreter's."""

    def __init__(self) -> None:
        self.size = 0
        self.recent: dict[Key, bytes] = {}
        self._frontier: list[bytes] = []
        """Roots of the complete subtrees, widest first: one for each bit that is set in ``size``."""

    def restore(self, size: int, raw: RawRead) -> None:
        """Takes up the frontier after ``size`` records; raises ValueError when a node is missing."""
        self._frontier = [_stored(node, raw) for node in nodes_of((0, size))]
        self.size = size

    def append(self, first_index: int, leaves: Sequence[bytes]) -> list[tuple[Key, bytes]]:
        """The node rows of these leaves; raises ValueError when ``first_index`` is not the size."""
        if first_index != self.size:
            raise ValueError(f"records from {first_index} on cannot follow {self.size} records")
        frontier = self._frontier
        rows: list[tuple[Key, bytes]] = []
        for position, leaf in enumerate(leaves, first_index):
            value = leaf_hash(leaf)
            level = 0
            rows.append((("node", 0, position), value))
            index = position
            while index & 1:
                value = node_hash(frontier.pop(), value)
                level += 1
                index >>= 1
                rows.append((("node", level, index), value))
            frontier.append(value)
        self.size = first_index + len(leaves)
        if len(self.recent) >= NODES_REMEMBERED:
            self.recent.clear()
        self.recent.update(rows)
        return rows

    def root(self) -> bytes:
        """The root over everything that was appended."""
        return fold_right(self._frontier)

    def root_at(self, size: int, raw: RawRead) -> bytes:
        """The root over the first ``size`` records, from stored nodes; raises ValueError when one is missing."""
        return fold_right([_stored(node, raw) for node in nodes_of((0, size))])

    def holds(self, index: int, leaf: bytes, raw: RawRead) -> bool:
        """Whether the stored leaf node is the hash of ``leaf``."""
        return raw(node_key((0, index))) == leaf_hash(leaf)


def _stored(node: Node, raw: RawRead) -> bytes:
    value = raw(node_key(node))
    if value is None or len(value) != 32:
        fault = "is missing" if value is None else f"has {len(value)} bytes"
        raise ValueError(f"the tree node at level {node[0]}, index {node[1]} {fault}")
    return value


def fold_right(hashes: Sequence[bytes]) -> bytes:
    """The root over complete subtrees, widest first."""
    if not hashes:
        return EMPTY_ROOT
    value = hashes[-1]
    for left in reversed(hashes[:-1]):
        value = node_hash(left, value)
    return value


def nodes_of(span: Range) -> list[Node]:
    """The complete subtrees that make up a range, widest first."""
    start, end = span
    found: list[Node] = []
    while start < end:
        level = (end - start).bit_length() - 1
        found.append((level, start >> level))
        start += 1 << level
    return found


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """Siblings of record ``index`` in the tree of ``size``, from the leaf up (RFC 9162, 2.1.3.1).

    Raises ValueError when the record is not in the tree.
    """
    if not 0 <= index < size:
        raise ValueError(f"record {index} is not in a tree of {size}")
    ranges: list[Range] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def consistency_ranges(old: int, new: int) -> list[Range]:
    """The consistency proof from ``old`` to ``new`` records (RFC 9162, 2.1.4.1); empty for an equal or empty tree.

    Raises ValueError when ``old`` is not within ``new``.
    """
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {old} cannot have grown to one of {new}")
    if old in (0, new):
        return []
    ranges: list[Range] = []
    start, end, whole = 0, new, True
    while end != old:
        middle = start + _split(end - start)
        if old <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start, whole = middle, False
    if not whole:
        ranges.append((start, end))
    return ranges[::-1]


def _split(count: int) -> int:
    """The largest power of two below ``count``."""
    return 1 << ((count - 1).bit_length() - 1)


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Checks a path from a leaf hash to the root (RFC 9162, 2.1.3.2); raises ``ProofError``."""
    if not 0 <= index < size:
        raise ProofError(f"record {index} is not in a tree of {size}")
    value, node, last = leaf, index, size - 1
    for sibling in path:
        if last == 0:
            raise ProofError("the path is longer than the tree is high")
        if node & 1 or node == last:
            value = node_hash(sibling, value)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            value = node_hash(value, sibling)
        node, last = node >> 1, last >> 1
    if last or value != root:
        raise ProofError(f"record {index} is not in the tree of {size} with this root")


def verify_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Checks that the larger tree extends the smaller one (RFC 9162, 2.1.4.2); raises ``ProofError``."""
    if not 0 <= old <= new:
        raise ProofError(f"a tree of {old} cannot have grown to one of {new}")
    if old in (0, new):
        expected = EMPTY_ROOT if old == 0 else new_root
        if proof or old_root != expected:
            raise ProofError("equal and empty trees have no proof and one root")
        return
    path = list(proof)
    if old & (old - 1) == 0:
        path.insert(0, old_root)
    if not path:
        raise ProofError("the proof is empty")
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError("the proof is longer than the tree is high")
        if node & 1 or node == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        node, last = node >> 1, last >> 1
    if last or first != old_root or second != new_root:
        raise ProofError(f"the tree of {new} does not extend the tree of {old}")
