"""Tunes the C library's allocator for a daemon with several threads, large buffers and a full cache.

By default glibc creates up to eight heaps per processor and, once a large block has been freed, allocates later blocks
of that size from the heaps too. The store's buffers (blocks of 1 MiB) and its cache (blocks of 4 KiB) then share heaps,
and fragmentation keeps the memory from ever being returned.
"""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # parameter numbers from malloc.h; see mallopt(3)
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGE: Final = 512 << 10
_SPARE: Final = 8 << 20
_HEAPS: Final = 2


def bound_heaps() -> bool:
    """Makes glibc map and unmap large blocks individually, use few heaps, and trim them.

    For this process, before its threads start. False where the C library lacks these settings, which only costs memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _SPARE), (_ARENA_MAX, _HEAPS))
    return all(mallopt(name, value) == 1 for name, value in settings)
