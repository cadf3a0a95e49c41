"""Verification: the records are the truth, and everything else must follow from them.

``verify`` goes through the ledger once, from the first record on: every leaf against the tree, every record through
the fold, and at the end every row against what the fold made. Memory is bounded: rows beyond the newest lie in a
scratch database. It finds changed, missing and surplus rows, counters included, which have no list of records.

``check_rows`` is the short form for the start: a row is folded again from the records that it lists alone.

Both read a ``StoreView`` and block: run them in a process of their own (or a thread), over a stopped store, or over
``RocksStore.frozen`` of a running one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kblockd.domain.ledger.rows import COUNTERS, Decode, decode, indexes
from kblockd.ledger.merkle import MerkleTree
from kblockd.store import schema
from kblockd.store.database import StoreView
from kblockd.store.protocol import Append, Fold, Key, Row, StoreRefused, StoreUnreadable
from kblockd.store.scratch import CACHED_ROWS, Scratch

MAX_DIFFERENCES: Final = 100
_PROGRESS_EVERY: Final = 1000

Progress = Callable[[int, int], None]
"""``progress(done, size)`` in records; may sleep to leave the processor to others, may raise to stop."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fault: ``where`` is a record, a tree node or a row; never any content."""

    where: str
    fault: str

    def __str__(self) -> str:
        return f"{self.where}: {self.fault}"


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found; ``differences`` holds the first hundred of ``faults``."""

    size: int = 0
    root: bytes = b""
    nodes: int = 0
    rows: int = 0
    faults: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return self.faults == 0

    def add(self, where: str, fault: str) -> None:
        """Notes a difference."""
        self.faults += 1
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(Difference(where, fault))


def verify(
    view: StoreView,
    fold: Fold,
    *,
    heads: Mapping[int, bytes],
    progress: Progress | None = None,
    scratch_dir: Path | None = None,
    cached_rows: int = CACHED_ROWS,
    decode: Decode = decode,
) -> Report:
    """The whole ledger. ``heads`` are sizes and roots that must lie on its history: the head file, and checkpoints
    whose signatures the caller has verified.

    What cannot be read is a difference like any other. Raises OSError when the scratch cannot be written.
    """
    with Scratch(scratch_dir, cached_rows=cached_rows, decode=decode) as scratch:
        return refold(view, fold, scratch, heads=heads, progress=progress)


def refold(
    view: StoreView,
    fold: Fold,
    scratch: Scratch,
    *,
    heads: Mapping[int, bytes],
    progress: Progress | None = None,
    unmade: Collection[str] = (),
) -> Report:
    """``verify``, leaving every row that the records make in ``scratch``. Tables that are ``unmade`` are not compared:
    an older version did not write them."""
    report = Report()
    try:
        report.size = view.size()
    except StoreUnreadable:
        report.add("ledger", "the newest record cannot be read, so the number of records cannot be told")
        return report
    if _walk(view, fold, scratch, report, heads, progress):
        _compare_rows(view, scratch, report, unmade)
    for size in heads:
        if size > report.size:
            report.add(f"ledger of {report.size} records", f"a head over {size} records was handed out")
    return report


def _walk(
    view: StoreView, fold: Fold, scratch: Scratch, report: Report, heads: Mapping[int, bytes], progress: Progress | None
) -> bool:
    """False when a record is not there: then there is nothing that the rows could be compared with."""
    tree = MerkleTree()
    _compare_root(tree, heads, report)
    for index in range(report.size):
        record = _leaf(view, index, report)
        if record is None:
            return False
        _compare_nodes(view, tree.append(index, [record.leaf]), report)
        _compare_root(tree, heads, report)
        try:
            for key, row in fold(scratch.read, index, record.leaf):
                scratch.put(key, index, row)
        except Exception as error:
            # Whatever a fold raises, the record does not fold; the type says enough, the text may hold content.
            report.add(f"record {index}", f"does not fold ({type(error).__name__})")
        if progress is not None and (index + 1) % _PROGRESS_EVERY == 0:
            progress(index + 1, report.size)
    report.root = tree.root()
    _count_nodes(view, report)
    if progress is not None:
        progress(report.size, report.size)
    return True


def _leaf(view: StoreView, index: int, report: Report) -> Append | None:
    try:
        record = view.leaf(index)
    except (StoreUnreadable, ValueError):
        report.add(f"record {index}", "cannot be read; nothing behind it can be folded, and no row compared")
        return None
    if record is None:
        report.add(f"record {index}", "missing; nothing behind it can be folded, and no row compared")
    return record


def _compare_nodes(view: StoreView, nodes: Iterable[tuple[Key, bytes]], report: Report) -> None:
    for key, value in nodes:
        report.nodes += 1
        where = f"tree node at level {key[1]}, index {key[2]}"
        try:
            if view.raw(key) != value:
                report.add(where, "is not the hash of what is below it")
        except StoreUnreadable:
            report.add(where, "cannot be read")


def _count_nodes(view: StoreView, report: Report) -> None:
    try:
        surplus = sum(1 for _ in view.encoded(("node",))) - report.nodes
    except StoreUnreadable:
        report.add("tree", "cannot be read to its end")
    else:
        if surplus > 0:
            report.add("tree", f"{surplus} nodes that belong to no record")


def _compare_root(tree: MerkleTree, heads: Mapping[int, bytes], report: Report) -> None:
    expected = heads.get(tree.size)
    if expected is not None and tree.root() != expected:
        report.add(
            f"root over {tree.size} records", f"is {tree.root().hex()}, the head that was written says {expected.hex()}"
        )


def _compare_rows(view: StoreView, scratch: Scratch, report: Report, unmade: Collection[str]) -> None:
    tables = scratch.tables()
    try:
        tables |= set(view.tables())
    except StoreUnreadable:
        report.add("rows", "not all tables can be read")
    for table in sorted(tables.difference(unmade)):
        try:
            for encoded, stored, folded in _joined(view.encoded((table,)), scratch.pairs((table,))):
                report.rows += stored is not None
                key = schema.decode_key(encoded)
                if fault := _fault(key, stored, folded, scratch.decode):
                    report.add(f"row {key!r}", fault)
        except StoreUnreadable:
            report.add(f"rows of {table!r}", "cannot be read to their end")


def _joined(
    stored: Iterator[tuple[bytes, bytes]], folded: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Both in key order, side by side."""
    left, right = next(stored, None), next(folded, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None  # noqa: S101 - the loop's condition, spelt out for the type checker
            yield left[0], left[1], None
            left = next(stored, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(folded, None)
        else:
            yield left[0], left[1], right[1]
            left, right = next(stored, None), next(folded, None)


def _fault(key: Key, stored: bytes | None, folded: bytes | None, decode: Decode) -> str:
    if stored is None:
        return "missing"
    if folded is None:
        return "made by no record"
    if stored == folded:
        return ""
    try:
        version, row = schema.decode_row(key, stored, decode)
    except ValueError:
        return "cannot be read"
    expected_version, expected = schema.decode_row(key, folded, decode)
    if version != expected_version:
        return f"written by record {version}, by the fold it is {expected_version}"
    return _differing(row, expected)


def _differing(row: Row, expected: Row) -> str:
    """By value: an older release wrote out what is left out today because it has its default."""
    if row == expected:
        return ""
    found, wanted = msgspec.to_builtins(row), msgspec.to_builtins(expected)
    fields = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return f"differs from the fold in {', '.join(fields)}"


Stored = tuple[Key, int, Any]
"""Key, version and row; None for a row that cannot be read."""


def stored(key: Key, value: bytes, decode: Decode) -> Stored:
    """A row as it is on disk."""
    try:
        return (key, *schema.decode_row(key, value, decode))
    except ValueError:
        return key, 0, None


def stored_rows(view: StoreView, table: str, decode: Decode) -> Iterator[Stored]:
    """All rows of a table; raises ``StoreUnreadable``."""
    for encoded, value in view.encoded((table,)):
        yield stored(schema.decode_key(encoded), value, decode)


def check_rows(view: StoreView, fold: Fold, rows: Iterable[Stored]) -> list[Difference]:
    """Folds each row from nothing over the records that it lists, and compares; counters, which list none, are the full
    verification's."""
    found = []
    for key, version, row in rows:
        if key[0] not in COUNTERS and (fault := _fault_of(view, fold, key, version, row)):
            found.append(Difference(f"row {key!r}", fault))
    return found


def _fault_of(view: StoreView, fold: Fold, key: Key, version: int, row: Any) -> str:
    if row is None:
        return "cannot be read"
    listed = indexes(row)
    if not listed or listed[-1] != version or not _ascending(listed):
        return f"written by record {version}, but that is not the last record that it lists"
    state: dict[Key, Any] = {}
    for index in listed:
        record = view.leaf(index)
        if record is None:
            return f"lists record {index}, which is missing"
        try:
            state.update(fold(state.get, index, record.leaf))
        except Exception as error:
            # As in verify: the type says enough.
            return f"lists record {index}, which does not fold ({type(error).__name__})"
    expected = state.get(key)
    if expected is None:
        return "is not made by the records that it lists"
    return _differing(row, expected)


def _ascending(listed: Sequence[int]) -> bool:
    return listed[0] >= 0 and all(a < b for a, b in itertools.pairwise(listed))


def refuse(differences: Sequence[Difference]) -> None:
    """Refuses the start over rows that do not follow from their records."""
    if differences:
        count = len(differences)
        found = "1 row does not follow from its" if count == 1 else f"{count} rows do not follow from their"
        raise StoreRefused(
            f"{found} records, the first: {differences[0]}. Next step: run "
            "'kblockd ledger verify' on a copy, keep this directory as evidence, and restore a backup."
        )
