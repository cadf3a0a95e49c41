"""Reading what is left of a damaged store, for an export; the store itself is not touched.

Only for records: they are written once and never changed, so what comes back is either the record or nothing, and its
tree node tells which. Rows that came back this way would mean nothing: an older one may stand where a newer was lost.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rocksdict import Rdict

from kblockd.store.database import View, look, options
from kblockd.store.protocol import StoreRefused, Unreadable


@contextlib.contextmanager
def salvage(store: Path, scratch_dir: Path | None = None) -> Iterator[tuple[View, str]]:
    """(view, how it came about). Raises ``StoreRefused`` when nothing can be read, OSError.

    First with everything switched off that refuses damage. When the database does not even open (its manifest is
    gone), what the table and log files hold is put together in a copy that is thrown away, under ``scratch_dir``
    (needs as much space as the store).
    """
    if not store.is_dir():
        raise StoreRefused(f"{store} is missing: there is nothing to read.")
    with contextlib.ExitStack() as stack:
        try:
            view = stack.enter_context(look(store, salvage=True))
            view.size()
            how = "the store as it is"
        except (StoreRefused, Unreadable) as refused:
            stack.close()
            view = stack.enter_context(_rebuilt(store, scratch_dir, refused))
            how = "a copy put together from the table and log files, because the store does not open"
        yield view, how


@contextlib.contextmanager
def _rebuilt(store: Path, scratch_dir: Path | None, refused: Exception) -> Iterator[View]:
    folder = Path(tempfile.mkdtemp(prefix="kblockd-export-", dir=scratch_dir))
    try:
        copy = folder / "store"
        shutil.copytree(store, copy, ignore=shutil.ignore_patterns("LOCK", "LOG*"))
        try:
            # On a copy, and for records alone: on the store itself it would lose rows without a word.
            Rdict.repair(str(copy), options(salvage=True))
        except Exception as error:
            raise StoreRefused(f"nothing of {store} can be read: {refused}; put together anew: {error}") from error
        with look(copy, salvage=True) as view:
            yield view
    finally:
        shutil.rmtree(folder, ignore_errors=True)
