"""Who may write what decides: each way in which somebody else could, and each that passes."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kblockd.paths import Step, Unsafe, Writers, open_path

DAEMON, OTHER = 990, 1000
WRITERS = Writers(frozenset({0, DAEMON}))
FOLDER = Step(Path("/etc/kblockd"), stat.S_IFDIR | 0o755, 0, 0)
FILE = Step(Path("/etc/kblockd/kblockd.yaml"), stat.S_IFREG | 0o644, 0, 0)
LINK = Step(Path("/etc/kblockd/link"), stat.S_IFLNK | 0o777, 0, 0)


def refusal(*steps: Step, writers: Writers = WRITERS) -> str:
    with pytest.raises(Unsafe) as raised:
        writers.judge(steps)
    return str(raised.value)


def with_mode(step: Step, mode: int) -> Step:
    return replace(step, mode=stat.S_IFMT(step.mode) | mode)


@pytest.mark.parametrize("uid", [0, DAEMON])
def test_root_and_the_daemons_user_may_own_it(uid: int) -> None:
    WRITERS.judge([replace(FOLDER, uid=uid), replace(LINK, uid=uid), replace(FILE, uid=uid)])


@pytest.mark.parametrize("step", [FOLDER, FILE, LINK], ids=["folder", "file", "link"])
def test_loc_02_an_owner_who_is_somebody_else_is_refused_whatever_the_mode(step: Step) -> None:
    """An owner can change the mode."""
    option = "-h " if step is LINK else ""
    said = refusal(with_mode(replace(step, uid=OTHER), 0o400), FILE)
    expected = f"belongs to uid {OTHER}, not to uid 0 or uid {DAEMON}; chown {option}{DAEMON} {step.path}"
    assert said == f"{step.path}: {expected}"


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o620, 0o646, 0o777])
@pytest.mark.parametrize("step", [FOLDER, FILE], ids=["folder", "file"])
def test_loc_02_what_others_may_write_is_refused_with_the_command_that_mends_it(step: Step, mode: int) -> None:
    said = refusal(with_mode(step, mode))
    assert said == f"{step.path}: others may write to it (mode {mode:04o}, uid 0, gid 0); chmod go-w {step.path}"


def test_a_sticky_folder_passes_on_the_way_and_not_at_the_end() -> None:
    """Nobody can replace another's file in /tmp, but anybody can add one."""
    sticky = Step(Path("/tmp"), stat.S_IFDIR | 0o1777, 0, 0)
    WRITERS.judge([sticky, FILE])
    assert "others may write to it (mode 1777" in refusal(sticky)
    assert "belongs to uid 1000" in refusal(sticky, replace(LINK, uid=OTHER), FILE)


def test_the_sticky_bit_of_a_file_means_nothing() -> None:
    assert "others may write" in refusal(with_mode(FILE, 0o1666), FILE)


def test_a_read_only_mount_passes_unless_it_is_the_units_own() -> None:
    mounted = replace(with_mode(FOLDER, 0o777), uid=OTHER, read_only=True)
    WRITERS.judge([mounted, replace(FILE, uid=OTHER, read_only=True)])
    assert "belongs to uid 1000" in refusal(mounted, writers=replace(WRITERS, read_only_passes=False))


def test_under_a_systemd_unit_a_read_only_mount_proves_nothing() -> None:
    """ProtectSystem=strict makes the whole system read-only for this process, and for nobody else."""
    assert Writers.of([0], environment={}).read_only_passes
    assert not Writers.of([0], environment={"INVOCATION_ID": "0123"}).read_only_passes


def test_a_group_may_write_only_if_nobody_else_is_in_it() -> None:
    own = replace(with_mode(FILE, 0o664), uid=DAEMON, gid=DAEMON)
    assert "others may write" in refusal(own)
    private = replace(WRITERS, gids=frozenset({DAEMON}))
    private.judge([own])
    assert "others may write" in refusal(with_mode(own, 0o666), writers=private)
    assert "others may write" in refusal(replace(own, gid=50), writers=private)


def test_with_an_access_list_the_groups_bits_speak_of_others_too() -> None:
    private = replace(WRITERS, gids=frozenset({DAEMON}))
    own = replace(with_mode(FILE, 0o664), uid=DAEMON, gid=DAEMON, acl=True)
    assert "others may write" in refusal(own, writers=private)


def _user(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


def _database(monkeypatch: pytest.MonkeyPatch, users: list[pwd.struct_passwd], members: list[str]) -> None:
    """With root, and one group of gid 990."""
    everybody = {user.pw_uid: user for user in (_user("root", 0, 0), *users)}
    groups = {0: ("root", "x", 0, []), DAEMON: ("kblockd", "x", DAEMON, members)}
    monkeypatch.setattr(pwd, "getpwall", lambda: list(everybody.values()))
    monkeypatch.setattr(pwd, "getpwuid", everybody.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(groups[gid]))


def test_a_private_group_is_one_that_the_user_database_shows_nobody_else_in(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = _user("kblockd", DAEMON, DAEMON)
    _database(monkeypatch, [daemon], [])
    assert Writers.of([DAEMON]).gids == {0, DAEMON}
    assert Writers.of([DAEMON], shared=[DAEMON]).gids == {0}
    _database(monkeypatch, [daemon], ["kblockd", "agent"])
    assert Writers.of([DAEMON]).gids == {0}
    _database(monkeypatch, [daemon, _user("agent", OTHER, DAEMON)], [])
    assert Writers.of([DAEMON]).gids == {0}
    _database(monkeypatch, [], [])
    assert Writers.of([DAEMON]).gids == {0}


def test_what_is_judged_is_what_was_opened(tmp_path: Path) -> None:
    """Of real files: the mode of the file, of its folder, of one above."""
    file = tmp_path / "a" / "b" / "file"
    file.parent.mkdir(parents=True)
    file.write_text("")
    ours = Writers(frozenset({0, os.geteuid()}))
    with open_path(file) as opened:
        ours.judge(opened.steps)
    for path in (file, file.parent, file.parent.parent):
        before = path.stat().st_mode
        path.chmod(before | 0o002)
        with open_path(file) as opened, pytest.raises(Unsafe, match=f"chmod go-w {path}$"):
            ours.judge(opened.steps)
        path.chmod(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_link_of_somebody_else_in_a_sticky_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tmp_path.chmod(0o1777)
    (tmp_path / "link").symlink_to("file")
    os.lchown(tmp_path / "link", 12_345, 12_345)
    with pytest.raises(Unsafe, match="belongs to uid 12345"):
        Writers(frozenset({0})).judge_path(tmp_path / "link")


def test_what_does_not_exist_yet_is_judged_as_far_as_it_does(tmp_path: Path) -> None:
    """In /tmp nobody can take it away again; what somebody else makes there first is not ours and is refused."""
    ours = Writers(frozenset({0, os.geteuid()}))
    tmp_path.chmod(0o1777)
    ours.judge_path(tmp_path / "absent")
    tmp_path.chmod(0o777)
    with pytest.raises(Unsafe, match="mode 0777"):
        ours.judge_path(tmp_path / "absent")
