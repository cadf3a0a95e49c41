"""Paths, one component at a time: what was opened, and what was met on the way."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from kblockd.paths import Opened, open_path, steps_to


def names(opened: Opened) -> list[str]:
    return [step.path.name for step in opened.steps]


def open_on_the_way(path: Path) -> list[str]:
    """Places on the way to ``path`` and below it that have a descriptor; nothing beside the test opens any of them."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            place = Path(f"/proc/self/fd/{number}").readlink()
            if path in place.parents or place in (path, *path.parents):
                found.append(str(place))
    return sorted(found)


def test_every_folder_and_link_on_the_way_is_a_step(tmp_path: Path) -> None:
    """The folder of a link's target as well: whoever may write it decides what the link means."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("content")
    (tmp_path / "link").symlink_to("real")
    with open_path(tmp_path / "link" / "file") as opened:
        assert opened.read(100) == b"content"
        assert opened.is_file
        assert [step.path for step in opened.steps[:2]] == [Path("/"), Path("/", tmp_path.parts[1])]
        assert names(opened)[-3:] == ["link", "real", "file"]


def test_a_link_to_an_absolute_path_starts_again_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_path(tmp_path / "link") as opened:
        assert opened.read(100) == b"content"
        assert opened.steps[-1].path == tmp_path / "file"


def test_above_is_above_the_folder_that_was_entered_not_above_its_link(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("right")
    (tmp_path / "file").write_text("wrong")
    (tmp_path / "link").symlink_to("a/b")
    with open_path(tmp_path / "link" / ".." / "file") as opened:
        assert opened.read(100) == b"right"


@pytest.mark.parametrize("target", ["/etc/hostname", "../file", "..", "inside/../../file", "inside/../..", "/"])
def test_loc_01_beneath_a_folder_no_link_leads_out(tmp_path: Path, target: str) -> None:
    top = tmp_path / "top"
    (top / "inside").mkdir(parents=True)
    (tmp_path / "file").write_text("out")
    (top / "link").symlink_to(target)
    with open_path(top) as folder, pytest.raises(OSError, match="leads out") as refused:
        folder.beneath("link").close()
    assert refused.value.errno == errno.EXDEV


def test_loc_01_no_name_leads_out_either(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "file").write_text("out")
    with open_path(tmp_path / "top") as folder:
        for name in ("../file", "./../file", "/../file"):
            with pytest.raises(OSError, match="leads out"):
                folder.beneath(name).close()


def test_beneath_a_folder_links_inside_it_work(tmp_path: Path) -> None:
    (tmp_path / "v1" / "sub").mkdir(parents=True)
    (tmp_path / "v1" / "sub" / "file").write_text("content")
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "file").symlink_to("..data/sub/../sub/file")
    with open_path(tmp_path) as folder, folder.beneath("file") as opened:
        assert opened.read(100) == b"content"
        assert names(opened) == ["file", "..data", "v1", "sub", "sub", "file"]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels") as refused:
        open_path(tmp_path / "a")
    assert refused.value.errno == errno.ELOOP


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file/x", "file/../file"):
        with pytest.raises(NotADirectoryError):
            open_path(tmp_path / path)


def test_a_pipe_is_neither_opened_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open_path(tmp_path / "pipe") as opened:
        assert not opened.is_file
        assert not opened.is_folder


def test_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "out").symlink_to("/etc")
    before = open_on_the_way(tmp_path)
    with open_path(tmp_path) as folder, folder.beneath("folder/file"):
        assert len(open_on_the_way(tmp_path)) > len(before)
    for name in ("out", "absent", "folder/file/x"):
        with open_path(tmp_path) as folder, pytest.raises(OSError, match=r".+"):
            folder.beneath(name)
    steps_to(tmp_path / "folder" / "absent" / "more")
    assert open_on_the_way(tmp_path) == before


def test_the_steps_to_what_is_not_there_end_where_it_is_missing(tmp_path: Path) -> None:
    steps, whole = steps_to(tmp_path / "absent" / "more")
    assert (steps[-1].path, whole) == (tmp_path, False)
    steps, whole = steps_to(tmp_path)
    assert (steps[-1].path, whole) == (tmp_path, True)


def test_an_error_names_the_whole_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        open_path(tmp_path / "absent")
    assert refused.value.filename == str(tmp_path / "absent")
