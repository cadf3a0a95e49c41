"""How often a process syncs: a preloaded library counts (``syncs.c``), at the cost of one addition."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("syncs.c")
_COUNTERS: Final = struct.Struct("=QQ")


class Syncs:
    """The counters of the processes that are started with ``environment``; without a C compiler there are none."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "syncs"
        self._file.write_bytes(bytes(_COUNTERS.size))
        library = folder / "syncs.so"
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        self.environment: dict[str, str] = {}
        if compiler is not None:
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE], check=True)
            self.environment = {"LD_PRELOAD": str(library), "BENCH_SYNCS": str(self._file)}

    def count(self) -> int | None:
        """fdatasyncs and fsyncs so far; None when nobody counts."""
        return sum(_COUNTERS.unpack(self._file.read_bytes())) if self.environment else None
