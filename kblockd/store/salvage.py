"""Reads the remains of a damaged store for an export, without touching the store.

Records only: they are written once and never changed, so a salvaged record is complete, and its tree node proves it.
A salvaged row would prove nothing, since an older version may have survived a newer one.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rocksdict import Rdict

from kblockd.store.database import StoreView, open_view, options
from kblockd.store.protocol import StoreRefused, StoreUnreadable


@contextlib.contextmanager
def salvage(store: Path, scratch_dir: Path | None = None) -> Iterator[tuple[StoreView, str]]:
    """(view, how it was made). Raises ``StoreRefused`` when nothing can be read, OSError.

    First opens the store with all integrity checks off. If it still does not open (its manifest is gone), rebuilds a
    temporary copy from the table and log files under ``scratch_dir``, which takes as much space as the store.
    """
    if not store.is_dir():
        raise StoreRefused(f"{store} is missing: there is nothing to read.")
    with contextlib.ExitStack() as stack:
        try:
            view = stack.enter_context(open_view(store, salvage=True))
            view.size()
            how = "the store as it is"
        except (StoreRefused, StoreUnreadable) as refused:
            stack.close()
            view = stack.enter_context(_rebuilt(store, scratch_dir, refused))
            how = "a copy rebuilt from the table and log files, because the store does not open"
        yield view, how


@contextlib.contextmanager
def _rebuilt(store: Path, scratch_dir: Path | None, refused: Exception) -> Iterator[StoreView]:
    folder = Path(tempfile.mkdtemp(prefix="kblockd-export-", dir=scratch_dir))
    try:
        copy = folder / "store"
        shutil.copytree(store, copy, ignore=shutil.ignore_patterns("LOCK", "LOG*"))
        try:
            # On a copy, for records only: on the store itself it would silently lose rows.
            Rdict.repair(str(copy), options(salvage=True))
        except Exception as error:
            raise StoreRefused(f"nothing in {store} can be read: {refused}; rebuilding failed: {error}") from error
        with open_view(copy, salvage=True) as view:
            yield view
    finally:
        shutil.rmtree(folder, ignore_errors=True)
