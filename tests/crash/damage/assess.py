"""One damage, seen by everybody: the daemon, ``ledger verify``, ``ledger export``, the caller and the upstream."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, replace
from enum import StrEnum

from click.testing import CliRunner

from kblockd.cli.kblockd import kblockd
from kblockd.client import ApprovalPending, CallError, Held
from kblockd.ledger.merkle import MerkleTree
from tests.crash.daemon.story import call
from tests.crash.damage.damages import Damage, Deed, Fate
from tests.crash.damage.estate import Estate


class Start(StrEnum):
    """How a start ended."""

    SERVES = "serves"
    REFUSED = "refuses to start"  # exit code 1
    FAILED = "fails"  # exit code 75: a compaction read what was damaged


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of the table."""

    damage: Damage
    start: Start
    said: str
    verified: bool
    verify_said: str
    export: str
    lost: int
    served: str = ""


_STARTS = {
    Fate.REFUSED: {Start.REFUSED},
    Fate.WHOLE: {Start.SERVES},
    Fate.OLDER: {Start.SERVES},
    Fate.UNSEEN: {Start.SERVES, Start.FAILED},
}


def assess(estate: Estate, damage: Damage) -> Finding:
    """Does the damage to a fresh copy and lets everybody look; raises AssertionError when somebody is silent."""
    data = estate.lay(damage.image)
    damage.deed(data, estate.images)
    verify_exit, verify_said = _command(estate, "ledger", "verify")
    export_said, lost = _export(estate, damage)
    start, said = _start(estate)
    finding = Finding(damage, start, said, verify_exit == 0, verify_said, export_said, lost)
    if start is Start.SERVES:
        finding = replace(finding, served=_serve(estate, damage))
    estate.site.kill()
    sent = {story.order for story in estate.stories.values()}
    assert all(len(estate.world.effects(order)) <= 1 for order in sent), "an effect happened twice"
    assert len(estate.world.payments.effects()) == estate.effects, "something was sent again"
    return finding


def check(finding: Finding) -> None:
    """What was wanted of this damage; raises AssertionError."""
    damage = finding.damage
    assert finding.verified == damage.verifies, finding
    assert "Traceback" not in finding.said + finding.verify_said + finding.export, finding
    assert finding.start in _STARTS[damage.fate], finding
    if damage.fate is Fate.REFUSED:
        assert "kblockd refuses to start" in finding.said
        assert damage.says in finding.said, finding.said
        assert "ext step" in finding.said or "keys/" in finding.said, finding.said
    if finding.start is Start.FAILED:
        assert "Corruption" in finding.said
        assert "Next step" in finding.said
    if damage.lost is not None:
        assert finding.lost == damage.lost, finding


def never_silent(estate: Estate, image: str, deed: Deed) -> str:
    """Whatever the damage: who starts holds everything that was acknowledged, or verification says that it does not.

    Returns what came of it in a word.
    """
    damage = Damage("at random", image, deed, Fate.WHOLE)
    data = estate.lay(image)
    deed(data, estate.images)
    verify_exit, verify_said = _command(estate, "ledger", "verify")
    _, lost = _export(estate, damage)
    assert lost == 0 or verify_exit == 1, (lost, verify_said)
    start, said = _start(estate)
    if start is Start.SERVES and verify_exit == 0:
        start = _serve_or_end(estate, damage)
    estate.site.kill()
    assert "Traceback" not in said, said
    assert len(estate.world.payments.effects()) == estate.effects, "something was sent again"
    return f"{start}, {'verified' if verify_exit == 0 else 'not verified'}"


def _serve_or_end(estate: Estate, damage: Damage) -> Start:
    """Payloads can be erased, so the ledger verifies without them: whoever reads a spoiled one ends the daemon."""
    try:
        _serve(estate, damage)
    except (AssertionError, CallError):
        if "Corruption" not in estate.site.log.read_text():
            raise
        assert estate.site.wait_dead() == 75
        assert "Next step" in estate.site.said()
        return Start.FAILED
    return Start.SERVES


def _command(estate: Estate, *arguments: str) -> tuple[int, str]:
    """A sentence and an exit code, whatever the files are like."""
    done = CliRunner().invoke(kblockd, [*arguments, "--config", str(estate.site.config)])
    assert done.exception is None or isinstance(done.exception, SystemExit), (arguments, done.exception)
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, done.output


