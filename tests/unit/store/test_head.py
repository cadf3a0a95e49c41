"""The head file, byte by byte. A torn write spoils the older slot only."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kblockd.store.head import Head, HeadFile, read_head
from kblockd.store.protocol import StoreRefused

ROOT = bytes(range(32))


def head_file(folder: Path) -> HeadFile:
    return HeadFile.create(folder / "head", Head(1, 1, 0, 5, ROOT))


def test_the_layout_is_that_of_the_drawing(tmp_path: Path) -> None:
    file = head_file(tmp_path)
    file.write(258, 772, ROOT)
    file.close()
    content = (tmp_path / "head").read_bytes()
    body = (
        b"KBHEAD01"
        + (2).to_bytes(8, "big")
        + (1).to_bytes(8, "big")
        + (258).to_bytes(8, "big")
        + (772).to_bytes(8, "big")
        + ROOT
    )
    assert len(content) == 8192
    assert content[:104] == body + hashlib.sha256(body).digest()
    assert content[4096:4104] == b"KBHEAD01"
    assert not content[104:4096].strip(b"\0")


def test_slots_alternate_and_the_highest_counts(tmp_path: Path) -> None:
    file = head_file(tmp_path)
    for size in range(1, 8):
        head = file.write(size, size * 10, ROOT)
        assert head == Head(size + 1, 1, size, size * 10, ROOT)
        assert read_head(tmp_path / "head") == head
    assert file.write(7, 70, ROOT, incarnation=2).incarnation == 2
    file.close()
    again = HeadFile.open(tmp_path / "head")
    assert again.head == Head(9, 2, 7, 70, ROOT)
    assert again.write(8, 80, ROOT).incarnation == 2
    again.close()


@pytest.mark.parametrize("cut", range(0, 104, 7))
def test_a_torn_slot_leaves_the_one_before(tmp_path: Path, cut: int) -> None:
    file = head_file(tmp_path)
    before = file.write(3, 30, ROOT)
    older = (tmp_path / "head").read_bytes()
    file.write(4, 40, bytes(32))
    file.close()
    torn = bytearray((tmp_path / "head").read_bytes())
    slot = 4096
    assert older[slot : slot + 104] != torn[slot : slot + 104]
    torn[slot + cut : slot + 104] = older[slot + cut : slot + 104]
    (tmp_path / "head").write_bytes(torn)
    assert read_head(tmp_path / "head") == before


@pytest.mark.parametrize("position", [0, 4096])
def test_each_flipped_bit_invalidates_its_slot(tmp_path: Path, position: int) -> None:
    file = head_file(tmp_path)
    file.write(3, 30, ROOT)
    file.close()
    sound = (tmp_path / "head").read_bytes()
    other = read_head(tmp_path / "head") if position else Head(1, 1, 0, 5, ROOT)
    for at in range(position, position + 104):
        flipped = bytearray(sound)
        flipped[at] ^= 1
        (tmp_path / "head").write_bytes(flipped)
        assert read_head(tmp_path / "head") == other


@pytest.mark.parametrize("content", [b"", bytes(8192), b"KBHEAD01" * 1024, b"KBHEAD01"])
def test_two_invalid_slots_are_refused_with_the_next_step(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "head").write_bytes(content)
    with pytest.raises(StoreRefused, match=r"both slots of the head file are invalid.*restore"):
        HeadFile.open(tmp_path / "head")
