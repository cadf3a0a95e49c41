"""Small and read-only file systems; a test that needs one skips with the reason where mounting is not permitted."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small(folder: Path, mebibytes: int) -> Iterator[None]:
    """The folder with what is in it, on a file system of its own."""
    aside = folder.with_name(folder.name + "-aside")
    shutil.copytree(folder, aside)
    _mount("-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "tmpfs", str(folder))
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder, mounted over itself for reading."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


def fill(folder: Path) -> Path:
    """A file that takes all the space there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return filler
