"""What policy alone may not let happen, signed approvals that do not hold, and lost races."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from msgspec.structs import replace

from kblockd.client.answers import ApprovalPending, Completed, UpstreamError
from kblockd.client.calls import Call
from kblockd.client.errors import (
    AbortedError,
    AlreadyExistsError,
    CallError,
    FailedPreconditionError,
    PermissionDeniedError,
)
from kblockd.domain.canonical import sha256_hex
from kblockd.domain.clock import rfc3339
from kblockd.domain.envelope import TargetPin
from kblockd.domain.ledger import rows
from kblockd.domain.stages import Stage
from kblockd.evidence import dsse
from kblockd.evidence.receipts import sign_statement
from kblockd.evidence.statements import Approval, read
from kblockd.store.protocol import Append, Conflict
from tests.harness import approve, refund, refund_contract
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    news,
    order,
    refund_in,
    size,
    types,
    until,
    variants,
)
from tests.upstreams.payments import PaymentsServer

OBSERVED_UNTIL = rfc3339(dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
FINAL: Final[dict[str, dict[str, Any]]] = {
    "point_of_no_return": {"point_of_no_return": True},
    "irreversible_step": {"recovery": {"irreversible_step": True}},
}
PAYMENTS = {"production": {}, "twice": {"execution": {"maximum_attempts": 2}}}


def unread(operation: str, change: dict[str, Any], **action: str) -> dict[str, Any]:
    """A contract whose effect is not read back, for an operation of its own."""
    base = {
        "action": {"type": operation, **action},
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
    return refund_contract({**base, **change})


def permissive() -> dict[str, Any]:
    """Operations that policy lets through at once: allowed by their low risk, or observed; some past no return."""
    found = {}
    for name, change in {"plain": {}, **FINAL}.items():
        found[f"allow.{name}"] = unread(f"note.allow.{name}", change, environment="staging", risk_tier="low")
        found[f"observe.{name}"] = unread(f"note.observe.{name}", change)
    return found


@pytest.fixture(scope="module")
def gaps(payments: PaymentsServer) -> Iterator[LocalSite]:
    """A daemon whose policy observes some operations until long after this test."""
    with LocalSite.make() as made:
        made.configure(
            payments.url,
            contracts={**variants(PAYMENTS), **permissive()},
            daemon={"clocks": {**LONG_LEASE, "reconcile_seconds": 8}},
            upstream=PATIENT_BREAKER,
        )
        table = json.dumps({f"note.observe.{name}": OBSERVED_UNTIL for name in ("plain", *FINAL)})
        made.edit_policy("decision.rego", "observed := {}", f"observed := {table}")
        (made.config.parent / "policy" / "decision_test.rego").unlink()
        made.pin()
        made.start()
        yield made


# Past a point of no return


@pytest.mark.parametrize("flag", FINAL)
@pytest.mark.parametrize(("word", "environment"), [("allow", "staging"), ("observe", "production")])
def test_r003_past_a_point_of_no_return_nothing_runs_before_a_person_approves(
    gaps: LocalSite, pay: PaymentsServer, word: str, environment: str, flag: str
) -> None:
    """R003, R307, R736, R762: the policy lets the same deed run at once where it can be undone; here it waits, however
    often it is called, for one person of another owner, and runs once then."""
    free, mine = order(), order()
    with gaps.client() as agent:
        at_once = agent.execute(refund_in(environment, free, key=free, operation=f"note.{word}.plain"))
    assert isinstance(at_once, Completed)
    assert body(gaps, at_once.execution_id, "execution.proposed")["effect"] == word
    call = refund_in(environment, mine, key=mine, operation=f"note.{word}.{flag}")
    pending = ask(gaps, call)
    assert ask(gaps, call).execution_id == pending.execution_id
    assert types(gaps, pending.execution_id) == ["execution.proposed", "approval.requested"]
    proposed = body(gaps, pending.execution_id, "execution.proposed")
    assert (proposed["effect"], proposed["observe_until"]) == ("require_approval", "")
    assert body(gaps, pending.execution_id, "approval.requested")["count"] == 1
    for who in ("other", "colleague"):  # an agent, and a person of the requester's own team
        with pytest.raises(PermissionDeniedError):
            approve(gaps, pending.approval_id, who=who)
    assert ask(gaps, call).state == "pending_approval"
    assert effects(pay, mine) == []
    approve(gaps, pending.approval_id)
    with gaps.client() as agent:
        assert isinstance(agent.execute(call), Completed)
    assert body(gaps, pending.execution_id, "execution.claimed")["approval_id"] == pending.approval_id
    assert len(effects(pay, mine)) == 1


def test_r736_an_irreversible_step_comes_after_every_check_that_can_be_undone(
    gaps: LocalSite, pay: PaymentsServer
) -> None:
    """R307, R736: approved, but the target is not as it was reviewed: refused before anything is consumed or sent."""
    mine, operation = order(), "note.allow.irreversible_step"
    arguments = {"order_id": mine, "amount": "100.00", "currency": "EUR"}
    pending = ask(gaps, Call.of(operation, "staging", target=mine, arguments=arguments, key=mine))
    approve(gaps, pending.approval_id)
    call = Call.of(operation, "staging", target=TargetPin(id=mine, version="7"), arguments=arguments, key=mine)
    with gaps.client() as agent, pytest.raises(FailedPreconditionError) as caught:
        agent.execute(call)
    assert (caught.value.reason, caught.value.executed, caught.value.consumed) == ("PIN_MISMATCH", False, False)
    assert not {"execution.claimed", "execution.sent"} & set(types(gaps, pending.execution_id))
    assert effects(pay, mine) == []


# The signed approval


class Stranger:
    """A signer whose key is in no key set."""

    key_id = "A" * 43
    public_key = bytes(32)

    def sign(self, message: bytes) -> bytes:
        return bytes(64)


Tamper = Callable[[Any, bytes, bytes], bytes | None]  # parts, the statement's envelope, that of another approval


def _flipped(_: Any, envelope: bytes, __: bytes) -> bytes:
    return envelope[:-1] + bytes([envelope[-1] ^ 1])


def _reworded(_: Any, envelope: bytes, __: bytes) -> bytes:
    document = json.loads(envelope)
    document["payload"] = base64.b64encode(
        base64.b64decode(document["payload"]).replace(b"local:lead", b"local:chief")
    ).decode()
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _signed_by(signer: Any, parts: Any, envelope: bytes) -> bytes:
    found = dsse.verify(envelope, dsse.STATEMENT_TYPE, parts.keys.keyset.raw)
    return sign_statement(read(found.payload, Approval), signer).envelope


TAMPERED: Final[dict[str, tuple[Tamper, bool, str]]] = {
    # what is done, whether the digest in the approval's row is made to fit, and what the refusal says
    "missing": (lambda *_: None, False, "its signed form is gone"),
    "emptied": (lambda *_: b"", False, "its signed form is gone"),
    "flipped": (_flipped, False, "its signed form is gone"),
    "emptied-and-hidden": (lambda *_: b"", True, "its signature does not hold"),
    "flipped-and-hidden": (_flipped, True, "its signature does not hold"),
    "reworded-and-hidden": (_reworded, True, "its signature does not hold"),
    "stranger": (lambda parts, envelope, _: _signed_by(Stranger(), parts, envelope), True, "its signature does not"),
    "wrong-role": (lambda parts, envelope, _: _signed_by(parts.keys.result, parts, envelope), True, "does not hold"),
    "of-another-action": (lambda _, __, other: other, True, "it does not bind this action"),
}


@dataclasses.dataclass
class Tampering:
    """The store of a running daemon that answers otherwise for one approval; nothing on disk changes.

    ``from_marker``: only once the execution's send marker is there.
    """

    parts: Any
    execution_id: str
    approval_id: str
    index: int
    envelope: bytes | None
    fits: bool
    from_marker: bool = False

    def begin(self, patch: pytest.MonkeyPatch) -> None:
        self._leaf, self._get = self.parts.store.leaf, self.parts.store.get
        patch.setattr(self.parts.store, "leaf", self.leaf)
        patch.setattr(self.parts.store, "get", self.get)

    async def _on(self) -> bool:
        return not self.from_marker or (await self._get(rows.execution(self.execution_id)))[1].marker > 0

    async def leaf(self, index: int) -> Append | None:
        record: Append | None = await self._leaf(index)
        if index != self.index or record is None or not await self._on():
            return record
        return None if self.envelope is None else dataclasses.replace(record, aux=self.envelope)

    async def get(self, key: rows.Key) -> Any:
        found = await self._get(key)
        if key != rows.approval(self.approval_id) or not self.fits or not await self._on():
            return found
        version, row = found
        digest = sha256_hex(self.envelope or b"")
        decisions = tuple(replace(decision, dsse_sha256=digest) for decision in row.decisions)
        return version, replace(row, decisions=decisions)


def decided(site: LocalSite, approval_id: str) -> tuple[int, bytes]:
    """Where the decision on an approval stands in the ledger, and its signed form."""
    parts = site.daemon.parts
    _, row = site.run(parts.store.get(rows.approval(approval_id)))
    index = row.decisions[0].index
    return index, site.run(parts.store.leaf(index)).aux


@pytest.mark.parametrize(("tamper", "fits", "said"), TAMPERED.values(), ids=TAMPERED)
def test_r078_a_signed_approval_that_does_not_hold_consumes_nothing(
    gaps: LocalSite,
    pay: PaymentsServer,
    monkeypatch: pytest.MonkeyPatch,
    tamper: Tamper,
    fits: bool,
    said: str,
) -> None:
    """R078, R473: the approval's statement is read and verified before the consumption; the row that says "approved"
    is not believed without it. The action stays approved, and runs when the statement is there again."""
    mine, theirs = order(), order()
    pending, other = ask(gaps, refund(mine, key=mine)), ask(gaps, refund(theirs, key=theirs))
    for approval_id in (pending.approval_id, other.approval_id):
        approve(gaps, approval_id)
    index, envelope = decided(gaps, pending.approval_id)
    bad = tamper(gaps.daemon.parts, envelope, decided(gaps, other.approval_id)[1])
    assert bad != envelope
    with monkeypatch.context() as patch:
        Tampering(gaps.daemon.parts, pending.execution_id, pending.approval_id, index, bad, fits).begin(patch)
        before = size(gaps)
        with gaps.client() as agent, pytest.raises(FailedPreconditionError) as caught:
            agent.execute(refund(mine, key=mine))
        error = caught.value
        assert (error.reason, error.executed, error.consumed) == ("APPROVAL_NOT_VALID", False, False)
        assert said in str(error)
        until(lambda: [r["body"].get("reason") for r in news(gaps, before)] == ["APPROVAL_NOT_VALID"])
    assert types(gaps, pending.execution_id)[:3] == ["execution.proposed", "approval.requested", "approval.decided"]
    assert "execution.claimed" not in types(gaps, pending.execution_id)
    assert effects(pay, mine) == []
    with gaps.client() as agent:
        waiting = agent.get(execution_id=pending.execution_id).answer
        assert (waiting.state, waiting.consumed) == ("approved", False)
        assert isinstance(agent.execute(refund(mine, key=mine)), Completed)
    assert len(effects(pay, mine)) == 1


def test_r473_a_second_attempt_verifies_the_signed_approval_again(
    gaps: LocalSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R473: attempt 1 had no effect and policy says retry; the statement does not hold any more, so nothing is sent
    again and the execution ends as what is proved."""
    mine = order()
    call = refund_in("twice", mine, key=mine)
    pending = ask(gaps, call)
    approve(gaps, pending.approval_id)
    index, envelope = decided(gaps, pending.approval_id)
    pay.control(refuse=True)
    tampering = Tampering(
        gaps.daemon.parts,
        pending.execution_id,
        pending.approval_id,
        index,
        _flipped(None, envelope, b""),
        True,
        from_marker=True,
    )
    with monkeypatch.context() as patch, gaps.client() as agent:
        tampering.begin(patch)
        failed = agent.execute(call)
    assert isinstance(failed, UpstreamError)
    assert (failed.code, failed.result_class) == ("APPROVAL_NOT_VALID", "failed_before_side_effect")
    assert (failed.executed, failed.consumed) == (False, True)
    assert body(gaps, pending.execution_id, "recovery.planned")["recovery"] == "retry"
    assert types(gaps, pending.execution_id).count("execution.sent") == 1
    assert effects(pay, mine) == []


