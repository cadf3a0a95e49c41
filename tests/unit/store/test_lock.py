"""LED-06: the lock of a data directory, who holds it, and in which life."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.store.lock import DirectoryLock, holder, holder_token
from kblockd.store.protocol import StoreRefused


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[DirectoryLock]:
    """Of this process."""
    held = DirectoryLock(tmp_path)
    yield held
    held.release()


def test_led_06_the_holder_is_known_as_long_as_it_holds(tmp_path: Path) -> None:
    assert (holder(tmp_path), holder_token(tmp_path)) == (None, "")
    lock = DirectoryLock(tmp_path)
    assert holder(tmp_path) == os.getpid()
    with pytest.raises(StoreRefused, match=rf"in use by process {os.getpid()} \(it holds"):
        DirectoryLock(tmp_path)
    lock.release()
    assert holder(tmp_path) is None


def test_each_holder_has_a_life_of_its_own(tmp_path: Path) -> None:
    """The pid alone does not tell them apart: in a container it comes again at every start."""
    lives = []
    for _ in range(3):
        lock = DirectoryLock(tmp_path)
        lives.append(holder_token(tmp_path))
        lock.release()
        assert holder_token(tmp_path) == lives[-1]
    assert len(set(lives)) == 3


def test_a_lock_that_holds_a_pid_alone_is_read(tmp_path: Path, lock: DirectoryLock) -> None:
    """As earlier versions wrote it."""
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    assert (holder(tmp_path), holder_token(tmp_path)) == (os.getpid(), f"{os.getpid()}\n")
    with pytest.raises(StoreRefused, match=rf"in use by process {os.getpid()} \("):
        DirectoryLock(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b"x\n", b"\xff\n"])
def test_what_no_holder_wrote_names_nobody(tmp_path: Path, lock: DirectoryLock, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert holder(tmp_path) is None
    with pytest.raises(StoreRefused, match="in use by process"):
        DirectoryLock(tmp_path)
