"""The wall clock of a whole process, and of its children: everything that reads it, in whatever library."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from tests.crash.power.disk import build_shim

SOURCE = Path(__file__).parents[2] / "crash" / "shim" / "wall.c"


class Wall:
    """For a process that is started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._shim = build_shim(folder, SOURCE)
        self._path = folder / "wall"
        self._path.write_bytes(bytes(8))
        with self._path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 8)

    @property
    def environment(self) -> dict[str, str]:
        """The library is loaded at the start of the process."""
        return {"LD_PRELOAD": str(self._shim), "KBLOCK_WALL": str(self._path)}

    def set_by(self, seconds: float) -> None:
        """From now on, against the machine's own."""
        self._mapped[:] = struct.pack("=q", int(seconds))