def _export(estate: Estate, damage: Damage) -> tuple[str, int]:
    """What was said, and how many of the records that were once acknowledged did not come out."""
    file = estate.site.folder / "export.jsonl"
    file.unlink(missing_ok=True)
    code, said = _command(estate, "ledger", "export", "--out", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    size = estate.sizes["stopped" if damage.fate is Fate.OLDER else damage.image]
    lost = size - len(lines)
    assert lost == 0 or code == 1, f"{lost} records lost, and the export says nothing: {said}"
    _check_export(estate, lines, size)
    return said, lost


def _check_export(estate: Estate, lines: list[dict[str, str]], size: int) -> None:
    """A whole export is the ledger: it has the root that was acknowledged."""
    if len(lines) < size:
        return
    tree = MerkleTree()
    tree.append(0, [base64.b64decode(line["leaf"]) for line in lines])
    assert tree.root() in (root for known, root in estate.roots.items() if known == size)


def _start(estate: Estate) -> tuple[Start, str]:
    """Whether it serves (at first), and what it said."""
    estate.site.start(wait=False)
    try:
        estate.site.wait_serving()
    except RuntimeError:
        assert estate.site.process is not None
        code = estate.site.process.poll()
        assert code in (1, 75), (code, estate.site.said())
        return Start.REFUSED if code == 1 else Start.FAILED, estate.site.said()
    return Start.SERVES, estate.site.said()


def _serve(estate: Estate, damage: Damage) -> str:
    """What callers and auditors get from a daemon that has started."""
    if damage.fate is Fate.UNSEEN:
        return _served_unseen(estate, damage)
    if damage.image == "killed" and damage.fate is Fate.WHOLE:
        _wait_said(estate, "verifies after the unclean stop")
    stories = estate.stories
    with estate.site.client() as agent:
        closed = stories["closed"].answered
        assert closed is not None
        assert agent.execute(stories["closed"].call).result_dsse == closed.result_dsse
        pending = agent.execute(stories["pending"].call)
        assert isinstance(pending, ApprovalPending)
        assert stories["pending"].pending is not None
        assert pending.approval_id == stories["pending"].pending.approval_id
        assert isinstance(agent.execute(stories["held"].call), Held)
    if damage.fate is Fate.OLDER:
        return "nothing inside can tell; a checkpoint that was kept elsewhere does"
    if damage.image == "killed" and damage.fate is Fate.WHOLE:
        sent = replace(stories["sent"])  # each copy of the image has a future of its own
        sent.check_completed(sent.finish())
    return "everything that was acknowledged is there"


def _served_unseen(estate: Estate, damage: Damage) -> str:
    """Whoever reads there ends the daemon, and the next start verifies; then nothing is sent.

    After an orderly stop an auditor reads it. After a kill it is a race of two that are both right: recovery, where an
    execution that it settles has a record there, and the verification.
    """
    served = ""
    if damage.image == "stopped":
        with estate.site.client("auditor") as auditor:
            try:
                for first in range(0, estate.sizes["stopped"], 1000):
                    auditor.read_ledger(first, 1000)
            except CallError as error:
                served = f"the read fails ({error.reason}) and the daemon exits with 75; then "
        assert served, "all records could be read"
        assert estate.site.wait_dead() == 75
        assert "cannot be read" in estate.site.said()
        estate.site.start(wait=False)
    if not _distrusted(estate):
        assert estate.site.wait_dead() == 75
        said = estate.site.said()
        assert "Corruption" in said
        assert "Next step" in said
        return served + "recovery finds it: the daemon exits with 75"
    with estate.site.client() as agent:
        try:
            agent.execute(call("another order", "another key", wait_seconds=1))
        except CallError as error:
            return served + f"verification finds it: NOT_SERVING, new calls get {error.reason}"
    raise AssertionError("a ledger that does not verify takes new calls")


def _distrusted(estate: Estate, seconds: float = 60.0) -> bool:
    """Whether verification finds it, or else the daemon has ended."""
    limit = time.monotonic() + seconds
    while "NOT_SERVING" not in estate.site.log.read_text():
        if estate.site.process is None or estate.site.process.poll() is not None:
            return False
        assert time.monotonic() < limit, estate.site.said()[-2000:]
        time.sleep(0.02)
    return True


def _wait_said(estate: Estate, text: str, seconds: float = 60.0) -> None:
    limit, process = time.monotonic() + seconds, estate.site.process
    while text not in (said := estate.site.log.read_text()):
        assert process is not None
        assert process.poll() is None, said[-2000:]
        assert time.monotonic() < limit, said[-2000:]
        time.sleep(0.02)
