"""The watched folder: what is settled is checked, recorded and swapped; what is broken is refused once, loudly."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kblockd.paths import Writers
from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.bundles.files import from_folder
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import ALLOW_REFUND, Kind, deciding, files, write
from tests.contract.policy.watched import Watched

CHANGED = deciding(ALLOW_REFUND)
BROKEN = files(decision="package kblock.decision\nx := {")


class Deployer:
    """Reads as the daemon does; what is to happen to the folder happens right after a reading, one after each."""

    def __init__(self) -> None:
        self.then: list[Callable[[], object]] = []

    def __call__(self, path: Path) -> Bundle:
        try:
            return read(path)
        finally:
            if self.then:
                self.then.pop(0)()


@pytest.fixture
def deployer() -> Deployer:
    return Deployer()


@pytest.fixture
async def watched(kind: Kind, tmp_path: Path, deployer: Deployer) -> AsyncIterator[Watched]:
    """After the first load, with the watch running."""
    it = Watched(write(tmp_path / "policy", files()), kind, deployer)
    assert await it.watch.reload()
    async with it.running():
        yield it


async def test_first_load_is_an_activation(watched: Watched) -> None:
    revision = watched.engine.status().revision
    assert watched.activated == [(revision, "")]
    assert watched.in_force == [(revision, revision)]


async def test_unchanged_folder_is_left_alone(watched: Watched) -> None:
    for _ in range(3):
        await watched.clock.tick()
    assert len(watched.activated) == 1


async def test_change_is_activated_once_it_is_settled(watched: Watched) -> None:
    old = watched.engine.status().revision
    write(watched.path, CHANGED)
    await watched.clock.tick()
    assert watched.engine.status().revision == old
    await watched.clock.tick()
    new = watched.engine.status().revision
    assert new == Bundle.of(CHANGED).revision
    assert watched.activated[1:] == [(new, old)]
    await watched.clock.tick()
    assert len(watched.activated) == 2
    assert watched.in_force[1:] == [(new, new)]


async def test_what_was_read_twice_is_activated_and_no_half_of_the_next(watched: Watched, deployer: Deployer) -> None:
    """Another deployment begins right after the reading that settled the first: what it has written by then, which a
    third reading would find and which passes every check, is never in force."""
    half = {**CHANGED, "a.rego": "package kblock.a\n"}
    whole = {**half, "b.rego": "package kblock.b\n"}
    revisions = [Bundle.of(texts).revision for texts in (files(), CHANGED, whole)]
    write(watched.path, CHANGED)
    deployer.then = [lambda: None, lambda: write(watched.path, half), lambda: write(watched.path, whole)]
    await watched.settles()
    assert watched.engine.status().revision == revisions[1]
    for _ in range(3):
        await watched.clock.tick()
    assert [revision for revision, _ in watched.activated] == revisions
    assert watched.refused == []


async def test_a_file_that_is_truncated_for_a_moment_keeps_no_good_bundle_waiting(
    watched: Watched, deployer: Deployer
) -> None:
    """It is written again with what it had, and is torn for whoever looks right after the bundle has settled."""
    write(watched.path, CHANGED)
    deployer.then = [lambda: None, lambda: write(watched.path, BROKEN), lambda: write(watched.path, CHANGED)]
    for _ in range(6):
        await watched.clock.tick()
    assert watched.engine.status().revision == Bundle.of(CHANGED).revision
    assert (len(watched.activated), watched.refused) == (2, [])


async def test_pol_05_broken_change_is_refused_once_and_the_old_one_stays(watched: Watched) -> None:
    old = watched.engine.status().revision
    write(watched.path, BROKEN)
    for _ in range(4):
        await watched.clock.tick()
    assert len(watched.refused) == 1
    assert watched.refused[0].faults[0].file == "decision.rego"
    assert watched.refused[0].revision == Bundle.of(BROKEN).revision
    assert watched.engine.status().revision == old
    assert "decision.rego:2" in watched.engine.status().last_error
    write(watched.path, files())
    for _ in range(2):
        await watched.clock.tick()
    assert watched.engine.status().last_error == ""
    assert len(watched.activated) == 1


async def test_folder_that_disappears_is_refused_once(watched: Watched) -> None:
    for path in watched.path.iterdir():
        path.unlink()
    watched.path.rmdir()
    for _ in range(4):
        await watched.clock.tick()
    assert len(watched.refused) == 1
    assert watched.engine.status().ready


async def test_a_name_that_is_not_utf_8_is_refused_and_not_passed_over_in_silence(watched: Watched) -> None:
    """It has no place in a revision."""
    Path(os.fsdecode(os.fsencode(watched.path) + b"/\xff.rego")).write_text("package x\n")
    await watched.settles()
    ((fault,),) = [refused.faults for refused in watched.refused]
    assert (fault.file, fault.message) == (r"\udcff.rego", "a name that is not UTF-8")
    assert watched.engine.status().ready


async def test_activation_that_could_not_be_recorded_is_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once."""
    old = watched.engine.status().revision
    watched.failures += [OSError("no space")] * 2
    write(watched.path, CHANGED)
    for _ in range(3):
        await watched.clock.tick()
    assert watched.engine.status().revision == old
    assert [row.getMessage().partition(":")[0] for row in caplog.records] == ["a look at the policy failed (OSError)"]
    assert watched.engine.status().last_error
    await watched.clock.tick()
    assert watched.engine.status().revision == Bundle.of(CHANGED).revision
    assert watched.engine.status().last_error == ""


