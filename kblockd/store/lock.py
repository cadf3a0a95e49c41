"""The lock of a data directory: one daemon owns it (LED-06).

``flock`` on a file that is never deleted, so that a second open can neither weaken the first one's lock nor race with
a removal. The kernel drops the lock with the process, however it ends. Inside stand its pid, for messages, and a word
that no other life of a daemon has, by which a command knows whom it would signal: a pid comes again, in a container at
every start.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kblockd.store.protocol import StoreRefused


def holder(data_dir: Path) -> int | None:
    """The process that holds the directory, None for none: it wrote its id, and it has the file open.

    The lock itself is not tried: whoever tries holds it for a moment, and a daemon that starts then would give up.
    """
    path = data_dir / "lock"
    try:
        pid = int(path.read_text("ascii").split()[0])
        os.kill(pid, 0)
        if not Path("/proc/self/fd").is_dir():
            return pid
        return pid if any(_is(path, each) for each in Path(f"/proc/{pid}/fd").iterdir()) else None
    except (OSError, ValueError, IndexError):
        return None


def life(data_dir: Path) -> str:
    """Another word for each holder that ever was; empty where nobody was. The holder may have ended."""
    try:
        return (data_dir / "lock").read_text("ascii")
    except (OSError, ValueError):
        return ""


def _is(path: Path, descriptor: Path) -> bool:
    try:
        return path.samefile(descriptor)
    except OSError:
        return False


class DirectoryLock:
    """Held from construction until ``release``; raises ``StoreRefused`` naming the folder and the holder."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / "lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = next(iter(os.pread(self._descriptor, 32, 0).decode("ascii", "replace").split()), "unknown")
            os.close(self._descriptor)
            raise StoreRefused(
                f"data_dir {data_dir} is in use by process {holder} (it holds {path}). "
                "Next step: stop that daemon, or give this one a data_dir of its own."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n{os.urandom(8).hex()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the folder free; the file stays."""
        os.close(self._descriptor)
