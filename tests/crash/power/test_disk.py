"""The disk under the tests: it notes what RocksDB and the head file ask for, and cuts what they did not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.power.disk import Disk, Tail
from tests.harness import ROOT

pytestmark = pytest.mark.xdist_group("power")

STORE = """
import asyncio, sys
from pathlib import Path
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

async def main():
    folder = Path(sys.argv[1])
    for _ in range(2):
        store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
        for n in range(50):
            await (await store.commit([], [record(put(("thing", n), n=n))])).durable()
        await store.close()

asyncio.run(main())
"""


@pytest.fixture
def disk(tmp_path: Path, shim: Path) -> Disk:
    root = tmp_path / "data"
    root.mkdir()
    return Disk(root, tmp_path / "notes", shim)


def run(disk: Disk, program: str, *, writes: bool = False) -> None:
    """A Python program under the library, with the folder as its argument."""
    env = {**os.environ, **disk.environment(writes=writes), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program, str(disk.root)], env=env, check=True, timeout=60)


def test_every_byte_of_the_logs_is_seen_to_be_written_and_synced(disk: Disk) -> None:
    """Whatever RocksDB writes with, the library sees it: else a missing sync could hide."""
    run(disk, STORE, writes=True)
    written: dict[str, int] = {}
    synced: dict[str, int] = {}
    for what, inode, *rest in disk.events():
        if what == "write":
            written[inode] = written.get(inode, 0) + int(rest[0])
        elif what == "sync":
            synced[inode] = int(rest[0])
    checked = 0
    for file in (disk.root / "store").iterdir():
        inode = str(file.stat().st_ino)
        if file.suffix in (".log", ".sst") or file.name.startswith("MANIFEST"):
            assert written.get(inode, 0) >= file.stat().st_size, file
            checked += inode in synced and synced[inode] == file.stat().st_size > 0
    assert checked >= 3
    heads = [event for event in disk.events() if event[0] == "sync" and event[3].endswith("/head")]
    assert len(heads) == 2 * 51  # one a group, and one an open


def test_what_was_synced_survives_and_nothing_else(disk: Disk) -> None:
    run(
        disk,
        """
import os, sys
os.chdir(sys.argv[1])
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
for name in ("kept", "nameless", "grown", "old"):
    with open(name, "wb") as file:
        file.write(b"a" * 100); file.flush(); os.fsync(file.fileno())
    if name != "nameless":
        sync(".")
with open("grown", "ab") as file:
    file.write(b"b" * 50)
with open("kept", "r+b") as file:
    file.write(b"c")
os.rename("old", "new")
os.mkdir("folder")
""",
    )
    loss = disk.cut()
    found = {path.name: path.read_bytes() for path in disk.root.iterdir() if path.is_file()}
    # "nameless" was synced, then the folder for "grown": that made its name durable too.
    assert found == dict.fromkeys(("kept", "nameless", "grown", "old"), b"a" * 100)
    assert loss.bytes == 51
    assert loss.names == ["mkdir folder", "rename old"]


@pytest.mark.parametrize("tail", Tail)
def test_a_removed_file_comes_back_and_a_tail_may_be_torn(disk: Disk, tail: Tail) -> None:
    run(
        disk,
        """
import os, sys
os.chdir(sys.argv[1])
fd = os.open(".", os.O_RDONLY)
with open("gone", "wb") as file:
    file.write(b"a" * 100); file.flush(); os.fsync(file.fileno())
with open("torn", "wb") as file:
    file.write(b"a" * 100); file.flush(); os.fsync(file.fileno()); file.write(b"b" * 100)
with open("never", "wb") as file:
    file.write(b"x")
os.fsync(fd)
os.unlink("gone")
""",
    )
    disk.cut(tail, seed=1)
    assert (disk.root / "gone").read_bytes() == b"a" * 100
    torn = (disk.root / "torn").read_bytes()
    assert torn[:100] == b"a" * 100
    assert set(torn[100:]) <= {Tail.GONE: set(), Tail.TORN: {98}, Tail.ZEROS: {0}}[tail]
    assert (disk.root / "never").stat().st_size <= 1


def test_a_call_fails_on_order_and_heals(disk: Disk) -> None:
    disk.fail("fsync", "data/one", errno.EIO, skip=1, count=1)
    run(
        disk,
        """
import errno, os, sys
os.chdir(sys.argv[1])
with open("one", "wb") as one, open("two", "wb") as two:
    os.fsync(one.fileno())
    os.fsync(two.fileno())
    try:
        os.fsync(one.fileno())
    except OSError as error:
        assert error.errno == errno.EIO
    else:
        raise SystemExit("it did not fail")
    os.fsync(one.fileno())
""",
    )
    assert [event[0] for event in disk.events()].count("fault") == 1
