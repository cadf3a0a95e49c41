"""The C library's allocator, told what a daemon of some threads, large buffers and a full cache needs.

By itself glibc opens up to eight heaps a processor and, once a large piece was freed, puts pieces of that size into
them, too. The store's buffers (pieces of 1 MiB) and its cache (of 4 KiB) then share heaps, whoever frees what, and what
lies between is kept for good.
"""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # the numbers of malloc.h; see mallopt(3)
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGE: Final = 512 << 10
_SPARE: Final = 8 << 20
_HEAPS: Final = 2


def bound_heaps() -> bool:
    """Large pieces are mapped and given back one by one; few heaps, of which the ends are given back.

    For this process, before its threads start. False where the C library has no such settings: that costs memory alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _SPARE), (_ARENA_MAX, _HEAPS))
    return all(mallopt(name, value) == 1 for name, value in settings)
