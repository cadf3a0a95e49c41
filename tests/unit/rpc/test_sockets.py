"""Where a socket may be made, and where not (R010, R011)."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from kblockd.rpc import server
from kblockd.rpc.sockets import MAX_PATH, PrivateSocket, UnsafeSocket, stage
from tests.unit.rpc.fakes import Daemon


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir(mode=0o700)
    return made


def bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    bound.listen()
    return bound


def reached(path: Path, by: socket.socket) -> bool:
    """Whether whoever connects there comes to that socket."""
    by.setblocking(False)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        try:
            by.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_socket_has_its_mode_before_it_has_its_place(folder: Path, mode: int) -> None:
    """Nobody can connect in between: until it is published, the socket lies in a folder that only we may enter."""
    made = stage(folder / "a.sock", mode)
    assert stat.S_IMODE(os.stat(made.folder).st_mode) == 0o700
    with bind(made.staged):
        assert not (folder / "a.sock").exists()
        made.publish()
        assert stat.S_IMODE(os.stat(folder / "a.sock").st_mode) == mode
        assert os.listdir(folder) == ["a.sock"]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "a.sock"))
        made.remove()
    assert os.listdir(folder) == []
    made.remove()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(UnsafeSocket, match="chmod go-w"):
        stage(folder / "a.sock", 0o600)
    assert os.listdir(folder) == []


def test_a_sticky_folder_is_refused_too(folder: Path) -> None:
    folder.chmod(0o1777)
    with pytest.raises(UnsafeSocket):
        stage(folder / "a.sock", 0o600)


def test_a_folder_above_that_others_may_write_to_is_refused(folder: Path) -> None:
    below = folder / "below"
    below.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(UnsafeSocket, match="chmod go-w"):
        stage(below / "a.sock", 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(folder, 12_345, -1)
    with pytest.raises(UnsafeSocket, match="belongs to uid 12345"):
        stage(folder / "a.sock", 0o600)


def test_a_missing_folder_is_said_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(UnsafeSocket, match="install -d -m 0700"):
        stage(tmp_path / "none" / "a.sock", 0o600)


@pytest.mark.parametrize("mode", [0o606, 0o602, 0o666, 0o060, 0o4600, 0o000])
def test_a_mode_for_everybody_is_refused(folder: Path, mode: int) -> None:
    with pytest.raises(UnsafeSocket, match="mode"):
        stage(folder / "a.sock", mode)


def test_a_path_that_cannot_be_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(UnsafeSocket, match=str(MAX_PATH)):
        stage(folder / ("x" * MAX_PATH), 0o600)
    with pytest.raises(UnsafeSocket, match="absolute"):
        stage(Path("a.sock"), 0o600)


def test_a_file_in_its_place_is_never_removed(folder: Path) -> None:
    (folder / "a.sock").write_text("precious")
    with pytest.raises(UnsafeSocket, match="not a socket"):
        stage(folder / "a.sock", 0o600)
    assert (folder / "a.sock").read_text() == "precious"


def test_a_stale_socket_is_replaced_and_a_live_one_refused(folder: Path) -> None:
    live = bind(folder / "a.sock")
    with pytest.raises(UnsafeSocket, match="another process"):
        stage(folder / "a.sock", 0o600)
    live.close()
    made = stage(folder / "a.sock", 0o600)
    with bind(made.staged):
        made.publish()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "a.sock"))


@pytest.mark.parametrize("stale", [False, True], ids=["vacant", "stale"])
def test_of_two_daemons_that_find_one_place_free_the_second_is_refused(folder: Path, stale: bool) -> None:
    """Each has a store and so a lock of its own: clients of the first never come to the second."""
    path = folder / "a.sock"
    if stale:
        bind(path).close()
    first, second = stage(path, 0o600), stage(path, 0o600)
    with bind(first.staged) as ours, bind(second.staged) as theirs:
        first.publish()
        with pytest.raises(UnsafeSocket, match=r"a\.sock: another process listens on it; stop it, or"):
            second.publish()
        second.remove()
        assert reached(path, ours)
        assert not reached(path, theirs)
    assert os.listdir(folder) == ["a.sock"]
    first.remove()
    assert os.listdir(folder) == []


def test_a_socket_that_stands_where_a_stale_one_stood_is_left_alone(folder: Path) -> None:
    """Not made here, as that of another kind of server; nor is it taken for ours at the end."""
    path = folder / "a.sock"
    bind(path).close()
    made = stage(path, 0o600)
    with bind(made.staged):
        other = bind(folder / "other")
        (folder / "other").rename(path)
        with other, pytest.raises(UnsafeSocket, match="another process"):
            made.publish()
        made.remove()
    assert os.listdir(folder) == ["a.sock"]


async def test_a_start_that_is_too_late_for_its_socket_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the listeners that were opened before nor the folder in which it was bound."""
    path, others = folder / "lead.sock", list[socket.socket]()

    def overtaken(place: Path, mode: int, gid: int | None) -> PrivateSocket:
        made = stage(place, mode, gid)
        if place == path:
            others.append(bind(path))
        return made

    monkeypatch.setattr(server, "stage", overtaken)
    with pytest.raises(UnsafeSocket, match=r"lead\.sock: another process"):
        await Daemon(folder).server.start()
    assert reached(path, *others)
    others.pop().close()
    assert os.listdir(folder) == ["lead.sock"]


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
def test_what_another_put_there_is_not_removed(folder: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    """At once: before the place is looked at again."""
    path, link = folder / "a.sock", os.link

    def replaced() -> None:
        path.unlink()
        path.write_text("another's")

    def linked(source: Path, target: Path) -> None:
        link(source, target)
        replaced()

    if at_once:
        monkeypatch.setattr(os, "link", linked)
    made = stage(path, 0o600)
    with bind(made.staged):
        made.publish()
        if not at_once:
            replaced()
        made.remove()
    assert path.read_text() == "another's"
