"""Opening a data directory: lock it, check it read-only, compare it with the head, and only then open it for writing.

RocksDB alone would silently lose acknowledged records after a torn or flipped tail of its log, a deleted log or one
flipped byte in its manifest, and its writable open deletes what it takes for garbage. So a read-only open checks
everything first, and a store that is behind its head or differs from it is refused with the numbers. Nothing here
repairs. Source: kblockd/store/README.md#start.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rocksdict import Checkpoint, Rdict, WriteBatch

from kblockd.store import schema
from kblockd.store.database import StoreView, open_view, open_writable, refusing, unsynced
from kblockd.store.head import Head, HeadFile, read_head, sync_folder
from kblockd.store.lock import DirectoryLock
from kblockd.store.protocol import Key, StoreRefused
from kblockd.store.tree import Tree

BALLAST_BYTES: Final = 16 << 20
FROZEN: Final = "frozen-"
CHECKED_TAIL: Final = 10_000
"""This many last records are all compared with their leaf nodes; before them every ``CHECKED_EVERY``-th is."""
CHECKED_EVERY: Final = 512
_TOGETHER: Final = 128
_READERS: Final = 4

_RESTORE: Final = "Next step: restore store/ and head together from a backup, and keep this directory as evidence."


@dataclass(slots=True)
class OpenDirectory:
    """The resources of an open data directory."""

    data_dir: Path
    lock: DirectoryLock
    database: Rdict
    head_file: HeadFile
    created: bool
    clean: bool

    def close(self, *, clean: bool) -> None:
        """Closes everything. RocksDB may refuse to close after a failed write; the lock is released regardless."""
        if not clean:
            release_ballast(self.data_dir)
        try:
            self.database.close()
        except Exception:
            if clean:
                raise
        else:
            if clean:
                marker = f"{self.head_file.head.sequence}\n"
                (self.data_dir / "clean").write_text(marker, encoding="ascii")
        finally:
            self.head_file.close()
            self.lock.release()


async def opened_directory(
    data_dir: Path, *, tree: Tree, inspect: Callable[[StoreView], None] | None, ballast_bytes: int
) -> OpenDirectory:
    """``open_directory`` in a thread. A thread cannot be stopped, so a cancelled caller waits for it and closes the
    directory, leaving it as clean as it was. Raises ``StoreRefused``."""
    work = partial(open_directory, data_dir, tree=tree, inspect=inspect, ballast_bytes=ballast_bytes)
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(StoreRefused):
            directory = await task
            directory.close(clean=directory.clean)
        raise


def open_directory(
    data_dir: Path, *, tree: Tree, inspect: Callable[[StoreView], None] | None, ballast_bytes: int
) -> OpenDirectory:
    """Blocking. Raises ``StoreRefused``."""
    try:
        return _open_directory(data_dir, tree, inspect, ballast_bytes)
    except OSError as error:
        raise StoreRefused(
            f"{error.filename or data_dir} cannot be used: {error.strerror or error}. Next step: make sure data_dir "
            "exists, belongs to the daemon's user, is mounted for writing and has free space; then start again."
        ) from error


def _open_directory(
    data_dir: Path, tree: Tree, inspect: Callable[[StoreView], None] | None, ballast_bytes: int
) -> OpenDirectory:
    check_owner(data_dir)
    lock = DirectoryLock(data_dir)
    try:
        created = _is_new(data_dir)
        if created:
            _initialise(data_dir, tree)
        for leftover in data_dir.glob(f"{FROZEN}*"):
            shutil.rmtree(leftover)
        _make_room(data_dir, ballast_bytes)
        checked = check(data_dir, tree, inspect)
        opened = _open_for_writing(data_dir, lock, tree, checked, created)
    except BaseException:
        lock.release()
        raise
    _keep_ballast(data_dir, ballast_bytes)
    return opened


def check_owner(data_dir: Path) -> None:
    """Raises ``StoreRefused`` for files of another user (another ledger, or a copy made as the wrong user) and for a
    folder that others may write to."""
    user = os.geteuid()
    for path in (data_dir, data_dir / "store", data_dir / "head"):
        if os.path.lexists(path) and path.lstat().st_uid != user:
            raise StoreRefused(
                f"{path} belongs to user {path.lstat().st_uid}, this process runs as user {user}. Next step: run the "
                f"daemon as the owner, or 'chown -R {user} {data_dir}' if the files were copied as somebody else."
            )
    mode = stat.S_IMODE(os.stat(data_dir).st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        # Whoever can rename entries here can make the next start begin an empty ledger.
        raise StoreRefused(
            f"{data_dir}: others may write to it (mode {mode:04o}), so they can remove the ledger. Next step: "
            f"'chmod 700 {data_dir}', then check with 'kblockd ledger verify --checkpoint' that nothing is missing."
        )


def _is_new(data_dir: Path) -> bool:
    """Whether no store was ever opened here; raises ``StoreRefused`` when only store or only head is missing."""
    store, head = (data_dir / "store").exists(), (data_dir / "head").exists()
    markers = [name for name in ("clean", "ballast") if (data_dir / name).exists()]
    if markers and not (store or head):
        raise StoreRefused(
            f"{data_dir}/store and {data_dir}/head are missing, but {data_dir}/{markers[0]} shows that there was a "
            f"ledger here. {_RESTORE} For a new ledger give the daemon an empty data_dir."
        )
    if store and not head:
        raise StoreRefused(f"{data_dir}/store exists but {data_dir}/head is missing. {_RESTORE}")
    if head and not store:
        # Incarnation 0: the initialisation was killed half-way; no record was ever written.
        if read_head(data_dir / "head").incarnation == 0:
            return True
        raise StoreRefused(f"{data_dir}/head exists but {data_dir}/store is missing. {_RESTORE}")
    return not store


def _initialise(data_dir: Path, tree: Tree) -> None:
    """An empty store with its format marker: built under another name, then the head, then renamed into place."""
    fresh = data_dir / "store.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    with refusing(fresh):
        database = open_writable(fresh, create=True)
        batch = WriteBatch(raw_mode=True)
        batch.put(schema.encode_key(schema.FORMAT_KEY), schema.FORMAT)
        database.write(batch, unsynced())
        database.flush_wal(True)
        database.close()
    tree.restore(0, lambda key: None)
    HeadFile.create(data_dir / "head", Head(1, 0, 0, 0, tree.root())).close()
    fresh.rename(data_dir / "store")
    sync_folder(data_dir)


def check(
    data_dir: Path,
    tree: Tree,
    inspect: Callable[[StoreView], None] | None,
    formats: Collection[bytes] = frozenset({schema.FORMAT}),
) -> int:
    """Runs every check that needs no write; returns the number of records. Raises ``StoreRefused``."""
    head = read_head(data_dir / "head")
    path = data_dir / "store"
    with refusing(path), open_view(path) as view:
        _check_format(path, view.raw(schema.FORMAT_KEY), formats)
        size = view.size()
        compare_with_head(path, view, size, head)
        try:
            _compare_roots(path, view, size, head, tree)
            _compare_hashes(path, view, size, tree)
        except ValueError as error:
            raise StoreRefused(f"{path} cannot be read: {error}. {_RESTORE}") from error
        if inspect is not None:
            inspect(view)
    return size


def _check_format(path: Path, marker: bytes | None, formats: Collection[bytes]) -> None:
    if marker in formats:
        return
    if marker in schema.OLDER_FORMATS:
        raise StoreRefused(
            f"{path} was written by an older version (format {marker.decode()!r}). Next step: copy the whole data_dir "
            "aside, then run 'kblockd ledger upgrade' as the daemon's user."
        )
    actual = "no format marker" if marker is None else f"format {marker.decode('ascii', 'replace')!r}"
    raise StoreRefused(
        f"{path} has {actual}, this version reads only {schema.FORMAT.decode()!r}. Next step: start the version that "
        "wrote it, or restore a backup of this format."
    )


def compare_with_head(path: Path, view: StoreView, size: int, head: Head) -> None:
    """Raises ``StoreRefused`` for a store behind its head (records are lost) or more than one batch ahead (the head is
    older). Only valid while nobody writes.
    """
    sequence, group = view.sequence(), view.group()
    if size < head.size or sequence < head.rocks:
        raise StoreRefused(
            f"{path} is behind its head: it holds {size} records up to RocksDB sequence {sequence}, the head file "
            f"says {head.size} records up to sequence {head.rocks}. Acknowledged records are missing. {_RESTORE}"
        )
    if group > head.sequence + 1:
        raise StoreRefused(
            f"{path} is {group - head.sequence} batches ahead of its head ({size} records, the head file says "
            f"{head.size}); a kill explains one. The head file is older than the store. {_RESTORE}"
        )


def _compare_roots(path: Path, view: StoreView, size: int, head: Head, tree: Tree) -> None:
    root = tree.root_at(head.size, view.raw)
    if root != head.root:
        raise StoreRefused(
            f"{path}: the root over {head.size} records is {root.hex()}, the head file says {head.root.hex()}. "
            f"The store was changed. {_RESTORE}"
        )
    tree.restore(size, view.raw)


def _compare_hashes(path: Path, view: StoreView, size: int, tree: Tree) -> None:
    """In several threads, so that decompression and disk waits overlap with hashing."""
    tail = max(0, size - CHECKED_TAIL)
    checked = [*range(0, tail, CHECKED_EVERY), *range(tail, size)]
    pieces = [checked[at : at + _TOGETHER] for at in range(0, len(checked), _TOGETHER)]
    with ThreadPoolExecutor(_READERS, "kblockd-check") as readers:
        for index, fault in filter(None, readers.map(partial(_first_fault, view, tree), pieces)):
            raise StoreRefused(f"{path}: record {index} of {size} {fault}. {_RESTORE}")


def _first_fault(view: StoreView, tree: Tree, indexes: list[int]) -> tuple[int, str] | None:
    """The first bad record of these, with what is wrong; holds no records afterwards, so large ones do not pile up."""
    leaves = view.together([schema.leaf_key(index) for index in indexes])
    keys: list[Key] = [("node", 0, index) for index in indexes]
    nodes = dict(zip(keys, view.together([schema.encode_key_once(key) for key in keys]), strict=True))
    for index, stored in zip(indexes, leaves, strict=True):
        if stored is None:
            return index, "is missing"
        if not tree.holds(index, schema.decode_leaf(stored).leaf, nodes.get):
            return index, "does not have the hash that the tree holds for it"
    return None


def _open_for_writing(data_dir: Path, lock: DirectoryLock, tree: Tree, size: int, created: bool) -> OpenDirectory:
    """Opens the database for writing and puts the new incarnation on disk."""
    path = data_dir / "store"
    with refusing(path):
        database = open_writable(path)
    try:
        opened_size = StoreView(database).size()
        if opened_size != size:
            raise StoreRefused(f"{path} had {size} records when checked and {opened_size} when opened. {_RESTORE}")
        head_file = HeadFile.open(data_dir / "head")
        before = head_file.head
        clean = created or _was_clean(data_dir, before)
        sequence = int(database.latest_sequence_number())
        head_file.write(size, sequence, tree.root(), incarnation=before.incarnation + 1)
    except BaseException:
        database.close()
        raise
    return OpenDirectory(data_dir, lock, database, head_file, created, clean)


def _was_clean(data_dir: Path, head: Head) -> bool:
    """The marker names the head that it was written after, so an old one does not count."""
    try:
        return (data_dir / "clean").read_text(encoding="ascii") == f"{head.sequence}\n"
    except FileNotFoundError:
        return False


def _make_room(data_dir: Path, ballast_bytes: int) -> None:
    """On a full disk even close and reopen fail; giving up the ballast makes them possible."""
    figures = os.statvfs(data_dir)
    if figures.f_bavail * figures.f_frsize < ballast_bytes:
        release_ballast(data_dir)


def release_ballast(data_dir: Path) -> None:
    """Gives the reserved space back to the file system."""
    (data_dir / "ballast").unlink(missing_ok=True)


def _keep_ballast(data_dir: Path, ballast_bytes: int) -> None:
    """Reserves space while there is plenty; a disk without room for it does not refuse the start."""
    figures = os.statvfs(data_dir)
    path = data_dir / "ballast"
    if ballast_bytes == 0 or path.exists() or figures.f_bavail * figures.f_frsize < 2 * ballast_bytes:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, ballast_bytes)
    except OSError:
        path.unlink()
    finally:
        os.close(descriptor)


def copy_to(database: Rdict, target: Path, outcome: list[Exception | None], head: Head) -> None:
    """In the committer, between two batches: copies the database and the head that belongs to it.

    A failed copy is reported in ``outcome``: it does not fail the store.
    """
    try:
        Checkpoint(database).create_checkpoint(str(target / "store"))
        HeadFile.create(target / "head", head).close()
    except OSError as error:
        outcome.append(error)
    except Exception as error:
        outcome.append(RuntimeError(f"RocksDB cannot copy to {target}: {error}"))
    else:
        outcome.append(None)
