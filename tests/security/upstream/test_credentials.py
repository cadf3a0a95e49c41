"""Where Authorization values come from, and what is refused."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kblockd.paths import Writers
from kblockd.upstream import credentials
from kblockd.upstream.credentials import Credential, CredentialFault

VALUE = b"Bearer abcdefgh.ijkl"


def _file(folder: Path, value: bytes, mode: int = 0o600) -> Credential:
    path = folder / "credential"
    path.write_bytes(value)
    path.chmod(mode)
    return Credential(f"file:{path}")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_file_is_read_with_or_without_a_last_line_end(tmp_path: Path, end: bytes) -> None:
    """Editors add one."""
    assert _file(tmp_path, VALUE + end).read() == VALUE


def test_none_and_the_environment() -> None:
    """R624: only the variable that the configuration names."""
    assert Credential("none").read({}) is None
    assert Credential("env:PAY").read({"PAY": VALUE.decode()}) == VALUE
    with pytest.raises(CredentialFault) as fault:
        Credential("env:PAY").read({"OTHER": VALUE.decode()})
    assert fault.value.code == "CREDENTIAL_UNREADABLE"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_r640_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """R640: group and world have no bit at all."""
    with pytest.raises(CredentialFault, match="chmod 600") as fault:
        _file(tmp_path, VALUE, mode).read()
    assert fault.value.code == "CREDENTIAL_UNREADABLE"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"short",
        b"Bearer abc\ndef ghijk",
        b"Bearer abc\r\nX-Injected: 1",
        b"Bearer abc\x00defgh",
        b"Bearer abc\x7fdefgh",
        b"Bearer\tabcdefgh",
        b" Bearer abcdefgh",
        b"Bearer abcdefgh ",
        b"Bearer  abcdefgh",
        "Bearer äöüäöü".encode(),
        b"Bearer abcdefgh\n\n",
        b"B" * 9000,
    ],
)
def test_values_that_could_break_a_header_are_refused_without_showing_them(tmp_path: Path, value: bytes) -> None:
    """No control characters, no second line, nothing too short to be scrubbed; the fault does not quote the value."""
    with pytest.raises(CredentialFault) as fault:
        _file(tmp_path, value).read()
    assert fault.value.code == "CREDENTIAL_INVALID"
    assert "abc" not in str(fault.value)


def test_what_is_no_regular_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    """A FIFO, a folder, nothing."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path in (fifo, tmp_path, tmp_path / "absent"):
        with pytest.raises(CredentialFault) as fault:
            Credential(f"file:{path}").read()
        assert fault.value.code == "CREDENTIAL_UNREADABLE"


def test_r632_a_rotated_value_is_read_and_no_reference_shows_it(tmp_path: Path) -> None:
    """R631, R632: what was rotated is gone from memory with the next use; the reference shows no value."""
    credential = _file(tmp_path, VALUE)
    assert credential.read() == VALUE
    assert "abcdefgh" not in repr(credential)
    (tmp_path / "credential").write_bytes(b"Bearer rotated-value")
    assert credential.read() == b"Bearer rotated-value"
    assert VALUE not in credential._known.values()


@pytest.fixture
def settling(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds after which a file counts as written long ago."""
    monkeypatch.setattr(credentials, "_SETTLED_NS", 100_000_000)
    return 0.15


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read and judged."""
    found: list[Path] = []

    def counted(path: Path, writers: Writers) -> bytes:
        found.append(path)
        return from_file(path, writers)

    from_file = credentials._from_file
    monkeypatch.setattr(credentials, "_from_file", counted)
    return found


def test_a_file_is_read_when_it_has_changed(tmp_path: Path, opened: list[Path], settling: float) -> None:
    """R639: not for each call; but a rotation acts at the next one, in whatever way the file is replaced."""
    credential, path = _file(tmp_path, VALUE), tmp_path / "credential"
    time.sleep(settling)
    assert {credential.read() for _ in range(5)} == {VALUE}
    assert len(opened) == 1
    (tmp_path / "new").write_bytes(VALUE[::-1])
    (tmp_path / "new").chmod(0o600)
    (tmp_path / "new").rename(path)
    assert credential.read() == VALUE[::-1]
    path.write_bytes(VALUE)
    assert credential.read() == VALUE
    path.unlink()
    with pytest.raises(CredentialFault):
        credential.read()


def test_what_was_written_a_moment_ago_is_read_each_time(tmp_path: Path, opened: list[Path]) -> None:
    """A second write within a tick of the file system's clock shows the same times and the same length."""
    credential = _file(tmp_path, VALUE)
    for _ in range(3):
        credential.read()
    assert len(opened) == 3


@pytest.mark.parametrize("change", ["mode", "folder"])
def test_r640_a_file_that_is_known_is_judged_again_when_it_changes(
    tmp_path: Path, settling: float, change: str
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    credential = _file(folder, VALUE)
    time.sleep(settling)
    assert credential.read() == VALUE
    if change == "mode":
        (folder / "credential").chmod(0o640)
    else:  # whoever may write a folder above it puts another file in its place
        folder.chmod(0o777)
        folder.rename(tmp_path / "other")
        folder.mkdir(mode=0o700)
        folder.chmod(0o777)
        (folder / "credential").write_bytes(b"Bearer of-somebody-else")
        (folder / "credential").chmod(0o600)
    with pytest.raises(CredentialFault):
        credential.read()
