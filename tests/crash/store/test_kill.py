"""SIGKILL inside a commit and at random instants. kblockd/execution/README.md#failpoints, at the level of the store."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import StoreRefused
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record
from tests.crash.store.process import PROJECT, Line, check_kept, run_until_killed, spawn


def acknowledged(lines: list[Line]) -> int:
    return sum(1 for line in lines if "ack" in line)


@pytest.mark.parametrize("place", ["written", "flushed", "headed"])
@pytest.mark.parametrize("label", ["decide", "mark_sent", "seal"])
async def test_led_01_a_kill_inside_a_commit_loses_nothing_that_was_acknowledged(
    tmp_path: Path, label: str, place: str
) -> None:
    """LED-01: three kills in a row at one arrow, each after a start of its own."""
    lines: list[Line] = []
    for round_, nth in enumerate((1, 7, 20), 1):
        new = run_until_killed(tmp_path, {"KBLOCKD_FAILPOINT": f"{label}:{place}=kill@{nth}"})
        assert new[0] == {"incarnation": 2 * round_ - 1, "clean": True}
        lines += new
        store = await check_kept(tmp_path, lines)
        assert not store.clean
        assert store.incarnation == 2 * round_
        await store.close()


async def test_led_01_kills_at_random_instants_lose_nothing(tmp_path: Path) -> None:
    """LED-01: ten kills over one directory."""
    chance = random.Random(11)
    lines: list[Line] = []
    for _ in range(10):
        limit = chance.randrange(1, 300)
        lines += run_until_killed(tmp_path, enough=lambda new, limit=limit: acknowledged(new) >= limit)
    assert acknowledged(lines) > 100
    store = await check_kept(tmp_path, lines)
    ticket = await store.commit([], [record(put(("thing", "after"), n=1))])
    await ticket.durable()
    await store.close()


async def test_led_06_a_second_open_is_refused_by_name_and_the_first_keeps_working(tmp_path: Path) -> None:
    """LED-06: directory and pid are named; the lock files stay."""
    with spawn(tmp_path) as process:
        assert process.stdout is not None
        assert b"incarnation" in process.stdout.readline()
        before = (tmp_path / "lock").stat().st_ino, (tmp_path / "store" / "LOCK").stat().st_ino
        for _ in range(2):
            with pytest.raises(StoreRefused) as raised:
                await RocksStore.open(tmp_path, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
            assert f"data_dir {tmp_path} is in use by process {process.pid}" in str(raised.value)
        assert before == ((tmp_path / "lock").stat().st_ino, (tmp_path / "store" / "LOCK").stat().st_ino)
        # A second daemon says the same; the first one goes on.
        with spawn(tmp_path) as second:
            _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"is in use by process {process.pid}".encode() in errors
        for _ in range(50):
            assert process.stdout.readline()
        process.kill()
        process.stdout.read()
        assert process.stderr is not None
        process.stderr.read()
    store = await check_kept(tmp_path, [])
    await store.close()


FAILING = """
import asyncio, resource, signal, sys
from pathlib import Path
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import StoreFailed
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold, put, record

async def main():
    reasons = []
    folder = Path(sys.argv[1])
    store = await RocksStore.open(
        folder, fold=fold, decode=decode, tree=MerkleTree(), on_failure=reasons.append, ballast_bytes=0
    )
    await (await store.commit([], [record(put(("thing", "kept"), n=1))])).durable()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    failed = 0
    for n in range(1000):
        try:
            await (await store.commit([], [record(put(("big", n), text="x" * 4096))])).durable()
        except StoreFailed as error:
            failed += 1
            unknown = error.unknown
            break
    assert failed == 1 and unknown and len(reasons) == 1, (failed, reasons)
    try:
        await store.get(("thing", "kept"))
    except StoreFailed as error:
        assert not error.unknown and "/" not in str(error)
    else:
        raise SystemExit("a failed store answered")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.close()
    print(n, flush=True)
    store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    assert not store.clean
    assert (await store.get(("thing", "kept"))) is not None
    for index in range(n):
        assert (await store.get(("big", index))) is not None, index
    await (await store.commit([], [record(put(("thing", "after"), n=1))])).durable()
    await store.close()

asyncio.run(main())
"""


def test_led_07_led_19_a_real_write_error_fails_the_store_and_the_next_start_is_normal(tmp_path: Path) -> None:
    """LED-07, LED-19: RocksDB's own error (no room in the log), unknown for its commit, no path in what is raised."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
