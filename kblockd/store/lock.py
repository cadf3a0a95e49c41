"""The lock of a data directory: one daemon owns it (LED-06).

``flock`` on a file that is never deleted, so that a second open can neither weaken the first one's lock nor race with
a removal. The kernel releases the lock with the process, however it ends. The file holds the pid, for messages, and a
random token, by which a command knows which process it would signal: pids are reused, in a container at every start.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kblockd.store.protocol import StoreRefused


def holder(data_dir: Path) -> int | None:
    """The pid of the process that holds the directory (it wrote its pid and has the file open), or None.

    Does not try the lock: a successful try would hold it for a moment, and a daemon starting then would give up.
    """
    path = data_dir / "lock"
    try:
        pid = int(path.read_text("ascii").split()[0])
        os.kill(pid, 0)
        if not Path("/proc/self/fd").is_dir():
            return pid
        return pid if any(_same_file(path, each) for each in Path(f"/proc/{pid}/fd").iterdir()) else None
    except (OSError, ValueError, IndexError):
        return None


def holder_token(data_dir: Path) -> str:
    """Different for every holder there has ever been; empty if there was none. The holder may have exited."""
    try:
        return (data_dir / "lock").read_text("ascii")
    except (OSError, ValueError):
        return ""


def _same_file(path: Path, descriptor: Path) -> bool:
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
        """Releases the directory; the file stays."""
        os.close(self._descriptor)
