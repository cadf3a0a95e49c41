"""What a power cut leaves of a folder: nothing that was not synced, neither bytes nor names.

SIGKILL loses nothing, because the kernel has what was written. So a preloaded library (``shim/disk.c``) notes every
sync, and every name that was made, moved or taken away; after the kill ``Disk.cut`` puts the folder into the state
that a machine may be in when it comes back: each file is as long as at its last sync, each name is as it was when its
folder was synced last. A file's own sync makes its name not durable: the folder's does.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "shim" / "disk.c"
_SMALL = 16_384  # as in the library
_NAMES = frozenset({"create", "mkdir", "rename", "link", "unlink", "rmdir"})


def build_shim(folder: Path, source: Path = SOURCE) -> Path:
    """The library, compiled into ``folder``; skips the test without a C compiler, but never on CI."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        reason = f"no C compiler (cc, gcc or clang): {source.name} cannot be built"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    target = folder / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", target, source], check=True)
    return target


class Tail(StrEnum):
    """What became of the bytes behind the last sync: each of them is a state that real machines were seen in."""

    GONE = "gone"  # the file is as long as it was
    TORN = "torn"  # a part was written
    ZEROS = "zeros"  # the length was written, the bytes were not


@dataclass(slots=True)
class _Name:
    """One change of a name; ``durable`` once the folder (both, for a move) was synced."""

    what: str
    path: Path
    target: Path | None = None
    kept: str = "-"
    unsynced: set[Path] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a cut took away."""

    bytes: int
    names: list[str]


class Disk:
    """The folder under watch, and the notes about it."""

    def __init__(self, root: Path, notes: Path, shim: Path) -> None:
        self.root = root
        self.fault_file = notes / "fault"
        self._notes = notes
        self._shim = shim
        self.begin()

    def environment(self, *, writes: bool = False) -> dict[str, str]:
        """For a process whose calls are to be noted; the library is loaded at its start, the rest may be set later."""
        found = {
            "LD_PRELOAD": str(self._shim),
            "KBLOCK_DISK": str(self._notes),
            "KBLOCK_DISK_ROOT": str(self.root),
            "KBLOCK_FAULT": str(self.fault_file),
        }
        return {**found, "KBLOCK_DISK_WRITES": "1"} if writes else found

    def fail(self, call: str, part: str, number: int, *, skip: int = 0, count: int = -1) -> None:
        """From now on: after ``skip`` calls of write, fsync or fdatasync on a path with ``part`` in it, ``count``
        (-1: all) fail with errno ``number``."""
        fresh = self.fault_file.with_suffix(".new")
        fresh.write_text(f"{call} {part} {skip} {number} {count}\n")
        fresh.replace(self.fault_file)

    def heal(self) -> None:
        """Nothing fails any more."""
        self.fault_file.unlink(missing_ok=True)

    def events(self) -> list[list[str]]:
        """Everything that was noted since the last cut, in order."""
        file = self._notes / "events"
        return [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []

    def cut(self, tail: Tail = Tail.GONE, seed: int = 0) -> Loss:
        """Power is lost; only while no process uses the folder. The notes begin anew."""
        names, sizes, created = _replay(self.events(), self._before)
        lost = self._cut_files(sizes, created, tail, random.Random(seed))
        undone = self._undo(names)
        self.begin()
        return Loss(lost, undone)

    def _cut_files(self, sizes: dict[int, int], created: set[int], tail: Tail, chance: random.Random) -> int:
        lost = 0
        for path in sorted(self.root.rglob("*")):
            inode = path.lstat().st_ino
            if path.is_symlink() or not path.is_file() or inode not in sizes.keys() | created:
                continue  # made by a process that was not watched
            if sizes.get(inode, _SMALL + 1) <= _SMALL:
                content = self._notes / "content" / str(inode)
                before = path.read_bytes()
                kept = content.read_bytes() + _rest(before[sizes[inode] :], tail, chance)
                lost += sum(a != b for a, b in zip(before, kept, strict=False)) + abs(len(before) - len(kept))
                with path.open("r+b") as file:
                    file.write(kept)
                    file.truncate()
            else:
                lost += _cut_tail(path, sizes.get(inode, 0), tail, chance)
        return lost

    def _undo(self, names: list[_Name]) -> list[str]:
        undone: list[str] = []
        moved: list[tuple[Path, Path]] = []
        for name in reversed(names):
            if not name.unsynced:
                if name.what == "rename" and name.target is not None:
                    moved.append((name.path, name.target))
                continue
            path = _now(name.path, moved)
            target = None if name.target is None else _now(name.target, moved)
            if not path.parent.exists():
                continue  # in a folder that was made, and is unmade, later on
            self._undo_one(name, path, target)
            undone.append(f"{name.what} {path.relative_to(self.root)}")
        return undone

    def _undo_one(self, name: _Name, path: Path, target: Path | None) -> None:
        kept = self._notes / "kept" / name.kept
        if name.what == "create":
            path.unlink(missing_ok=True)
        elif name.what == "link" and target is not None:
            target.unlink(missing_ok=True)
        elif name.what == "mkdir":
            shutil.rmtree(path, ignore_errors=True)
        elif name.what == "rmdir":
            path.mkdir(exist_ok=True)
        elif name.what == "unlink" and name.kept != "-":
            os.link(kept, path)
        elif name.what == "rename" and target is not None:
            with contextlib.suppress(FileNotFoundError):
                target.rename(path)
            if name.kept != "-":
                os.link(kept, target)

    def begin(self) -> None:
        """Begins anew: whatever is in the folder now is what the disk holds."""
        shutil.rmtree(self._notes, ignore_errors=True)
        for folder in (self._notes / "kept", self._notes / "content"):
            folder.mkdir(parents=True)
        self._before: dict[int, int] = {}
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                self._before[status.st_ino] = status.st_size
                if status.st_size <= _SMALL:
                    shutil.copyfile(path, self._notes / "content" / str(status.st_ino))


def _replay(events: list[list[str]], before: dict[int, int]) -> tuple[list[_Name], dict[int, int], set[int]]:
    """(changes of names, sizes at the last sync by inode, inodes that were made)."""
    names: list[_Name] = []
    sizes = dict(before)
    created: set[int] = set()
    for what, *fields in events:
        if what == "create":
            created.add(int(fields[0]))
            sizes.pop(int(fields[0]), None)
        if what == "sync":
            sizes[int(fields[0])] = int(fields[1])
        elif what == "dirsync":
            _sync(names, Path(fields[0]))
        elif what in _NAMES:
            names.append(_name(what, fields))
            if what == "rename":
                _follow(names, Path(fields[0]), Path(fields[1]))
    return names, sizes, created


def _name(what: str, fields: list[str]) -> _Name:
    if what == "create":
        name = _Name(what, Path(fields[1]))
    elif what in ("rename", "link"):
        name = _Name(what, Path(fields[0]), Path(fields[1]), fields[2] if len(fields) > 2 else "-")
    else:
        name = _Name(what, Path(fields[0]), kept=fields[1] if len(fields) > 1 else "-")
    folders = {(name.target or name.path).parent}
    name.unsynced = folders | {name.path.parent} if what == "rename" else folders
    return name


def _sync(names: list[_Name], folder: Path) -> None:
    """What a synced folder names is durable; what was in a folder that is durably gone matters no more."""
    for number, name in enumerate(names):
        if folder in name.unsynced:
            name.unsynced.discard(folder)
            if name.what == "rmdir":
                for inside in names[:number]:
                    if name.path in inside.path.parents:
                        inside.unsynced.clear()


def _follow(names: list[_Name], source: Path, target: Path) -> None:
    """A folder that moved is synced under its new name from now on."""
    for name in names:
        name.unsynced = {_now(folder, [(source, target)]) for folder in name.unsynced}


def _now(path: Path, moved: list[tuple[Path, Path]]) -> Path:
    """Where a path is after the moves, the latest of which comes first."""
    for source, target in reversed(moved):
        if path == source or source in path.parents:
            path = target / path.relative_to(source)
    return path


def _rest(tail: bytes, mode: Tail, chance: random.Random) -> bytes:
    if mode is Tail.GONE or not tail:
        return b""
    part = tail[: chance.randrange(len(tail) + 1)]
    return part if mode is Tail.TORN else bytes(len(part))


def _cut_tail(path: Path, size: int, mode: Tail, chance: random.Random) -> int:
    with path.open("r+b") as file:
        file.seek(size)
        tail = file.read()
        file.seek(size)
        kept = _rest(tail, mode, chance)
        file.write(kept)
        file.truncate()
    return len(tail) - len(kept) if mode is not Tail.ZEROS else len(tail)
