"""Verifies a ledger that a daemon may be writing.

Without a daemon the lock is held meanwhile, and one try decides. Beside a running daemon a read-only open may meet a
file that is being removed, or an intermediate state, so a failure is tried again. A success is conclusive: the head is
read first, and the store can only be ahead of it. Differences that change from try to try are not a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.domain.ledger import fold
from kblockd.ledger.verify import Progress, Report, verify
from kblockd.store.database import open_view
from kblockd.store.head import read_head
from kblockd.store.lock import DirectoryLock
from kblockd.store.opening import compare_with_head
from kblockd.store.protocol import StoreRefused, StoreUnreadable

LOOKS: Final = 3
PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """``report`` is None if no try was completed; ``fault`` says why. ``decided`` is False if a running daemon may
    explain the differences: the ledger is then neither verified nor proved to differ. ``looks`` counts the tries."""

    report: Report | None
    decided: bool
    looks: int
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Verified: a try was completed without differences."""
        return self.report is not None and self.report.ok


def verify_directory(
    data_dir: Path, heads: dict[int, bytes], progress: Progress | None, pause: Callable[[float], None] = time.sleep
) -> LedgerVerdict:
    """``heads``: sizes and roots of checkpoints with verified signatures. Blocking; raises ``StoreRefused`` if there is
    no ledger, and without a daemon whatever the store raises."""
    if not (data_dir / "head").exists() or not (data_dir / "store").exists():
        raise StoreRefused(
            f"{data_dir}: no ledger here: head or store is missing. Next step: check data_dir; a daemon creates both "
            "at its first start, and a backup contains both."
        )
    with _locked(data_dir) as alone:
        if alone:
            report = _verify(data_dir, heads, progress)
            if report.ok:
                _compare(data_dir, report)
            return LedgerVerdict(report, decided=True, looks=1)
    return _verify_beside_daemon(data_dir, heads, progress, pause)


def _verify_beside_daemon(
    data_dir: Path, heads: dict[int, bytes], progress: Progress | None, pause: Callable[[float], None]
) -> LedgerVerdict:
    report: Report | None = None
    fault = ""
    seen: list[frozenset[str]] = []
    for number in range(1, LOOKS + 1):
        if number > 1:
            pause(PAUSE_SECONDS)
        try:
            report = _verify(data_dir, heads, progress)
        except Exception as error:
            # rocksdict raises bare exceptions, and a removed file may explain any of them.
            fault = str(error)
            seen.append(frozenset())
            continue
        if report.ok:
            return LedgerVerdict(report, decided=True, looks=number)
        seen.append(frozenset(map(str, report.differences)))
    # Differences seen in every try are in the ledger, not caused by concurrent writes.
    return LedgerVerdict(report, decided=bool(frozenset.intersection(*seen)), looks=LOOKS, fault=fault)


def _verify(data_dir: Path, heads: dict[int, bytes], progress: Progress | None) -> Report:
    # Reads the head first: beside a running daemon the store may be ahead of it, never behind.
    head = read_head(data_dir / "head")
    with open_view(data_dir / "store") as view:
        return verify(view, fold, heads={**heads, head.size: head.root}, progress=progress)


def _compare(data_dir: Path, report: Report) -> None:
    """Adds faults that would refuse a start although every record is valid: an older head, a lost deletion."""
    with open_view(data_dir / "store") as view:
        try:
            compare_with_head(data_dir / "store", view, report.size, read_head(data_dir / "head"))
        except (StoreRefused, StoreUnreadable) as refused:
            report.add("head file", str(refused))


@contextmanager
def _locked(data_dir: Path) -> Iterator[bool]:
    """Locks the folder and yields True, or yields False if somebody else may have it open."""
    try:
        lock = DirectoryLock(data_dir)
    except (StoreRefused, PermissionError):
        yield False
        return
    except OSError:
        yield True  # a read-only medium: no daemon can run on it
        return
    try:
        yield True
    finally:
        lock.release()
