"""Verifying a ledger on disk: alone under the lock, or beside whoever holds it, without a false word either way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kblockd.cli import verification
from kblockd.cli.verification import LOOKS, verify_directory
from kblockd.domain.ledger import fold
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import Report
from kblockd.store.lock import DirectoryLock
from kblockd.store.protocol import Append, StoreRefused
from kblockd.store.rocks import RocksStore
from tests.records import Record, RecordType, filled

RECORDS = 3


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A closed ledger of three records."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    store = await RocksStore.open(folder, fold=fold, tree=MerkleTree(), ballast_bytes=0)
    for number in range(RECORDS):
        record = Record(
            RecordType.DAEMON_STARTED,
            "2026-11-29T12:00:00.000000Z",
            body=filled(RecordType.DAEMON_STARTED, instance=f"k-{number}"),
        )
        await (await store.commit((), [Append(record.leaf())])).durable()
    await store.close()
    return folder


@pytest.fixture
def held(data_dir: Path) -> Iterator[None]:
    """Somebody else has the folder."""
    lock = DirectoryLock(data_dir)
    yield
    lock.release()


def looks(monkeypatch: pytest.MonkeyPatch, *outcomes: Report | Exception | None) -> None:
    """What each look sees; None is the real look."""
    real: Callable[..., Report] = verification._verify
    left = list(outcomes)

    def look(*arguments: object) -> Report:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or real(*arguments)

    monkeypatch.setattr(verification, "_verify", look)


def differing(*where: str) -> Report:
    report = Report(size=RECORDS)
    for one in where:
        report.add(one, "differs")
    return report


def test_alone_the_folder_is_locked_and_one_look_decides(data_dir: Path) -> None:
    def progress(done: int, size: int) -> None:
        with pytest.raises(StoreRefused):
            DirectoryLock(data_dir)
        seen.append((done, size))

    seen: list[tuple[int, int]] = []
    found = verify_directory(data_dir, {}, progress)
    assert (found.ok, found.decided, found.looks, seen[-1]) == (True, True, 1, (RECORDS, RECORDS))
    DirectoryLock(data_dir).release()


def test_alone_a_fault_is_not_looked_at_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks(monkeypatch, differing("record 1"))
    found = verify_directory(data_dir, {}, None)
    assert (found.ok, found.decided, found.looks) == (False, True, 1)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("first", [Exception("no such file: 000012.sst"), differing("record 2")])
def test_beside_a_daemon_a_moment_in_between_is_no_alarm(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, first: Report | Exception
) -> None:
    waits: list[float] = []
    looks(monkeypatch, first, None)
    found = verify_directory(data_dir, {}, None, waits.append)
    assert (found.ok, found.looks, len(waits)) == (True, 2, 1)
    assert found.report is not None
    assert found.report.size == RECORDS


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    "seen",
    [
        [Exception("gone")] * LOOKS,
        [differing("record 1"), differing("record 2"), differing("record 3")],
        [differing("record 1"), Exception("gone"), differing("record 1")],
    ],
)
def test_beside_a_daemon_what_it_may_explain_is_neither_verified_nor_refuted(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Report | Exception]
) -> None:
    looks(monkeypatch, *seen)
    found = verify_directory(data_dir, {}, None, lambda seconds: None)
    assert (found.ok, found.decided, found.looks) == (False, False, LOOKS)


@pytest.mark.usefixtures("held")
def test_beside_a_daemon_the_same_difference_every_time_is_real(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(monkeypatch, differing("record 1", "row x"), differing("record 1"), differing("record 1", "row y"))
    found = verify_directory(data_dir, {}, None, lambda seconds: None)
    assert (found.ok, found.decided) == (False, True)


def test_without_a_ledger_nothing_is_made_and_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="check data_dir"):
        verify_directory(tmp_path, {}, None)
    assert not list(tmp_path.iterdir())
