"""The durable rows that are remembered: as many as the bound says, and those that change again and again among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Rdict

from kblockd.store import pending, schema
from kblockd.store.committer import Group
from kblockd.store.database import open_writable
from kblockd.store.pending import Overlay
from kblockd.store.protocol import Key

BOUND = 4
HOT: Key = ("thing", "hot")
ROW = {"n": 1, "records": []}


class Looked:
    """The real database; what is looked for in it is noted."""

    def __init__(self, database: Rdict) -> None:
        self._database = database
        self.keys: list[Key] = []

    def get(self, key: bytes) -> bytes | None:
        self.keys.append(schema.decode_key(key))
        found: bytes | None = self._database.get(key)
        return found


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    monkeypatch.setattr(pending, "_CACHED_ROWS", BOUND)
    database = open_writable(tmp_path / "store", create=True)
    yield Looked(database)
    database.close()


def settled(overlay: Overlay, *keys: Key) -> None:
    """One group that writes these rows is durable."""
    group = Group(number=0, first_index=0)
    for key in keys:
        overlay.put_rows({key: (1, ROW)}, group)
    overlay.settle(group)


def test_a_row_that_changes_again_and_again_stays(looked: Looked) -> None:
    """However old its first change is: the others, which changed once, make room before it."""
    overlay = Overlay(looked)
    for number in range(3 * BOUND):
        settled(overlay, HOT, ("thing", number))
        assert overlay.row(HOT) == (1, ROW)
    assert looked.keys == []


def test_no_more_are_remembered_than_the_bound_says(looked: Looked) -> None:
    overlay = Overlay(looked)
    keys: list[Key] = [("thing", number) for number in range(BOUND + 1)]
    settled(overlay, *keys)
    assert [overlay.row(key) for key in keys[1:]] == [(1, ROW)] * BOUND
    assert looked.keys == []
    overlay.row(keys[0])
    assert looked.keys == keys[:1]


def test_what_is_not_there_is_looked_for_once(looked: Looked) -> None:
    """And pushes out no more than one other."""
    overlay = Overlay(looked)
    settled(overlay, *[("thing", number) for number in range(BOUND)])
    assert (overlay.row(HOT), overlay.row(HOT)) == (None, None)
    assert overlay.row(("thing", 1)) == (1, ROW)
    assert looked.keys == [HOT]
