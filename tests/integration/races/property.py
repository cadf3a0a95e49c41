"""The one property of all races, stated once: a change is seen by the consumption, or by the send marker and the last
look behind it, or it provably came after them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kblockd.client.answers import Answer
from kblockd.client.errors import CallError
from kblockd.domain.ledger import rows
from kblockd.execution.mark_sent import RELIED_ON_CHANGED
from tests.integration.pipeline.local import effects
from tests.integration.races.changes import Change, Expired, PolicyForbids, Revoked
from tests.integration.staged import StagedSite
from tests.upstreams.payments import PaymentsServer

UNUSED = ("approved", "revoked", "expired", "void")


@dataclass(frozen=True)
class Raced:
    """A call that met a change: which execution it was, and what it was told."""

    site: StagedSite
    pay: PaymentsServer
    order: str
    execution_id: str
    approval_id: str
    told: Answer | CallError

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(index, record) of everything that came into the ledger since the action was proposed, in order."""
        _, row = self.site.run(self.site.parts.store.get(rows.execution(self.execution_id)))
        after: int | None = row.records[0]
        while after is not None:
            page = self.site.reader.read_ledger(from_index=after, limit=500)
            for index, leaf in page.leaves:
                record = json.loads(leaf)
                if record.get("v") == "kblockd.record/1":
                    yield index, record
            after = page.next_index

    def claims(self) -> list[tuple[int, dict[str, Any]]]:
        """The consumption, and what was claimed again under it."""
        return self._of("execution.claimed")

    def sent(self) -> list[tuple[int, dict[str, Any]]]:
        """The send markers."""
        return self._of("execution.sent")

    def made(self) -> list[int]:
        """The attempts that were marked and not taken back: the ones at which the upstream was called."""
        outcomes = {r["attempt"]: r["body"]["code"] for _, r in self._of("attempt.outcome")}
        return [r["attempt"] for _, r in self.sent() if outcomes[r["attempt"]] != RELIED_ON_CHANGED]

    def _of(self, type_: str) -> list[tuple[int, dict[str, Any]]]:
        found = self.records()
        return [(i, r) for i, r in found if (r["type"], r["execution"]) == (type_, self.execution_id)]


def check_seen_or_after(race: Raced, change: Change) -> bool:
    """Whether it was seen.

    Seen: the call was refused for it, nothing is consumed, the upstream is untouched. Not seen: each claim and each
    marker stands in the ledger before the change does (or the change was refused for coming too late), and the call
    ended well, once, or without an effect and with the change as its reason (APV-01).
    """
    assert race.site.boundaries.clear() == [], "the call never came to where the change waited"
    claims = race.claims()
    if not claims:
        _check_refused(race, change)
        return True
    _check_ended(race, change)
    check_no_claim_after(race, change)
    return False


def check_no_claim_after(race: Raced, change: Change) -> None:
    """Nothing was claimed, for the first time or again, or marked as sent, on what had changed before it by the
    ledger's own order."""
    for index, claim in race.claims():
        _check_before(race, change, index, claim)
    if change.reasons and change.type is not None:
        changes = [i for i, record in race.records() if record["type"] == change.type]
        assert all(marker < changed for marker, _ in race.sent() for changed in changes), (race.sent(), changes)


def _check_ended(race: Raced, change: Change) -> None:
    """Well, and once; or, where the change came before the bytes left, without them and because of it."""
    assert isinstance(race.told, Answer), race.told
    ended = (race.told.state, race.told.result_class, race.told.code)
    happened = len(effects(race.pay, race.order))
    if ended == ("succeeded", "completed_verified", ""):
        assert len(race.made()) == happened == 1
        return
    unsent = "failed_before_side_effect" if race.sent() else "not_started"
    assert ended[:2] == ("failed", unsent), ended
    assert ended[2] in change.reasons | ({"DEADLINE_PASSED"} if isinstance(change, Expired) else set()), ended
    assert happened == 0


def _check_before(race: Raced, change: Change, index: int, claim: dict[str, Any]) -> None:
    changes = [i for i, record in race.records() if record["type"] == change.type]
    if isinstance(change, Expired):
        approval = race.site.run(race.site.parts.store.get(rows.approval(race.approval_id)))[1]
        assert claim["at"] < approval.not_after, (claim, approval)
    elif change.reasons:
        assert bool(changes) != change.too_late, "the change is not on record, or is although it was refused"
        assert all(index < changed for changed in changes), (index, changes)
    if isinstance(change, PolicyForbids):
        in_force = [r["body"]["revision"] for i, r in race.records() if i < index and r["type"] == change.type]
        assert claim["body"]["policy_revision"] in in_force[-1:] or not in_force


def _check_refused(race: Raced, change: Change) -> None:
    if isinstance(race.told, CallError):
        assert race.told.reason in change.reasons, race.told
        assert (race.told.executed, race.told.consumed) == (False, False)
    else:
        assert (race.told.status.name, race.told.consumed) == ("DENIED", False), race.told
    approval = race.site.run(race.site.parts.store.get(rows.approval(race.approval_id)))[1]
    assert approval.state in UNUSED, approval
    if isinstance(change, Revoked):
        execution = race.site.run(race.site.parts.store.get(rows.execution(race.execution_id)))[1]
        assert (approval.state, execution.state, execution.code) == ("revoked", "rejected", "APPROVAL_REVOKED")
    assert race.sent() == []
    assert effects(race.pay, race.order) == []