# Lost races


class Overtaken:
    """Holds back the next decision's commit until an identical call was decided, and its conflict until ``ended``."""

    def __init__(self, store: Any) -> None:
        self._commit, self._armed = store.commit, True
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.conflicted, self.ended = threading.Event(), threading.Event()

    async def commit(self, *arguments: Any, label: str = "") -> Any:
        if label != Stage.DECIDE.label or not self._armed:
            return await self._commit(*arguments, label=label)
        self._armed = False
        await _handed_over(self.reached, self.go_on)
        try:
            return await self._commit(*arguments, label=label)
        except Conflict:
            await _handed_over(self.conflicted, self.ended)
            raise


async def _handed_over(here: threading.Event, there: threading.Event) -> None:
    here.set()
    assert await asyncio.to_thread(there.wait, 60)


@pytest.fixture
def race(gaps: LocalSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Overtaken]:
    """In the store of the running daemon."""
    overtaken = Overtaken(gaps.daemon.parts.store)
    with monkeypatch.context() as patch:
        patch.setattr(gaps.daemon.parts.store, "commit", overtaken.commit)
        yield overtaken
        overtaken.go_on.set()
        overtaken.ended.set()


def _lose(site: LocalSite, race: Overtaken, mine: str, then: Callable[[ApprovalPending], None]) -> tuple[Any, str]:
    """Two identical keyless calls at once: what the loser is told, once ``then`` has gone on with the winner."""

    def call() -> Exception:
        with site.client() as agent, pytest.raises(CallError) as caught:
            agent.execute(refund(mine))
        return caught.value

    with ThreadPoolExecutor(1) as pool:
        loser = pool.submit(call)
        try:
            assert race.reached.wait(60)
            pending = ask(site, refund(mine))
            race.go_on.set()
            assert race.conflicted.wait(60)
            then(pending)
        finally:
            race.go_on.set()
            race.ended.set()
        return loser.result(60), pending.execution_id


