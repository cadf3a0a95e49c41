"""What can happen to a data directory while no daemon runs, and what must come of it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

Deed = Callable[[Path, dict[str, Path]], None]
"""Does the damage to a data directory; knows the images, for older copies."""


class Fate(StrEnum):
    """What the next start does."""

    REFUSED = "refused"  # with the numbers and the next step
    WHOLE = "whole"  # nothing of what was damaged mattered: it serves, and everything is there
    UNSEEN = "unseen by the start"  # verification finds it, and so does whoever reads there
    OLDER = "an older truth"  # consistent in itself: only a checkpoint kept elsewhere shows it


@dataclass(frozen=True, slots=True)
class Damage:
    """``says`` must be in the refusal; ``verifies`` is what ``ledger verify`` must find (None: cannot be opened)."""

    name: str
    image: str
    deed: Deed
    fate: Fate
    says: str = ""
    verifies: bool = False
    lost: int | None = None
    """How many records an export cannot write; None when it depends on where RocksDB cut its blocks."""
    soak: bool = False
    """A variant of its neighbour, for long runs."""


def the(data: Path, pattern: str, *, largest: bool = True) -> Path:
    """The (largest or smallest) file of the store that matches."""
    found = sorted((data / "store").glob(pattern), key=lambda path: path.stat().st_size)
    return found[-1 if largest else 0]


def flip(path: Path, at: float | int, bit: int = 4) -> None:
    """One bit at an offset, or at a fraction of the file."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content)) if isinstance(at, float) else at] ^= 1 << bit
    path.write_bytes(content)


def cut(path: Path, take: int) -> None:
    """Takes bytes off the end."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - take)


def log(data: Path) -> Path:
    """The log with records in it."""
    return the(data, "*.log")


def last_record(path: Path) -> int:
    """Offset of the last record's header in a log of RocksDB: blocks of 32 KiB, header CRC, u16 length, type."""
    content, at, last = path.read_bytes(), 0, 0
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        (length,) = struct.unpack_from("<H", content, at + 4)
        last, at = at, at + 7 + length
    return last


