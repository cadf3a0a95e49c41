"""The allocator's settings, seen in a process of its own: they are the process's, for good."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

SEEN = """
import ctypes, sys, threading
from kblockd.allocator import bound_heaps

class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Figures
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "bound":
    assert bound_heaps()

libc.free(libc.malloc(16 << 20))  # from here on glibc by itself takes whatever is smaller from a heap
before = libc.mallinfo2().hblks
kept = [libc.malloc(1 << 20) for _ in range(4)]
print(libc.mallinfo2().hblks - before)

together = threading.Barrier(9)
def allocate():
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
together.wait()
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[2]).read().count("<heap "))
"""


@pytest.mark.parametrize(("how", "mapped", "heaps"), [("bound", 4, [2]), ("as it is", 0, range(3, 10))])
def test_large_pieces_are_mapped_and_heaps_are_few(tmp_path: Path, how: str, mapped: int, heaps: Sequence[int]) -> None:
    """So that a write buffer of the store goes back to the system as a whole, and the cache's room is used again,
    whichever thread made it. The other case shows what glibc does by itself."""
    command = [sys.executable, "-c", SEEN, how, str(tmp_path / "heaps.xml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    seen = [int(line) for line in done.stdout.splitlines()]
    assert seen[0] == mapped
    assert seen[1] in heaps
