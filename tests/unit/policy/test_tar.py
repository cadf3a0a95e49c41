"""Tar read strictly: what others write is read alike, and what they would read differently is refused."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.bundles.tar import BLOCK, InvalidTar, TarEntry, entries
from tests.contract.policy.bundles import entry

END = bytes(2 * BLOCK)
NAMES = ("a.rego", "sub/b.rego", "x" * 100, "y/" * 60 + "z.rego", "w" * 180, "ü/é.rego", "p" * 90 + "/" + "q" * 99)


def refused(content: bytes) -> str:
    with pytest.raises(InvalidTar) as raised:
        list(entries(content))
    return str(raised.value)


@pytest.mark.parametrize("written", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_what_others_write_is_read_alike(written: int) -> None:
    """Long names and names beyond ASCII, in each format that can hold them."""
    packed = io.BytesIO()
    expected = []
    with tarfile.open(fileobj=packed, mode="w", format=written, pax_headers={"comment": "c"}) as tar:
        for number, name in enumerate(NAMES):
            data = bytes([number]) * number * 300
            try:
                tar.addfile(entry(name, size=len(data), mtime=1.5), io.BytesIO(data))
            except ValueError:  # longer than the format can say
                continue
            expected.append(TarEntry(name, data, True))
    assert list(entries(packed.getvalue())) == expected
    assert len(expected) > 4


@pytest.mark.parametrize("written", ["gnu", "posix", "ustar"])
def test_what_tar_itself_writes(tmp_path: Path, written: str) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.rego").write_text("package a\n")
    (tmp_path / "in" / "sub" / ("b" * 90 + ".rego")).write_text("package b\n")
    subprocess.run(["tar", f"--format={written}", "-cf", "out.tar", "-C", "in", "."], cwd=tmp_path, check=True)
    found = {one.name.removeprefix("./"): one.data for one in entries((tmp_path / "out.tar").read_bytes())}
    assert found["a.rego"] == b"package a\n"
    assert found["sub/" + "b" * 90 + ".rego"] == b"package b\n"


def header(name: str = "a.rego", written: int = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    return entry(name, **fields).tobuf(written)


def resealed(block: bytes, at: int, value: bytes) -> bytes:
    """With other bytes in it, and the checksum that they need."""
    changed = bytearray(block)
    changed[at : at + len(value)] = value
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no end"),
        (header(), "no end"),
        (header() + bytes(BLOCK), "no end"),
        (header() + END + b"x", "behind it"),
        (header() + END + header(), "behind it"),
        (header()[:-1], "cut off"),
        (header(size=600) + bytes(BLOCK), "cut off"),
        (header(size=1) + END + END, ""),
        (header(size=1 << 40, written=tarfile.GNU_FORMAT) + END, "not octal"),
        (resealed(header(), 124, b"\xff" * 11 + b"\0") + END, "not octal"),
        (resealed(header(), 124, b"-0000000512\0") + END, "not octal"),
        (resealed(header(), 257, bytes(8)) + END, "another format"),
        (header().replace(b"a.rego", b"b.rego") + END, "damaged"),
        (header(type=tarfile.DIRTYPE, size=1) + bytes(BLOCK) + END, "folder with a content"),
        (header().replace(b"a.rego", b"\xff.rego"), "damaged"),
        (resealed(header(), 0, b"\xff") + END, "not UTF-8"),
    ],
)
def test_pol_05_what_cannot_be_read(content: bytes, said: str) -> None:
    if said:
        assert said in refused(content)
    else:
        assert [one.data for one in entries(content)] == [b"\0"]


def pax(records: bytes, kind: bytes = b"x") -> bytes:
    padding = bytes(-len(records) % BLOCK)
    return header("h", size=len(records), type=kind) + records + padding + header() + END


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (b"12 size=100\n", "size"),
        (b"17 linkpath=/etc\n", "linkpath"),
        (b"22 GNU.sparse.major=1\n", "GNU.sparse"),
        (b"21 hdrcharset=BINARY\n", "hdrcharset"),
        (b"11 path=b\n", "cannot be read"),
        (b"8 path=b\n", "cannot be read"),
        (b"08 path=b\n", "cannot be read"),
        (b"path=b\n", "cannot be read"),
        (b"11 path=bcd", "cannot be read"),
        (b"7 path\n", "cannot be read"),
        (b"\0", "cannot be read"),
    ],
)
def test_extended_header_that_acts_or_cannot_be_read(records: bytes, said: str) -> None:
    assert said in refused(pax(records))


def test_extended_header_that_names() -> None:
    assert [one.name for one in entries(pax(b"11 path=bc\n22 mtime=1764410400.5\n"))] == ["bc"]
    assert "one name for all" in refused(pax(b"11 path=bc\n", kind=b"g"))


@pytest.mark.parametrize("kind", [b"x", b"L"])
def test_hostile_headers_cost_no_time(kind: bytes) -> None:
    """CVE-2024-6232: megabytes of digits, over which other readers backtrack for hours."""
    digits = b"9" * (4 << 20)
    content = header("h", size=len(digits), type=kind) + digits + header() + END
    started = time.process_time()
    try:
        assert len(list(entries(content))) == 1
    except InvalidTar:
        assert kind == b"x"
    assert time.process_time() - started < 5


def test_link_device_and_sparse_file_are_not_plain() -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE, b"7", b"K", b"V"):
        (one,) = entries(header(type=kind) + END)
        assert (one.data, one.plain) == (None, False)