def longer_last_record(data: Path, _: dict[str, Path]) -> None:
    """The length of the log's last record with one more bit: RocksDB takes it for a torn one and drops it."""
    file = log(data)
    at = last_record(file)
    (length,) = struct.unpack_from("<H", file.read_bytes(), at + 4)
    bit = next(bit for bit in range(14, -1, -1) if not length & 1 << bit)
    flip(file, at + 4 + bit // 8, bit % 8)


def in_store(pattern: str, at: float | int, *, largest: bool = True, bit: int = 4) -> Deed:
    """A flipped bit in a file of the store (an empty one is left alone)."""

    def spoil(data: Path, _: dict[str, Path]) -> None:
        file = the(data, pattern, largest=largest)
        if file.stat().st_size:
            flip(file, at, bit)

    return spoil


def without(pattern: str, *, largest: bool = True) -> Deed:
    """A deleted file of the store."""
    return lambda data, _: the(data, pattern, largest=largest).unlink()


def emptied(pattern: str) -> Deed:
    """A file of the store without content."""
    return lambda data, _: the(data, pattern).write_bytes(b"")


def gone(*names: str) -> Deed:
    """Parts of the data directory that are not there any more."""

    def remove(data: Path, _: dict[str, Path]) -> None:
        for name in names:
            path = data / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def older(*names: str) -> Deed:
    """Parts of the image of the stop under what came after it."""

    def replace(data: Path, images: dict[str, Path]) -> None:
        for name in names:
            path = data / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            source = images["stopped"] / name
            shutil.copytree(source, path) if source.is_dir() else shutil.copyfile(source, path)
            path.chmod(source.stat().st_mode & 0o777)

    return replace


def slots(*numbers: int) -> Deed:
    """A flipped bit in slots of the head file."""

    def spoil(data: Path, _: dict[str, Path]) -> None:
        for number in numbers:
            flip(data / "head", 4096 * number + 50)

    return spoil


REFUSED, WHOLE, UNSEEN, OLDER = Fate

MATRIX = [
    Damage(
        "last record of the log: one byte cut off", "killed", lambda d, _: cut(log(d), 1), REFUSED, "behind its head"
    ),
    Damage(
        "last record of the log: one bit of its length flipped",
        "killed",
        longer_last_record,
        REFUSED,
        "behind its head",
    ),
    Damage(
        "log: half cut off",
        "killed",
        lambda d, _: cut(log(d), log(d).stat().st_size // 2),
        REFUSED,
        "behind its head",
        soak=True,
    ),
    Damage("log: a bit flipped in the middle", "killed", lambda d, _: flip(log(d), 0.5), REFUSED, "cannot be opened"),
    Damage(
        "log: a bit flipped in the first record",
        "killed",
        lambda d, _: flip(log(d), 40),
        REFUSED,
        "cannot be opened",
        soak=True,
    ),
    Damage("log: deleted", "killed", lambda d, _: log(d).unlink(), REFUSED, "behind its head"),
    Damage("log: emptied", "killed", lambda d, _: log(d).write_bytes(b""), REFUSED, "behind its head", soak=True),
    Damage("manifest: a bit flipped at its beginning", "stopped", in_store("MANIFEST-*", 9), REFUSED, soak=True),
    Damage("manifest: a bit flipped in the middle", "stopped", in_store("MANIFEST-*", 0.5), REFUSED),
    Damage("manifest: a bit flipped at its end", "stopped", in_store("MANIFEST-*", -1), REFUSED, soak=True),
    Damage("manifest: deleted", "stopped", without("MANIFEST-*"), REFUSED, "cannot be opened", lost=0),
    Damage("manifest: emptied", "stopped", emptied("MANIFEST-*"), REFUSED, "cannot be opened", lost=0, soak=True),
    Damage("CURRENT: a bit flipped", "stopped", in_store("CURRENT", 4), REFUSED, "cannot be opened", lost=0),
    Damage("CURRENT: deleted", "stopped", without("CURRENT"), REFUSED, "cannot be opened", lost=0, soak=True),
    Damage("OPTIONS: a bit flipped", "stopped", in_store("OPTIONS-*", 0.5), WHOLE, verifies=True, lost=0),
    Damage("OPTIONS: deleted", "stopped", without("OPTIONS-*"), WHOLE, verifies=True, lost=0),
    Damage("IDENTITY: deleted", "stopped", without("IDENTITY"), WHOLE, verifies=True, lost=0, soak=True),
    Damage("table: a bit flipped in old records", "stopped", in_store("*.sst", 0.02), UNSEEN),
    Damage("table: a bit flipped in old records, after a kill", "killed", in_store("*.sst", 0.02), UNSEEN),
    Damage("table: a bit flipped in its footer", "stopped", in_store("*.sst", -20), REFUSED, soak=True),
    Damage("table: a bit flipped in the newest one", "stopped", in_store("*.sst", 0.05, largest=False), REFUSED),
    Damage("table: the oldest deleted", "stopped", without("*.sst"), REFUSED),
    Damage("table: the newest deleted", "stopped", without("*.sst", largest=False), REFUSED, soak=True),
    Damage("head: a bit flipped in slot 0", "killed", slots(0), WHOLE, verifies=True, lost=0),
    Damage("head: a bit flipped in slot 1", "killed", slots(1), WHOLE, verifies=True, lost=0, soak=True),
    Damage("head: a bit flipped in both slots", "killed", slots(0, 1), REFUSED, "both slots", lost=0),
    Damage("head: deleted", "killed", gone("head"), REFUSED, "head is missing", lost=0),
    Damage("store: deleted", "killed", gone("store"), REFUSED, "store is missing"),
    Damage("store and head: deleted", "killed", gone("store", "head"), REFUSED, "there was a ledger here"),
    Damage("a key: deleted", "killed", gone("keys/result.pem"), REFUSED, "never creates a key", True, 0),
    Damage(
        "a key: a bit flipped",
        "killed",
        lambda d, _: flip(d / "keys/log.pem", 60),
        REFUSED,
        "keys/log.pem",
        True,
        0,
        soak=True,
    ),
    Damage(
        "the key set: deleted", "killed", gone("keys/keyset.dsse.json"), REFUSED, "keyset.dsse.json", True, 0, soak=True
    ),
    Damage("an older store under the newer head", "killed", older("store"), REFUSED, "behind its head"),
    Damage("an older head over the newer store", "killed", older("head"), REFUSED, "ahead of its head", lost=0),
    Damage("an older store with its head", "killed", older("store", "head"), OLDER, verifies=True, lost=0),
]
