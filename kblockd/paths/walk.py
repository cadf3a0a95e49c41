"""Opens a path one component at a time, so that the objects checked are the objects opened.

The kernel would follow links by itself and report only the end. Here each folder, link and file is opened without
following links, examined through its descriptor, and recorded as a ``Step``. Beneath a folder, a link may lead anywhere
inside it (as in a mounted ConfigMap: ``a.rego -> ..data/a.rego``) and nowhere else: the rule of
``openat2(RESOLVE_BENEATH)``, which the standard library does not offer. Source: R640; cases LOC-01, LOC-02.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

MAX_LINKS: Final = 40  # the kernel's limit
_PATH_ONLY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ACL: Final = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class Step:
    """A folder, link or file as it was when opened; ``mode`` is ``st_mode``, including the type.

    ``read_only``: on a mount that this process cannot write to. ``acl``: it has a POSIX access control list, so the
    group bits of the mode may cover other users too.
    """

    path: Path
    mode: int
    uid: int
    gid: int
    read_only: bool = False
    acl: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file or folder; close it, or use it in a ``with``.

    ``steps`` lead from the root of the file system, or from the folder that it was opened beneath, to the object
    itself. Anything but a regular file or a folder is never opened for reading.
    """

    descriptor: int
    path: Path
    steps: tuple[Step, ...]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Call it once."""
        os.close(self.descriptor)

    @property
    def mode(self) -> int:
        """``st_mode`` of the object."""
        return self.steps[-1].mode

    @property
    def is_file(self) -> bool:
        """A regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """A folder."""
        return stat.S_ISDIR(self.mode)

    def read(self, limit: int) -> bytes:
        """At most ``limit`` bytes of a regular file. Blocks."""
        with open(self.descriptor, "rb", closefd=False) as stream:
            return stream.read(limit)

    def beneath(self, name: str) -> Opened:
        """Opens ``name`` (relative) inside this folder; ``steps`` begin below the folder.

        Raises ``OSError``, with EXDEV for a link that leads out of the folder. Blocks.
        """
        walk = _Walk(os.dup(self.descriptor), self.path, confined=True)
        return walk.opened(name.split("/"), self.path / name)


def open_path(path: Path) -> Opened:
    """Opens any path, following links; raises ``OSError``. Blocks."""
    whole = path.absolute()  # not resolve(): the walk itself interprets ``..``
    return _Walk.from_root().opened(whole.parts[1:], whole)


def steps_to(path: Path) -> tuple[tuple[Step, ...], bool]:
    """The steps of a path as far as it exists, and whether all of it exists; opens nothing for reading.

    Raises ``OSError``. Blocks.
    """
    walk, whole = _Walk.from_root(), True
    try:
        walk.go(path.absolute().parts[1:])
    except FileNotFoundError:
        whole = False
    finally:
        walk.close()
    return tuple(walk.steps), whole


class _Walk:
    """The stack of entered folders, beginning with the start of the walk, and every step so far."""

    def __init__(self, start: int, path: Path, *, confined: bool) -> None:
        self._entered = [(start, path)]
        self._confined = confined
        self.steps: list[Step] = []

    @classmethod
    def from_root(cls) -> _Walk:
        walk = cls(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), Path("/"), confined=False)
        walk.steps.append(_step(Path("/"), walk._entered[0][0]))
        return walk

    def opened(self, parts: Iterable[str], asked: Path) -> Opened:
        """The end of the path, open for reading; closes the folders on the way."""
        try:
            self.go(parts)
            descriptor = self._open_end()
        finally:
            self.close()
        return Opened(descriptor, asked, tuple(self.steps))

    def go(self, parts: Iterable[str]) -> None:
        remaining, links = deque(parts), 0
        while remaining:
            name = remaining.popleft()
            if name == "..":
                self._leave()
            elif name not in ("", ".") and (target := self._enter(name)) is not None:
                if (links := links + 1) > MAX_LINKS:
                    raise _error(errno.ELOOP, self._here / name)
                if target.startswith("/"):
                    self._restart(self._here / name)
                remaining.extendleft(reversed(target.split("/")))

    def close(self) -> None:
        while self._entered:
            os.close(self._entered.pop()[0])

    @property
    def _here(self) -> Path:
        return self._entered[-1][1]

    def _enter(self, name: str) -> str | None:
        """Enters a folder or file and returns None; for a link returns its target without entering it."""
        folder, path = self._entered[-1][0], self._here / name
        try:
            child = os.open(name, _PATH_ONLY, dir_fd=folder)
        except OSError as error:
            raise _error(error.errno, path) from None
        self._entered.append((child, path))
        self.steps.append(_step(path, child))
        if not stat.S_ISLNK(self.steps[-1].mode):
            return None
        try:
            return os.readlink("", dir_fd=child)  # of the opened link, not of whatever has its name by now
        finally:
            os.close(self._entered.pop()[0])

    def _leave(self) -> None:
        """Returns to the folder above; ``..`` is only valid in a folder."""
        if not stat.S_ISDIR(os.fstat(self._entered[-1][0]).st_mode):
            raise _error(errno.ENOTDIR, self._here)
        if len(self._entered) > 1:
            os.close(self._entered.pop()[0])
        elif self._confined:
            raise _leads_out(self._here)

    def _restart(self, link: Path) -> None:
        if self._confined:
            raise _leads_out(link)
        while len(self._entered) > 1:
            os.close(self._entered.pop()[0])

    def _open_end(self) -> int:
        """Opens the end again, for reading. Its step replaces the earlier one, as only the opened object counts."""
        descriptor, path = self._entered[-1]
        mode = os.fstat(descriptor).st_mode
        try:
            if stat.S_ISDIR(mode):
                opened = os.open(".", _READ | os.O_DIRECTORY, dir_fd=descriptor)
            elif stat.S_ISREG(mode):
                opened = os.open(path.name, _READ, dir_fd=self._entered[-2][0])
            else:
                opened = os.dup(descriptor)
        except OSError as error:
            raise _error(error.errno, path) from None
        step = _step(path, opened)
        self.steps[-1:] = [step]
        return opened


def _step(path: Path, descriptor: int) -> Step:
    status = os.fstat(descriptor)
    read_only = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    acl = bool(status.st_mode & stat.S_IWGRP) and not stat.S_ISLNK(status.st_mode) and _has_acl(descriptor)
    return Step(path, status.st_mode, status.st_uid, status.st_gid, read_only, acl)


def _has_acl(descriptor: int) -> bool:
    """Through /proc, because an O_PATH descriptor has no extended attributes. Unknown counts as True."""
    try:
        os.getxattr(f"/proc/self/fd/{descriptor}", _ACL)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True


def _error(number: int | None, path: Path) -> OSError:
    number = number or errno.EIO
    return OSError(number, os.strerror(number), str(path))


def _leads_out(path: Path) -> OSError:
    return OSError(errno.EXDEV, "leads out of its folder", str(path))
