"""Verifying a ledger that a daemon may be writing: the lock decides whether one look is enough.

Without a daemon the lock is held meanwhile, and one look decides. Beside a running one a read-only open can meet a file
that is being taken away, or a moment in between; so what fails is looked at again. What verifies is verified: the head
is read first, and the store can only be ahead of it. What differs differently every time is no finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.domain.fold import fold
from kblockd.ledger.verify import Progress, Report, verify
from kblockd.store.database import look
from kblockd.store.head import read_head
from kblockd.store.lock import DirectoryLock
from kblockd.store.opening import compare_with_head
from kblockd.store.protocol import StoreRefused, StoreUnreadable

LOOKS: Final = 3
PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """``report`` is absent when no look came to an end; ``fault`` says why. ``decided`` is False when a running daemon
    may explain what was seen: it is neither verified nor proved to differ."""

    report: Report | None
    decided: bool
    looks: int
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Verified: a look came to its end and nothing differed."""
        return self.report is not None and self.report.ok


def verdict(
    data_dir: Path, kept: dict[int, bytes], progress: Progress | None, pause: Callable[[float], None] = time.sleep
) -> Verdict:
    """``kept`` are sizes and roots of checkpoints whose signatures were verified. Blocking; raises ``StoreRefused``
    when there is no ledger, and what the store raises when no daemon is there to explain it."""
    if not (data_dir / "head").exists() or not (data_dir / "store").exists():
        raise StoreRefused(
            f"{data_dir}: no ledger is here: head or store is missing. Next step: see that data_dir is right; a daemon "
            "makes both at its first start, and a backup holds both."
        )
    with _locked(data_dir) as alone:
        if alone:
            report = _look(data_dir, kept, progress)
            if report.ok:
                _compare(data_dir, report)
            return Verdict(report, decided=True, looks=1)
    return _beside(data_dir, kept, progress, pause)


def _beside(
    data_dir: Path, kept: dict[int, bytes], progress: Progress | None, pause: Callable[[float], None]
) -> Verdict:
    report: Report | None = None
    fault = ""
    seen: list[frozenset[str]] = []
    for number in range(1, LOOKS + 1):
        if number > 1:
            pause(PAUSE_SECONDS)
        try:
            report = _look(data_dir, kept, progress)
        except Exception as error:
            # rocksdict raises bare exceptions; whatever it is, a file that went away explains it.
            fault = str(error)
            seen.append(frozenset())
            continue
        if report.ok:
            return Verdict(report, decided=True, looks=number)
        seen.append(frozenset(map(str, report.differences)))
    # The same differences in every look are in the records, not in the moment.
    return Verdict(report, decided=bool(frozenset.intersection(*seen)), looks=LOOKS, fault=fault)


def _look(data_dir: Path, kept: dict[int, bytes], progress: Progress | None) -> Report:
    # The head first: beside a running daemon the store may be ahead of it, never behind.
    head = read_head(data_dir / "head")
    with look(data_dir / "store") as view:
        return verify(view, fold, heads={**kept, head.size: head.root}, progress=progress)


def _compare(data_dir: Path, report: Report) -> None:
    """What a start would refuse although every record is sound: a head of another time, a lost deletion."""
    with look(data_dir / "store") as view:
        try:
            compare_with_head(data_dir / "store", view, report.size, read_head(data_dir / "head"))
        except (StoreRefused, StoreUnreadable) as refused:
            report.add("head file", str(refused))


@contextmanager
def _locked(data_dir: Path) -> Iterator[bool]:
    """Whether nobody else has the folder, held meanwhile; a folder that may only be read cannot tell."""
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
