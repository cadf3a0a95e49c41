"""The child's main: one Rego engine, one thread, one socket on descriptor 0.

Started as a fresh interpreter, ``python -I -m kblockd.policy.embedded.worker MEMORY_MIB PARENT_PID``, without the
parent's environment and descriptors. It limits itself before it reads a byte of policy: address space, no new
descriptors (so neither sockets nor files), no file growth, no core dump. It ends with its parent: by signal where the
kernel offers that, by the end of its stream everywhere.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from kblockd.policy.embedded import frames

Answer = Callable[[dict[str, Any], bytes], dict[str, Any]]
"""From the header and body of a request to the header of its reply."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def confine(memory_mib: int, parent: int) -> None:
    """Ends with the parent, and takes no more memory than it may; raises ``OSError`` when a limit cannot be set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def serve(arguments: list[str], answers: Callable[[], Answer]) -> None:
    """Answers frames until the stream ends. ``answers`` imports the engine and is called once the limits hold: the
    engine's allocator reserves its arena when it is imported."""
    confine(int(arguments[0]), int(arguments[1]))
    answer = answers()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    while (payload := frames.read_blocking(0)) is not None:
        frames.write_blocking(0, frames.pack(answer(*frames.unpack(payload))))


def _answers() -> Answer:
    from kblockd.policy.embedded.answers import Answers

    return Answers().answer


if __name__ == "__main__":
    serve(sys.argv[1:], _answers)
