"""Whose directory it is: a second daemon, another owner, a read-only mount, an older copy, no folder at all."""

from __future__ import annotations

import os
import shutil

import pytest
from click.testing import CliRunner

from kblockd.cli.kblockd import kblockd
from kblockd.client import ApprovalPending
from tests.crash.damage.damages import older
from tests.crash.damage.estate import Estate
from tests.crash.damage.mounts import read_only

pytestmark = pytest.mark.xdist_group("damage")


def refusal(estate: Estate) -> str:
    """What the daemon said when it refused to start."""
    estate.site.start(wait=False)
    assert estate.site.wait_dead() == 1, estate.site.said()
    said = estate.site.said()
    assert "kblockd refuses to start" in said
    assert "Next step" in said or "in the configuration; nothing was started" in said
    assert "Traceback" not in said
    return said


def verify(estate: Estate, *arguments: str) -> tuple[int, str]:
    """``kblockd ledger verify``."""
    done = CliRunner().invoke(kblockd, ["ledger", "verify", *arguments, "--config", str(estate.site.config)])
    return done.exit_code, done.output


def test_led_06_a_second_daemon_is_refused_and_the_first_goes_on(estate: Estate) -> None:
    """LED-06: directory and pid are named; sockets and store of the first are untouched."""
    estate.lay("stopped")
    estate.site.start()
    first = estate.site.process
    assert first is not None
    estate.site.process = None
    second = refusal(estate)
    estate.site.process = first
    assert f"is in use by process {first.pid}" in second
    done = CliRunner().invoke(kblockd, ["ledger", "export", "--out", "/nowhere", "--config", str(estate.site.config)])
    assert done.exit_code == 1
    assert "is in use by process" in done.output
    with estate.site.client() as agent:
        assert isinstance(agent.execute(estate.stories["pending"].call), ApprovalPending)
    assert estate.site.stop() == 0


@pytest.mark.parametrize("part", ["", "store", "head"])
def test_a_directory_of_another_owner_is_refused(estate: Estate, part: str) -> None:
    """Another's files, or files that were restored as the wrong user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = estate.lay("stopped") / part
    os.chown(path, 12345, -1)
    said = refusal(estate)
    assert "belongs to u" in said
    assert "12345" in said
    assert "chown" in said


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(estate: Estate, mode: int) -> None:
    """Whoever may rename store/ and head could have the next start begin an empty ledger."""
    data = estate.lay("stopped")
    data.chmod(mode)
    said = refusal(estate)
    assert f"mode {mode:04o}" in said
    assert f"chmod 700 {data}" in said or f"chmod go-w {data}" in said
    data.chmod(0o700)
    estate.site.start()
    assert estate.site.stop() == 0


def test_led_19_a_read_only_mount_is_refused_and_can_be_verified(estate: Estate) -> None:
    """LED-19: a real error of a real mount, in words; what only reads works there."""
    data = estate.lay("stopped")
    with read_only(data):
        assert "Read-only file system" in refusal(estate)
        code, said = verify(estate)
        assert code == 0, said
        out = estate.site.folder / "read-only.jsonl"
        done = CliRunner().invoke(kblockd, ["ledger", "export", "--out", str(out), "--config", str(estate.site.config)])
        assert done.exit_code == 0, done.output


def test_a_data_dir_that_is_not_there_is_refused(estate: Estate) -> None:
    """A mount that failed must not become a new ledger."""
    data = estate.lay("stopped")
    shutil.rmtree(data)
    estate.site.start(wait=False)
    assert estate.site.wait_dead() == 1
    assert "kblockd refuses to start" in estate.site.said()
    assert "Traceback" not in estate.site.said()
    assert not data.exists()


def test_rcp_01_an_older_copy_of_everything_is_shown_by_a_checkpoint_kept_elsewhere(estate: Estate) -> None:
    """RCP-01, and an honest limit: an older store with its own head is consistent in itself, so nothing inside can
    tell; whoever kept a newer checkpoint can."""
    data = estate.lay("killed")
    older("store", "head")(data, estate.images)
    kept = estate.site.folder / "kept-checkpoint"
    kept.write_text(estate.checkpoint)
    code, said = verify(estate, "--checkpoint", str(kept))
    assert code == 1
    assert f"ledger of {estate.sizes['stopped']} records" in said
    assert "was handed out" in said
    estate.lay("killed")
    code, said = verify(estate, "--checkpoint", str(kept))
    assert code == 0, said
