"""A failed write or flush is neither yes nor no, and the store answers nothing after it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kblockd.domain.failpoints import FailpointError
from kblockd.ledger.merkle import MerkleTree
from kblockd.store import opening
from kblockd.store.committer import Group
from kblockd.store.head import Head, HeadFile
from kblockd.store.pending import Overlay
from kblockd.store.protocol import Absent, Append, Key, Read, Row, StoreFailed, StoreUnreadable
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import fold, put, record

A: Key = ("thing", "a")


class Failing:
    """Holds one point and, as soon as it may, fails it or goes on; the others are noted."""

    def __init__(self, point: str, fails: bool = True) -> None:
        self._point = point
        self._fails = fails
        self.reached: list[str] = []
        self.there = threading.Event()
        self.go_on = threading.Event()

    async def reach(self, point: str) -> None:
        raise AssertionError(point)

    def reach_blocking(self, point: str) -> None:
        self.reached.append(point)
        if point == self._point:
            self.there.set()
            assert self.go_on.wait(60)
            if self._fails:
                raise FailpointError(point)


class FailingTree(MerkleTree):
    """Fails before anything is written."""

    def append(self, first_index: int, leaves: Sequence[bytes]) -> list[tuple[Key, bytes]]:
        if first_index:
            raise ValueError("no more")
        return super().append(first_index, leaves)


async def opened(folder: Path, **options: Any) -> RocksStore:
    arguments: dict[str, Any] = {"fold": fold, "tree": MerkleTree(), "ballast_bytes": 0, **options}
    return await RocksStore.open(folder, **arguments)


async def refused(call: Callable[[], Any]) -> StoreFailed:
    with pytest.raises(StoreFailed) as raised:
        await call()
    return raised.value


@pytest.mark.parametrize("place", ["written", "flushed", "headed"])
async def test_led_17_members_learn_unknown_and_later_commits_a_definite_no(tmp_path: Path, place: str) -> None:
    """kblockd/store/README.md#a-failed-write. Nothing goes on as if the record were there."""
    reasons: list[str] = []
    points = Failing(f"mark_sent:{place}")
    store = await opened(tmp_path, failpoints=points, on_failure=reasons.append)
    before = await store.commit([], [record(put(("thing", "before"), n=0))], label="decide")
    await asyncio.sleep(0)
    # While that is written, these gather in the next group.
    one = await store.commit([], [record(put(A, n=1))], label="mark_sent")
    two = await store.commit([], [record(put(("thing", "b"), n=1))])
    reader = asyncio.create_task(store.get(A))
    loser = asyncio.create_task(store.commit([Absent(A)], [record()]))
    await asyncio.to_thread(points.there.wait)
    await before.durable()
    still_open = await store.commit([], [record(put(("thing", "c"), n=1))])
    points.go_on.set()
    assert (await refused(one.durable)).unknown
    assert (await refused(two.durable)).unknown
    assert not (await refused(still_open.durable)).unknown
    assert (await refused(one.durable)).unknown
    # For those who only read, no commit of theirs is in question.
    for task in (reader, loser):
        with pytest.raises(StoreFailed) as raised:
            await task
        assert not raised.value.unknown
    await _answers_nothing(store)
    assert reasons == [f"FailpointError: mark_sent:{place}"]
    assert store.size() == 1
    await store.close()
    await store.close()
    # The next start decides from disk: the group was written, so it is there.
    again = await opened(tmp_path)
    assert not again.clean
    assert again.size() == 3
    assert await again.get(("thing", "c")) is None
    await again.close()


async def _answers_nothing(store: RocksStore) -> None:
    for call in (
        lambda: store.get(("thing", "before")),
        lambda: store.scan(("thing",)),
        lambda: store.payload(("payload", "x", "y")),
        lambda: store.leaf(0),
        lambda: store.raw(("node", 0, 0)),
        lambda: store.commit([], [record()]),
        lambda: store.delete_payload(("payload", "x", "y")),
        lambda: store.backup("/nonexistent"),
    ):
        assert not (await refused(call)).unknown


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "goes on"])
@pytest.mark.parametrize("ending", ["stop", "unreadable"])
async def test_led_17_a_store_that_ends_during_a_write_still_writes_what_is_ordered(
    tmp_path: Path, ending: str, fails: bool
) -> None:
    """The one time that a group is queued behind another: it follows, unless the first one fails. Nobody hangs, and
    each failure is told: a write that fails after a read says more."""
    points, reasons = Failing("mark_sent:written", fails), []
    store = await opened(tmp_path, fold=unreadable, failpoints=points, on_failure=reasons.append)
    first = await store.commit([], [record(put(A, n=1))], label="mark_sent")
    await asyncio.to_thread(points.there.wait)
    second = await store.commit([], [record(put(("thing", "b"), n=1))])
    if ending == "unreadable":
        await refused(lambda: store.commit([], [Append(b"unreadable")]))
    closing = asyncio.create_task(store.close())
    for _ in range(3):
        await asyncio.sleep(0)
    # Whoever goes on from here is refused, and joins no group that nobody hands over.
    assert not (await refused(lambda: store.commit([], [record()]))).unknown
    points.go_on.set()
    if fails:
        assert (await refused(first.durable)).unknown
        assert not (await refused(second.durable)).unknown
    else:
        await first.durable()
        await second.durable()
    await closing
    told = {"the store cannot be read": ending == "unreadable", "FailpointError: mark_sent:written": fails}
    assert [reason.partition(": made up")[0] for reason in reasons] == [reason for reason, due in told.items() if due]
    again = await opened(tmp_path)
    assert again.size() == (1 if fails else 2)
    assert again.clean is (ending == "stop" and not fails)
    await again.close()


