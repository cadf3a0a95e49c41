"""SIGKILL alone loses nothing, because the kernel keeps what was written; so the files are cut back to what was synced.

Without the sync of the log or of the head these tests fail; the kill tests would not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.crash.store.process import check_kept, run_until_killed

COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler: the shim that notes syncs cannot be built")
    target = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True)
    return target


def cut_power(folder: Path, synced: Path) -> int:
    """Cuts every file back to its last sync; returns the number of bytes that were taken away."""
    lost = 0
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        status = file.stat()
        try:
            line, _, content = (synced / str(status.st_ino)).read_bytes().partition(b"\n")
        except FileNotFoundError:
            line, content = b"0 ", b""
        size = int(line.split(b" ", 1)[0])
        if file.name == "head":
            lost += file.read_bytes() != content
            file.write_bytes(content)
        elif size < status.st_size:
            lost += status.st_size - size
            os.truncate(file, size)
    return lost


@pytest.mark.parametrize(
    "failpoint",
    ["mark_sent:written=kill@9", "mark_sent:flushed=kill@9", "seal:headed=kill@9", "decide:written=kill"],
)
async def test_led_01_nothing_acknowledged_is_lost_when_every_file_is_cut_back(
    tmp_path: Path, shim: Path, failpoint: str
) -> None:
    """LED-01, twice over one directory: the second start runs on what the first cut left."""
    folder, synced = tmp_path / "data", tmp_path / "synced"
    folder.mkdir()
    synced.mkdir()
    environment = {"LD_PRELOAD": str(shim), "KBLOCK_SYNCED": str(synced), "KBLOCKD_FAILPOINT": failpoint}
    lines = run_until_killed(folder, environment)
    lost = cut_power(folder, synced)
    # A kill between write and flush leaves bytes that only the kernel had: the cut is seen to cut.
    assert lost > 0 or "written" not in failpoint
    lines += run_until_killed(folder, environment)
    cut_power(folder, synced)
    store = await check_kept(folder, lines)
    await store.close()
