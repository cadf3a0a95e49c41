"""Unix sockets as identity: whoever may open the socket is its principal, so nobody else may, at any time.

A Unix socket tells no uid to gRPC (stack.md), so the folder, the owner and the mode are the protection. gRPC binds
the socket itself; it does so inside a private folder (0700), where the mode is set before the socket is moved to its
place, so that there is no moment in which another user could connect.
Source: evidence.md, Callers; R010, R011.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.paths import Unsafe, Writers

MAX_PATH: Final = 107  # bytes in sockaddr_un, without the terminating NUL


class UnsafeSocket(Exception):
    """Why a socket is not made; the message names the path, what is wrong and the next step."""


@dataclass(slots=True)
class PrivateSocket:
    """A socket on its way to ``path``: bind ``staged``, then ``publish``; ``remove`` at the end."""

    path: Path
    mode: int
    gid: int
    folder: Path
    stale: tuple[int, int] | None = None  # what stands at ``path`` and nobody listens on
    _inode: tuple[int, int] | None = None

    @property
    def staged(self) -> Path:
        """Where gRPC binds."""
        return self.folder / "s"

    def publish(self) -> None:
        """Sets group and mode, then puts the socket in its place in one step, instead of the stale one that was seen
        there and of no other: a daemon with another store may have been quicker. Raises ``UnsafeSocket``."""
        self._give()
        if self.stale is not None and _inode(self.path) == self.stale:
            os.unlink(self.path)
        try:
            os.link(self.staged, self.path)
        except FileExistsError:
            raise _taken(self.path) from None
        self._inode = _inode(self.staged)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _give(self) -> None:
        """The group first: no other group may have the socket's mode for a moment. Always set, because below a folder
        with a set-group-id bit a new file has the folder's group."""
        try:
            os.chown(self.staged, -1, self.gid)
        except PermissionError:
            message = f"{self.path}: the daemon's user is not in the group {self.gid}, so cannot give it the socket"
            raise UnsafeSocket(f"{message}; name the group in SupplementaryGroups= of the unit") from None
        os.chmod(self.staged, self.mode)

    def remove(self) -> None:
        """Removes what was made here, and nothing that another process put in its place. Idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._inode is None:
            return
        if _inode(self.path) == self._inode:
            os.unlink(self.path)
        self._inode = None


def stage(path: Path, mode: int, gid: int | None = None) -> PrivateSocket:
    """Checks the place and makes the private folder; raises ``UnsafeSocket``. ``gid`` None is this process's own group.

    Call it only while the store's lock is held: a socket that nobody listens on is taken for stale.
    """
    _check_path(path, mode)
    _check_folders(path.parent)
    stale = _check_vacant(path)
    folder = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    made = PrivateSocket(path, mode, os.getegid() if gid is None else gid, folder, stale)
    if len(os.fsencode(made.staged)) > MAX_PATH:
        made.remove()
        raise UnsafeSocket(f"{path}: the folder's path is too long for a Unix socket; use a shorter one")
    return made


def _check_path(path: Path, mode: int) -> None:
    if not path.is_absolute():
        raise UnsafeSocket(f"{path}: must be an absolute path")
    if len(os.fsencode(path)) > MAX_PATH:
        raise UnsafeSocket(f"{path}: is longer than {MAX_PATH} bytes, the most that a Unix socket can have")
    if mode & ~0o770 or mode & 0o600 != 0o600:
        raise UnsafeSocket(f"{path}: mode {mode:04o} is not taken; use 0600, or 0660 for a group")


def _check_folders(parent: Path) -> None:
    """The folder, and each above it: whoever may rename one of them could put a socket of his own in place."""
    try:
        status = parent.stat()
    except OSError as error:
        raise UnsafeSocket(f"{parent}: {error.strerror}; make it first: install -d -m 0700 {parent}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeSocket(f"{parent}: is not a folder")
    try:
        Writers(frozenset({0, os.geteuid()}), read_only_passes=False).judge_path(parent)
    except Unsafe as unsafe:
        raise UnsafeSocket(str(unsafe)) from None
    except OSError as error:
        raise UnsafeSocket(f"{error.filename or parent}: {error.strerror}") from None


def _inode(path: Path) -> tuple[int, int] | None:
    """Of what stands there, None for nothing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _check_vacant(path: Path) -> tuple[int, int] | None:
    """The stale socket that stands there, or None."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        raise UnsafeSocket(f"{path}: is there and is not a socket; move it away")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return status.st_dev, status.st_ino
        except OSError as error:
            raise UnsafeSocket(f"{path}: cannot tell whether it is stale ({error}); remove it") from None
    raise _taken(path)


def _taken(path: Path) -> UnsafeSocket:
    return UnsafeSocket(f"{path}: another process listens on it; stop it, or configure another path")
