"""Makes a golden ledger with the build that is checked out: every kind of execution, then SIGKILL.

``python -m tests.ledgers.make NAME`` writes ``tests/ledgers/NAME.tar.gz``: the data directory with its keys, the
configuration of that build, the effects that really happened, and ``story.json`` with every answer that was given. A
change of anything that is stored adds one; those that exist are never made again. ``test_ledgers.py`` opens them all.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kblockd.client import Answer, Call
from kblockd.client.errors import CallError
from kblockd.domain.outcome import Finding
from tests.harness import Site, approve, revoke
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.shop import Shop
from tests.ledgers import site as golden
from tests.upstreams.messages import Reply
from tests.upstreams.payments import PaymentsServer, Switches

HERE = Path(__file__).parent
_LEFT_OUT = {"ballast", "lock", "LOCK", "policy.json", "LOG", "README.md"}
_SAID = ("state", "result_class", "code", "executed", "consumed", "outcome_unknown", "approval_id", "execution_id")


class Story:
    """What was asked, and the last answer to it, by the order's name."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.told: dict[str, dict[str, Any]] = {}

    def ask(self, call: Call) -> Answer | None:
        """Calls as the agent; a refusal is told, too."""
        order = call.envelope.target.id
        with self.site.client() as agent:
            try:
                answer = agent.execute(call)
            except CallError as refused:
                self.told[order] = {**_named(call), "refused": refused.reason}
                return None
        self.tell(call, answer)
        return answer

    def tell(self, call: Call, answer: Answer) -> None:
        """The last answer counts."""
        said = {name: getattr(answer, name) for name in _SAID}
        said["output"] = None if answer.output is None else json.dumps(answer.output, sort_keys=True)
        said["receipt"] = bool(answer.receipt_dsse)
        self.told[call.envelope.target.id] = {**_named(call), **said}

    def run(self, call: Call) -> Answer:
        """Asked, approved, executed."""
        pending = self.ask(call)
        assert pending is not None
        approve(self.site, pending.approval_id)
        answer = self.ask(call)
        assert answer is not None
        return answer

    def start(self, call: Call) -> None:
        """Asked and approved; the execution goes on while nobody waits."""
        pending = self.ask(call)
        assert pending is not None
        approve(self.site, pending.approval_id)
        threading.Thread(target=self._abandoned, args=(call,), daemon=True).start()

    def _abandoned(self, call: Call) -> None:
        with self.site.client() as agent:
            try:
                agent.execute(call)
            except CallError:
                return  # the daemon was killed

    def phase(self, order: str) -> str:
        """Where it stands now."""
        with self.site.client("operator") as operator:
            answer = operator.get(execution_id=self.told[order]["execution_id"]).answer
        self.told[order].update({name: getattr(answer, name) for name in _SAID})
        return str(answer.phase)


def tell(story: Story, payments: PaymentsServer, shop: Shop) -> None:
    """All but the last minute of this daemon's life."""
    site = story.site
    story.run(golden.call("production", "verified"))
    story.run(golden.call("production", "keyless", keyed=False))
    story.run(golden.call("unproved", "unproved"))
    story.ask(golden.call("bench", "allowed"))
    shop.shop.answers["accepted"] = shops.accepted
    shop.shop.done.set()
    story.run(golden.call("shop", "accepted"))
    shop.shop.answers["doubled"] = lambda row: _doubled(shop, row)
    story.run(golden.call("shop", "doubled"))
    _faults(story, payments)
    story.ask(golden.call("production", "denied-by-policy", amount="900000.00"))
    denied = story.ask(golden.call("production", "denied-by-lead"))
    revoked = story.ask(golden.call("production", "revoked"))
    assert denied is not None
    assert revoked is not None
    approve(site, denied.approval_id, "deny")
    revoke(site, revoked.approval_id)
    for order in ("denied-by-lead", "revoked"):
        story.phase(order)
    story.ask(golden.call("production", "NONE-such-order"))  # asked, and its approval stays open
    story.ask(golden.call("production", "verified", amount="50.00"))  # another call under a used key
    story.ask(golden.call("production", "verified"))
    story.ask(golden.call("production", "pending"))
    approved = story.ask(golden.call("production", "approved"))
    assert approved is not None
    approve(site, approved.approval_id)
    story.phase("approved")