def unreadable(read: Read, index: int, leaf: bytes) -> Sequence[tuple[Key, Row | None]]:
    """The fold of the suite, and a record that meets damage."""
    if leaf == b"unreadable":
        raise StoreUnreadable("made up")
    return fold(read, index, leaf)


async def test_a_failure_before_the_write_is_a_definite_no(tmp_path: Path) -> None:
    reasons: list[str] = []
    store = await opened(tmp_path, tree=FailingTree(), on_failure=reasons.append)
    await (await store.commit([], [record(put(A, n=1))])).durable()
    ticket = await store.commit([], [record(put(A, n=2))])
    assert not (await refused(ticket.durable)).unknown
    assert reasons == ["ValueError: no more"]
    await store.close()
    again = await opened(tmp_path)
    assert await again.get(A) == (0, {"n": 1, "records": [0]})
    await again.close()


async def test_failpoints_are_reached_once_for_each_label_of_a_batch(tmp_path: Path) -> None:
    points = Failing("")
    store = await opened(tmp_path, failpoints=points)
    for label in ("consume", "mark_sent", "consume", ""):
        ticket = await store.commit([], [record()], label=label)
    await ticket.durable()
    assert points.reached == [
        f"{label}:{place}" for place in ("written", "flushed", "headed") for label in ("consume", "mark_sent")
    ]
    await store.close()


async def test_a_backup_that_cannot_be_written_does_not_fail_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    target = tmp_path / "copy"
    real = opening.HeadFile.create

    def full(path: Path, head: Head) -> HeadFile:
        if path.parent == target:
            raise OSError(errno.ENOSPC, "no space left")
        return real(path, head)

    monkeypatch.setattr(opening.HeadFile, "create", full)
    with pytest.raises(OSError, match="no space left"):
        await store.backup(str(target))
    await (await store.commit([], [record(put(A, n=1))])).durable()
    await store.close()


async def test_a_defect_among_the_answers_fails_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on disk is not what the loop believes any more. Nobody waits for a group that is never handed over."""
    reasons: list[str] = []
    store = await opened(tmp_path, on_failure=reasons.append)

    def defect(overlay: Overlay, group: Group) -> None:
        raise KeyError("made up")

    monkeypatch.setattr(Overlay, "settle", defect)
    written = await store.commit([], [record(put(A, n=1))])
    await asyncio.sleep(0)
    next_one = await store.commit([], [record()])
    assert (await refused(written.durable)).unknown
    assert not (await refused(next_one.durable)).unknown
    await _answers_nothing(store)
    assert reasons == ["KeyError: 'made up'"]
    await store.close()
    again = await opened(tmp_path)
    assert not again.clean
    assert again.size() == 1
    await again.close()


class Panic(BaseException):
    """As ``pyo3_runtime.PanicException``: no ``Exception``."""


async def test_led_17_a_panic_below_python_fails_the_store_as_well(tmp_path: Path) -> None:
    """LED-17: nobody waits for ever for a thread that has ended without a word."""
    reasons: list[str] = []

    class Panicking(Failing):
        def reach_blocking(self, point: str) -> None:
            if point.endswith(":written"):
                raise Panic("called `Option::unwrap()` on a `None` value")

    store = await opened(tmp_path, failpoints=Panicking(""), on_failure=reasons.append)
    ticket = await store.commit([], [record(put(A, n=1))], label="mark_sent")
    async with asyncio.timeout(30):
        assert (await refused(ticket.durable)).unknown
        await store.close()
    assert len(reasons) == 1
    assert "Panic" in reasons[0]


async def test_a_signature_that_cannot_be_made_fails_the_write(tmp_path: Path) -> None:
    """Nothing is written, and nobody goes on as if the record were signed."""
    reasons: list[str] = []
    store = await opened(tmp_path, on_failure=reasons.append)
    await (await store.commit([], [record(put(A, n=0))])).durable()

    def unable() -> bytes:
        raise OSError("the key is gone")

    leaf = record(put(A, n=1)).leaf
    ticket = await store.commit([], [Append(leaf, sign=unable)])
    with pytest.raises(StoreFailed) as failed:
        await ticket.durable()
    assert not failed.value.unknown
    assert "the key is gone" in reasons[0]
    await refused(lambda: store.get(A))
    await store.close()
    again = await opened(tmp_path)
    assert again.size() == 1
    await again.close()


async def test_what_signs_is_called_once_by_the_thread_that_writes(tmp_path: Path) -> None:
    threads: list[str] = []

    def sign() -> bytes:
        threads.append(threading.current_thread().name)
        return b"signed"

    store = await opened(tmp_path)
    await (await store.commit([], [Append(record(put(A, n=1)).leaf, sign=sign)])).durable()
    found = await store.leaf(0)
    assert found is not None
    assert (found.aux, threads) == (b"signed", ["kblockd-committer"])
    await store.close()
