"""Unix sockets as identity: whoever can open a socket acts as its principal, so nobody else may be able to, ever.

gRPC does not expose the peer's uid (kblockd/rpc/README.md#who-calls), so folder, owner and mode are the protection.
gRPC binds the socket
itself, inside a private folder (0700), where owner and mode are set before the socket is linked into place: at no
moment can another user connect.
Source: kblockd/rpc/README.md#who-calls; R010, R011.
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
    """The socket was not created; the message names the path, the fault and the next step."""


@dataclass(slots=True)
class PrivateSocket:
    """A socket for ``path``: bind ``staged``, then ``publish``; ``remove`` at the end."""

    path: Path
    mode: int
    gid: int
    folder: Path
    stale: tuple[int, int] | None = None  # device and inode of a socket at ``path`` that nobody listens on
    _inode: tuple[int, int] | None = None

    @property
    def staged(self) -> Path:
        """The path for gRPC to bind."""
        return self.folder / "s"

    def publish(self) -> None:
        """Sets group and mode, then links the socket into place atomically. Replaces only the stale socket seen before,
        because a daemon with another store may have taken the path since. Raises ``UnsafeSocket``."""
        self._set_group_and_mode()
        if self.stale is not None and _inode(self.path) == self.stale:
            os.unlink(self.path)
        try:
            os.link(self.staged, self.path)
        except FileExistsError:
            raise _in_use(self.path) from None
        self._inode = _inode(self.staged)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _set_group_and_mode(self) -> None:
        """Group first, so that no other group ever has access. Always set, because in a folder with the set-group-ID
        bit a new file gets the folder's group."""
        try:
            os.chown(self.staged, -1, self.gid)
        except PermissionError:
            message = f"{self.path}: the daemon's user is not in the group {self.gid}, so it cannot give it the socket"
            raise UnsafeSocket(f"{message}; name the group in SupplementaryGroups= of the unit") from None
        os.chmod(self.staged, self.mode)

    def remove(self) -> None:
        """Removes this socket, but not one that another process has put in its place. Idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._inode is None:
            return
        if _inode(self.path) == self._inode:
            os.unlink(self.path)
        self._inode = None


def stage(path: Path, mode: int, gid: int | None = None) -> PrivateSocket:
    """Checks the path and creates the private folder; raises ``UnsafeSocket``. ``gid`` None: this process's own group.

    Call it only while the store's lock is held: a socket that nobody listens on counts as stale.
    """
    _check_path(path, mode)
    _check_folders(path.parent)
    stale = _check_vacant(path)
    folder = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    private = PrivateSocket(path, mode, os.getegid() if gid is None else gid, folder, stale)
    if len(os.fsencode(private.staged)) > MAX_PATH:
        private.remove()
        raise UnsafeSocket(f"{path}: the folder's path is too long for a Unix socket; use a shorter one")
    return private


def _check_path(path: Path, mode: int) -> None:
    if not path.is_absolute():
        raise UnsafeSocket(f"{path}: must be an absolute path")
    if len(os.fsencode(path)) > MAX_PATH:
        raise UnsafeSocket(f"{path}: is longer than {MAX_PATH} bytes, the limit for a Unix socket")
    if mode & ~0o770 or mode & 0o600 != 0o600:
        raise UnsafeSocket(f"{path}: mode {mode:04o} is not allowed; use 0600, or 0660 for a group")


def _check_folders(parent: Path) -> None:
    """The folder and each folder above it: whoever may rename one of them could substitute a socket."""
    try:
        status = parent.stat()
    except OSError as error:
        raise UnsafeSocket(f"{parent}: {error.strerror}; create it first: install -d -m 0700 {parent}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeSocket(f"{parent}: is not a folder")
    try:
        Writers(frozenset({0, os.geteuid()}), read_only_passes=False).judge_path(parent)
    except Unsafe as unsafe:
        raise UnsafeSocket(str(unsafe)) from None
    except OSError as error:
        raise UnsafeSocket(f"{error.filename or parent}: {error.strerror}") from None


def _inode(path: Path) -> tuple[int, int] | None:
    """Device and inode of the path, or None if it does not exist."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _check_vacant(path: Path) -> tuple[int, int] | None:
    """Device and inode of a stale socket at the path, or None if it is vacant; raises ``UnsafeSocket`` otherwise."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        raise UnsafeSocket(f"{path}: exists and is not a socket; move it away")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return status.st_dev, status.st_ino
        except OSError as error:
            raise UnsafeSocket(f"{path}: cannot tell whether it is stale ({error}); remove it") from None
    raise _in_use(path)


def _in_use(path: Path) -> UnsafeSocket:
    return UnsafeSocket(f"{path}: another process listens on it; stop it, or configure another path")