def _doubled(shop: Shop, row: Mapping[str, Any]) -> Reply:
    shop.shop.refunds.add(dict(row), "by-hand")
    return shops.created(row)


def _faults(story: Story, payments: PaymentsServer) -> None:
    """What went wrong, one after another; every switch is back in its place afterwards."""
    for order, environment, fault in (
        ("lost-and-found", "production", {"lose_answer_once": True}),
        ("refused-by-tool", "production", {"refuse": True}),
        ("error-after-effect", "twice", {"error_after_effect": True}),
        ("held-unknown", "blind", {"lose_answer_once": True}),
        ("resolved-present", "blind", {"lose_answer_once": True}),
        ("resolved-absent", "blind", {"refuse": True}),
        ("sealed-unknown", "blind", {"lose_answer_once": True}),
    ):
        payments.control(**fault)
        story.run(golden.call(environment, order))
        payments.control(**dataclasses.asdict(Switches()))
    for order, finding in (
        ("resolved-present", Finding.PRESENT),
        ("resolved-absent", Finding.ABSENT),
        ("sealed-unknown", Finding.UNPROVABLE),
    ):
        told = story.told[order]
        with story.site.client("operator") as operator:
            operator.resolve(told["execution_id"], finding, "looked up in the provider's books")
        story.phase(order)
        story.ask(golden.call(told["environment"], order))


def end(story: Story, payments: PaymentsServer) -> None:
    """Killed while one execution is verified, one has sent its call, and one is claimed and has not (the failpoint)."""
    payments.control(list_lag_seconds=600.0)
    story.start(golden.call("slow", "verifying"))
    _until(lambda: story.phase("verifying") == "verifying")
    story.start(golden.call("production", "claimed"))
    _until(lambda: story.phase("claimed") == "claimed")
    payments.control(stall_seconds=600.0)
    story.start(golden.call("production", "sent"))
    _until(lambda: any(effect["order_id"] == "sent" for effect in payments.effects()))
    story.phase("sent")
    story.site.kill()


def pack(site: Site, payments: PaymentsServer, story: Story, target: Path) -> None:
    """What a later build needs, and nothing that it makes itself."""
    told = site.folder / "story.json"
    told.write_text(json.dumps(story.told, indent=1, sort_keys=True))
    with tarfile.open(target, "w:gz") as archive:
        for path in (site.data, site.config.parent, site.root_key, told):
            archive.add(path, path.relative_to(site.folder), filter=_kept)
        archive.add(payments.state, payments.state.name)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    return None if name in _LEFT_OUT or name.startswith("LOG.old") else member


def _named(call: Call) -> dict[str, Any]:
    envelope = call.envelope
    arguments = json.loads(envelope.arguments_json)
    return {"environment": envelope.environment, "keyed": call.key is not None, "amount": arguments["amount"]}


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > limit:
            raise TimeoutError("the execution never came there")
        time.sleep(0.05)


def main(name: str) -> None:
    """Writes the archive and says what is in it."""
    target = HERE / f"{name}.tar.gz"
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        golden.upstreams(Path(folder)) as (payments, shop),
        Site.make() as site,
    ):
        golden.configure(site, payments, shop)
        site.start()
        story = Story(site)
        tell(story, payments, shop)
        assert site.stop() == 0
        site.start("mark_sent:before=stall@2")
        end(story, payments)
        pack(site, payments, story, target)
    for order, told in sorted(story.told.items()):
        print(f"{order:20} {told.get('state', told.get('refused'))} {told.get('result_class', '')}")
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
