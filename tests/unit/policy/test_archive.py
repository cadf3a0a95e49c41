"""An archive taken apart in memory: what it may hold, and everything that refuses it."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.bundles.archive import MAX_TAR, unpack
from kblockd.policy.bundles.bundle import read
from kblockd.policy.bundles.files import MAX_BYTES, MAX_FILES
from kblockd.policy.bundles.signatures import Unsigned
from kblockd.policy.faults import BundleFault, BundleRefused
from tests.contract.policy.bundles import contents, entry, packed, put, tarred, trusting

REGO = b"package a\n"


def refused(data: bytes) -> BundleFault:
    with pytest.raises(BundleRefused) as raised:
        unpack(data, "b.tar.gz")
    assert raised.value.faults[0].next_step
    return raised.value.faults[0]


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return gzip.compress(tarred(*entries))


def test_contents_by_name() -> None:
    """Folders count for nothing; `opa build` writes a leading slash, `tar` may write a leading dot."""
    data = archive(
        (entry("./", type=tarfile.DIRTYPE), b""),
        (entry("/a.rego"), REGO),
        (entry("./sub/data.json"), b"{}"),
        (entry("sub", type=tarfile.DIRTYPE), b""),
        (entry(".manifest"), b"{}"),
    )
    assert unpack(data, "b") == {"a.rego": REGO, "sub/data.json": b"{}", ".manifest": b"{}"}


@pytest.mark.parametrize(
    "name",
    [
        "../a.rego",
        "a/../b.rego",
        "/../a.rego",
        "//a.rego",
        "a//b.rego",
        "./../a.rego",
        "././a.rego",
        "a\\..\\b.rego",
        "a\nb.rego",
        "a\x7f.rego",
        "a" * 201,
    ],
)
def test_pol_05_path_that_leads_out_or_is_not_plain(name: str) -> None:
    fault = refused(archive((entry(name), REGO)))
    assert "not a plain path" in fault.message
    assert fault.file.isprintable()


@pytest.mark.parametrize("name", [".a.rego", "sub/.b/a.rego", "sub/.manifest", "sub/.signatures.json"])
def test_hidden_name_that_opa_would_load(name: str) -> None:
    assert "hidden" in refused(archive((entry(name), REGO))).message


@pytest.mark.parametrize(
    "fields",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "b.rego"},
        {"type": tarfile.CHRTYPE},
        {"type": tarfile.BLKTYPE},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.CONTTYPE},
    ],
)
def test_pol_05_neither_file_nor_folder(fields: dict[str, Any]) -> None:
    fault = refused(archive((entry("b.rego"), REGO), (entry("a.rego", **fields), b"")))
    assert (fault.file, fault.message) == ("a.rego", "neither a plain file nor a folder")


def test_one_name_twice() -> None:
    assert "appears twice" in refused(archive((entry("a.rego"), REGO), (entry("/a.rego"), b"package b\n"))).message


def test_file_that_is_a_folder_too() -> None:
    fault = refused(archive((entry("a/b.rego"), REGO), (entry("a"), b"")))
    assert fault.file == "a/b.rego"


def test_pol_05_cut_anywhere_is_refused() -> None:
    """Replaced in mid-read, or half uploaded."""
    data = packed(contents())
    for length in range(0, len(data), max(1, len(data) // 97)):
        assert refused(data[:length]).file == "b.tar.gz"


def test_pol_05_any_flipped_byte_is_refused() -> None:
    """The checksums of gzip, or what stands behind the stream; its header holds bytes without a meaning."""
    data = packed(contents())
    for position in range(10, len(data), 53):
        broken = bytearray(data)
        broken[position] ^= 0x40
        refused(bytes(broken))


@pytest.mark.parametrize("behind", [b"\0", b"x", gzip.compress(b"x", mtime=0)])
def test_something_behind_the_stream(behind: bytes) -> None:
    assert "trailing data after the gzip stream" in refused(packed(contents()) + behind).message


def test_no_archive_at_all() -> None:
    assert "not a gzip file" in refused(b"package kblock.decision\n").message
    assert refused(gzip.compress(b"package kblock.decision\n" * 100)).file == "b.tar.gz"
    assert refused(gzip.compress(b"")).message


def test_decompression_bomb_costs_no_memory() -> None:
    """64 MiB of zeros in 64 KiB; 4 MiB of content are taken, with room for headers, and no more is ever produced."""
    packed_bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=packed_bomb, mode="wb", compresslevel=9) as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        assert f"more than {MAX_TAR} bytes" in refused(packed_bomb.getvalue()).message
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_TAR


def test_too_many_bytes_or_entries() -> None:
    half = bytes(MAX_BYTES // 2 + 1)
    assert str(MAX_BYTES) in refused(archive((entry("a.rego"), half), (entry("b.rego"), half))).message
    many = archive(*((entry(f"{number}", type=tarfile.DIRTYPE), b"") for number in range(MAX_FILES + 1)))
    assert str(MAX_FILES) in refused(many).message


def test_the_whole_door(tmp_path: Path) -> None:
    """An archive and a folder of the same files have the same modules, data and revision."""
    content = contents()
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in content.items():
        (folder / name).write_bytes(data)
    file = put(tmp_path / "b.tar.gz", packed(content))
    trust = trusting(unsigned=Unsigned.ANYTHING)
    one, other = read(folder, trust), read(file, trust)
    assert one == other
    assert one.data == {"a": 1}
    assert one.origin.bundle_revision == "v12"
    with pytest.raises(BundleRefused, match="cannot be read"):
        read(tmp_path / "nothing.tar.gz", trust)