async def test_explicit_reload_does_not_wait(watched: Watched) -> None:
    write(watched.path, CHANGED)
    assert await watched.watch.reload()
    assert watched.engine.status().revision == Bundle.of(CHANGED).revision
    write(watched.path, BROKEN)
    assert not await watched.watch.reload()
    assert len(watched.refused) == 1


async def test_reload_of_what_is_in_force_activates_nothing(watched: Watched) -> None:
    assert await watched.watch.reload()
    assert len(watched.activated) == 1


async def test_missing_at_the_start_leaves_nothing_ready(kind: Kind, tmp_path: Path) -> None:
    it = Watched(tmp_path / "nowhere", kind)
    assert not await it.watch.reload()
    assert not it.engine.status().ready
    assert "nowhere" in it.engine.status().last_error
    await it.engine.close()


async def test_refusal_by_the_machine_is_tried_again_without_another_word(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process could be started: when it can be, the change comes into force; no hand and no restart."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    write(watched.path, CHANGED)
    for _ in range(8):
        await watched.clock.tick()
    assert len(watched.refused) == 1
    assert watched.refused[0].transient
    monkeypatch.undo()
    for _ in range(70):
        await watched.clock.tick()
        if watched.engine.status().revision == Bundle.of(CHANGED).revision:
            break
    assert watched.engine.status().revision == Bundle.of(CHANGED).revision
    assert watched.engine.status().last_error == ""


async def test_change_is_not_kept_waiting_by_the_rest_of_a_refused_one(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    write(watched.path, deciding(ALLOW_REFUND, ALLOW_REFUND))
    for _ in range(12):
        await watched.clock.tick()
    monkeypatch.undo()
    write(watched.path, CHANGED)
    for _ in range(2):
        await watched.clock.tick()
    assert watched.engine.status().revision == Bundle.of(CHANGED).revision


@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE, errno.ENOMEM])
def test_a_folder_that_cannot_be_read_takes_no_rules_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The rules of a subfolder that cannot be looked into just now are not left out: the bundle is refused."""
    (tmp_path / "limits" / "strict").mkdir(parents=True)
    (tmp_path / "main.rego").write_text("package main\n")
    (tmp_path / "limits" / "strict" / "deny.rego").write_text("package main\n")
    assert set(from_folder(tmp_path)) == {"main.rego", "limits/strict/deny.rego"}
    look = os.scandir

    def scandir(path: Any = ".") -> Any:
        if os.readlink(f"/proc/self/fd/{path}").endswith("strict"):
            raise OSError(error, os.strerror(error), path)
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(BundleRefused, match="cannot be read"):
        from_folder(tmp_path)


@pytest.mark.parametrize("name", [".", "decision.rego"])
async def test_loc_02_a_reload_refuses_what_others_may_write_and_says_so_once(
    kind: Kind, tmp_path: Path, name: str
) -> None:
    """The revision in force stays; once the mode is mended the change comes into force by itself."""
    writers = Writers(frozenset({0, os.geteuid()}))
    it = Watched(write(tmp_path / "policy", files()), kind, lambda path: read(path, writers=writers))
    assert await it.watch.reload()
    async with it.running():
        old = it.engine.status().revision
        write(it.path, CHANGED)
        (it.path / name).chmod(0o777)
        for _ in range(4):
            await it.clock.tick()
        assert [str(refused).split("; ")[1] for refused in it.refused] == [f"chmod go-w {it.path / name}"]
        assert it.engine.status().revision == old
        assert "others may write to it (mode 0777" in it.engine.status().last_error
        (it.path / name).chmod(0o755)
        await it.settles()
        assert it.engine.status().revision == Bundle.of(CHANGED).revision


async def test_loc_01_a_reload_refuses_a_link_that_leads_out_of_the_folder(watched: Watched, tmp_path: Path) -> None:
    """What the rules would see is a private key."""
    old = watched.engine.status().revision
    (tmp_path / "result.pem").write_text("secret: key\n")
    (watched.path / "k").mkdir()
    (watched.path / "k" / "data.yaml").symlink_to("../../result.pem")
    await watched.settles()
    ((fault,),) = [refused.faults for refused in watched.refused]
    assert (fault.file, fault.message) == ("k/data.yaml", "a link that leads out of the folder")
    assert watched.engine.status().revision == old