def test_r121_who_lost_the_race_to_a_call_that_has_ended_is_told_replay(
    gaps: LocalSite, pay: PaymentsServer, race: Overtaken
) -> None:
    """R121, R660, C29: the loser finds that the winner's action is closed: REPLAY, nothing done for this call, one
    effect, and no execution but the winner's; from then on an identical call is a new one."""
    mine = order()
    before = size(gaps)

    def finish(pending: ApprovalPending) -> None:
        approve(gaps, pending.approval_id)
        with gaps.client() as agent:
            assert isinstance(agent.execute(refund(mine)), Completed)

    error, winner = _lose(gaps, race, mine, finish)
    assert isinstance(error, AlreadyExistsError)
    assert (error.reason, error.retryable, error.executed, error.consumed) == ("REPLAY", False, False, False)
    until(lambda: "call.refused" in [r["type"] for r in news(gaps, before)])
    proposed = [r["execution"] for r in news(gaps, before) if r["type"] == "execution.proposed"]
    assert proposed == [winner]
    assert [r["body"]["reason"] for r in news(gaps, before) if r["type"] == "call.refused"] == ["REPLAY"]
    assert len(effects(pay, mine)) == 1
    assert ask(gaps, refund(mine)).execution_id != winner


def test_r660_who_lost_the_race_to_a_call_that_is_open_may_join_it(
    gaps: LocalSite, pay: PaymentsServer, race: Overtaken
) -> None:
    """R660, R121, IDM-03: DUPLICATE_IN_FLIGHT with the winner's id, retryable; the identical call then joins it."""
    mine = order()
    error, winner = _lose(gaps, race, mine, lambda pending: None)
    assert isinstance(error, AbortedError)
    assert (error.reason, error.retryable, error.execution_id) == ("DUPLICATE_IN_FLIGHT", True, winner)
    assert (error.executed, error.consumed) == (False, False)
    assert ask(gaps, refund(mine)).execution_id == winner
    assert effects(pay, mine) == []
