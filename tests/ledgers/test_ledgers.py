"""Every kept ledger opens in today's build, after the upgrade command, and goes on by what it holds.

The configuration is today's, so that contracts and policies may have changed; data, keys and effects are the archive's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kblockd.client.answers import Answer
from kblockd.domain.outcome import Finding
from tests.harness import Site
from tests.ledgers import site as golden
from tests.upstreams.payments import PaymentsServer

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("*.tar.gz"))
CLOSED = ("succeeded", "failed", "rejected")
CURRENT = "0.1.2"  # the archive whose stored forms are today's: there is nothing to upgrade


@dataclass(frozen=True)
class Opened:
    """An old ledger under a daemon of today."""

    site: Site
    payments: PaymentsServer
    story: dict[str, dict[str, Any]]
    refusal: str  # what the daemon said before the upgrade; empty where there was nothing to upgrade

    def named(self, *states: str) -> list[str]:
        """The orders whose executions were in one of these states when the archive was made."""
        return [order for order, told in self.story.items() if told.get("state") in states]

    def answer(self, order: str) -> Answer:
        """As the ledger has it now."""
        with self.site.client("operator") as operator:
            return operator.get(execution_id=self.story[order]["execution_id"]).answer

    def ended(self, order: str, seconds: float = 60.0) -> Answer:
        """Once it is closed."""
        limit = time.monotonic() + seconds
        while (answer := self.answer(order)).state in ("executing", "pending_approval", "approved"):
            assert time.monotonic() < limit, (order, answer)
            time.sleep(0.1)
        return answer

    def verified(self) -> dict[str, Any]:
        """``kblockd ledger verify``."""
        found: dict[str, Any] = json.loads(
            self.site.command("ledger", "verify", "--json", "--config", str(self.site.config), check=False)
        )
        return found


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Unpacked, upgraded, served."""
    with Site.make() as site, tarfile.open(request.param) as archive:
        archive.extractall(site.folder, filter="tar")  # with its modes
        with golden.upstreams(site.folder) as (payments, shop):
            golden.configure(site, payments, shop)
            refusal = "" if request.param.name == f"{CURRENT}.tar.gz" else _refused(site)
            site.command("ledger", "upgrade", "--config", str(site.config))
            story = json.loads((site.folder / "story.json").read_text())
            found = Opened(site, payments, story, refusal)
            assert found.verified()["ok"]
            site.start()
            yield found


def _refused(site: Site) -> str:
    command = [sys.executable, "-m", "kblockd", "serve", "--config", str(site.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_there_is_one_at_all() -> None:
    names = [path.name.removesuffix(".tar.gz") for path in ARCHIVES]
    assert (names[0], names[-1]) == ("0.1.0", CURRENT)


def test_before_the_upgrade_the_start_names_the_command(opened: Opened) -> None:
    """Nothing is changed behind the operator's back, and nothing is served that is half of another form."""
    assert not opened.refusal or "kblockd ledger upgrade" in opened.refusal


def test_a_repeat_of_what_was_closed_gets_the_answer_of_then(opened: Opened) -> None:
    """Also under contracts and policies that have changed since."""
    for order in opened.named(*CLOSED):
        told = opened.story[order]
        if not told["keyed"]:
            continue
        with opened.site.client() as agent:
            again = agent.execute(golden.call(told["environment"], order, amount=told["amount"]))
        for name in ("execution_id", "state", "result_class", "code", "executed", "consumed", "outcome_unknown"):
            assert getattr(again, name) == told[name], (order, name)
        output = None if again.output is None else json.dumps(again.output, sort_keys=True)
        assert (output, bool(again.receipt_dsse)) == (told["output"], told["receipt"]), order


def test_every_receipt_still_verifies(opened: Opened, tmp_path: Path) -> None:
    """With the stand-alone verifier and the keys of then."""
    folder = opened.site.data / "keys"
    trust = ["--root", str(folder / "root.pub.pem"), "--keyset", str(folder / "keyset.dsse.json")]
    verifier = [sys.executable, "-I", "kblockd/evidence/verify_offline.py", *trust]
    checked = 0
    for order, told in opened.story.items():
        if not told.get("receipt"):
            continue
        answer = opened.answer(order)
        for name, data in (("r", answer.result_dsse), ("c", answer.receipt_dsse), ("p", answer.receipt_proof.encode())):
            (tmp_path / name).write_bytes(data)
        parts = ["--result", str(tmp_path / "r"), "--receipt", str(tmp_path / "c"), "--proof", str(tmp_path / "p")]
        done = subprocess.run([*verifier, *parts], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (order, done.stdout, done.stderr)
        checked += 1
    assert checked >= 5


def test_what_was_waiting_ends_without_an_effect(opened: Opened) -> None:
    """Its time is over by now, whatever the contract says today."""
    for order in opened.named("pending_approval", "approved"):
        ended = opened.ended(order)
        assert (ended.state, ended.executed, ended.consumed) in (
            ("expired", False, False),
            ("cancelled", False, False),
        ), (order, ended)


def test_what_was_executing_is_settled_by_what_really_happened(opened: Opened) -> None:
    """Sent and killed: looked up, found, proved. Claimed and killed: nothing was sent, and nothing is any more."""
    sent, claimed, verifying = (opened.ended(order) for order in ("sent", "claimed", "verifying"))
    assert (sent.state, sent.result_class) == ("succeeded", "completed_verified")
    assert (verifying.state, verifying.result_class) == ("succeeded", "completed_verified")
    assert (claimed.state, claimed.result_class, claimed.executed) == ("failed", "not_started", False)


def test_what_was_held_can_be_resolved(opened: Opened) -> None:
    """By an operator who was shown the same execution."""
    for order in opened.named("held"):
        with opened.site.client("operator") as operator:
            sealed = operator.resolve(opened.story[order]["execution_id"], Finding.UNPROVABLE, "nobody knows any more")
        assert sealed.state == "failed", (order, sealed)
        assert sealed.receipt_dsse, order


def test_no_deed_was_done_again(opened: Opened) -> None:
    """After all of the above: every effect is the one that the archive came with, and the ledger verifies."""
    done = [effect["order_id"] for effect in opened.payments.effects()]
    assert len(done) == len(set(done))
    opened.site.stop()
    assert opened.verified()["ok"]
