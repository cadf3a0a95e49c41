"""The child before it execs OPA: ties its lifetime to the daemon's, sets its limits, and execs.

Started as ``python -I -m kblockd.policy.opa.launch PARENT_PID MEMORY_MIB OPA ARGUMENTS...`` in a session of its own
with an empty environment. Both ties survive ``exec``; a function run between fork and exec in a parent with threads
could deadlock.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def main(arguments: list[str]) -> None:
    """Never returns; raises ``OSError`` when a limit cannot be set. A program that cannot be run is told in a sentence:
    what is said here is what the operator reads."""
    parent, memory_mib, program, *rest = arguments
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit(0)
    memory = int(memory_mib) << 20
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # Not the address space: Go reserves far more of it than it ever uses.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    environment = {"GOMEMLIMIT": f"{memory * 3 // 4}", "HOME": "/nonexistent"}
    try:
        os.execve(program, [program, *rest], environment)  # noqa: S606  # no shell is the point
    except OSError as error:
        sys.exit(f"{program} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
