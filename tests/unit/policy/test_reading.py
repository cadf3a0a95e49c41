"""Documents that would hold a reader up (LOC-06)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kblockd.policy.bundles import bundle, documents
from kblockd.policy.embedded import child, document_reader
from kblockd.policy.embedded.document_reader import KillableReader
from kblockd.policy.faults import BundleRefused

ONE_KEY = json.dumps({"k" * 2_000_000: {str(i): 1 for i in range(150_000)}}).encode()
FLOOD = b'{"a":[' + b"1," * 2_000_000 + b"1]}"
YAML = b"- [a, b]\n" * 14_000


def refused(reader: KillableReader, **files: bytes) -> BundleRefused:
    """Why these documents are not taken."""
    with pytest.raises(BundleRefused) as raised:
        reader({name.replace("__", "/").replace("_", "."): content for name, content in files.items()})
    return raised.value


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that a reader starts."""
    seen: list[subprocess.Popen[bytes]] = []

    def start(descriptor: int, memory_mib: int) -> subprocess.Popen[bytes]:
        seen.append(child.start(descriptor, memory_mib))
        return seen[-1]

    monkeypatch.setattr(document_reader, "start", start)
    return seen


def test_loc_06_a_folder_with_one_enormous_document_does_not_keep_the_next_one(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """Four megabytes under one long key are data like others; what has too many values is refused before it is parsed;
    once they are gone, the good bundle is read."""
    (tmp_path / "a.rego").write_text("package a\n")
    reader = KillableReader(512, seconds=60)
    (tmp_path / "data.json").write_bytes(ONE_KEY)
    assert len(bundle.read(tmp_path, parse=reader).data) == 1
    (tmp_path / "data.json").write_bytes(FLOOD)
    with pytest.raises(BundleRefused, match="more than 262144 values"):
        bundle.read(tmp_path, parse=reader)
    (tmp_path / "data.json").unlink()
    assert bundle.read(tmp_path, parse=reader).data == {}
    assert [process.poll() is not None for process in started] == [True, True]


def test_loc_06_what_takes_too_long_is_killed_and_not_tried_at_each_look(
    started: list[subprocess.Popen[bytes]],
) -> None:
    """The watch looks every second; after some looks it is tried again, because the machine may have been slow."""
    reader = KillableReader(512, seconds=0.001)
    for _ in range(document_reader.REFUSED_LOOKS):
        assert "took longer than 0.001 s" in str(refused(reader, data_yaml=YAML))
    assert len(started) == 1
    assert started[0].poll() is not None
    reader.seconds = 60.0
    assert len(reader({"data.json": b'{"a":"' + b"x" * 5000 + b'"}'}).data) == 1
    assert len(started) == 2


def test_loc_06_what_wants_too_much_memory_ends_its_own_process(started: list[subprocess.Popen[bytes]]) -> None:
    assert "64 MiB" in str(refused(KillableReader(64, seconds=60), data_json=ONE_KEY))
    assert started[0].poll() is not None


def test_no_process_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was the reason: the same bytes are tried at the next look."""

    def none(descriptor: int, memory_mib: int) -> subprocess.Popen[bytes]:
        raise OSError(11, "Resource temporarily unavailable")

    reader = KillableReader(512, seconds=60)
    monkeypatch.setattr(document_reader, "start", none)
    assert refused(reader, data_json=b'{"a":"' + b"x" * 5000 + b'"}').transient
    monkeypatch.undo()
    assert len(reader({"data.json": b'{"a":"' + b"x" * 5000 + b'"}'}).data) == 1


@pytest.mark.parametrize("padding", [b"", b" " * 5000], ids=["in this process", "in a child"])
def test_a_child_reads_as_this_process_does(padding: bytes, started: list[subprocess.Popen[bytes]]) -> None:
    """Values, digests and faults are the same; what was read of the same bytes is not read again."""
    files = {
        "data.json": b'{"n": [1.50, 1e20, -0.0, 9007199254740991], "t": "\xc3\xa9"}' + padding,
        "a/b/data.yaml": b"x: on\n",
        ".manifest": b'{"revision": "v1"}',
        ".signatures.json": b'{"signatures": []}',
        "a.rego": b"package a",
    }
    reader = KillableReader(512, seconds=60)
    assert reader(files) == reader(files) == documents.parsed(files)
    assert len(started) == (1 if padding else 0)
    again = {**files, "c/data.json": b'{"a":1,"a":2}'}
    assert str(refused(reader, **again)) == str(refused(reader, **again))
    with pytest.raises(BundleRefused, match="not UTF-8 at byte 0"):
        reader({"data.json": b"\xff"})
