"""What an action relied on holds until its bytes leave: through slow syncs, ends of time, rotations."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kblockd.client.answers import Answer, Completed, InProgress, UpstreamError
from kblockd.client.errors import CallError
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import Reason, Unavailable
from kblockd.domain.ledger import rows
from kblockd.execution import seal
from kblockd.policy.deciding import PolicyFailure
from tests.harness import EFFECT_FREE, approve
from tests.integration.pipeline.conftest import pay, payments
from tests.integration.pipeline.local import ask, effects, order, records, refund_in, variants
from tests.integration.races.changes import Change, Disabled, PolicyForbids, PolicyReads, Repinned
from tests.integration.staged import Act, StagedSite, told
from tests.upstreams.payments import PaymentsServer

__all__ = ["pay", "payments", "site"]

PATIENT: Final = {"absolute_deadline_seconds": 300}
ENVIRONMENTS: Final[dict[str, dict[str, Any]]] = {
    "production": {"execution": PATIENT},
    "free": {"tool": EFFECT_FREE, "execution": {**PATIENT, "maximum_attempts": 2}},
}
BEFORE_THE_END: Final = 590.0  # seconds; an approval is good for 600
PAST_THE_END: Final = 11.0  # longer than what is left of it, shorter than a lease
CONSUMPTION_SYNCS: Final = "consume:written"
MARKER_SYNCS: Final = "mark_sent:written"
CHANGES: Final[dict[str, tuple[Callable[[], Change], str]]] = {
    "policy": (PolicyForbids, "PRECONDITION_FAILED"),
    "pin": (Repinned, "BINDING_CHANGED"),
    "approver": (lambda: Disabled("local:lead"), "PERMISSION_DENIED"),
}


@pytest.fixture(scope="module")
def made(payments: PaymentsServer) -> Iterator[StagedSite]:
    """One attempt in ``production``, two in ``free``; both long before their deadline when an approval ends."""
    with StagedSite.serving(payments, variants(ENVIRONMENTS), close_after_seconds=660) as site:
        for name in ("write", "read"):
            site.secret(name, f"Bearer {name}-of-the-payments")
        credentials = {name: f"file:{site.folder / name}" for name in ("write", "read")}
        site.rewrite(lambda document: document.update(credentials=credentials), "upstreams/payments.yaml")
        for action in (site.config.parent / "actions").iterdir():
            site.rewrite(lambda document: document["execution"].update(credential_source="static"), str(action))
        site.restart()
        yield site


@pytest.fixture
def site(made: StagedSite) -> Iterator[StagedSite]:
    """Every act was met."""
    yield made
    assert made.boundaries.clear() == []


def approved(site: StagedSite, environment: str = "production") -> tuple[str, Any]:
    """An order of its own, and the call that its approval allows."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    approve(site, ask(site, call).approval_id)
    return mine, call


def of_type(site: StagedSite, answer: Answer, type_: str) -> list[dict[str, Any]]:
    """The records of a type."""
    return [record for record in records(site, answer.execution_id) if record["type"] == type_]


def check_unsent(site: StagedSite, answer: Any, code: str) -> None:
    """Ended without a call, and says so: not started without a marker, taken back by its outcome with one."""
    assert isinstance(answer, UpstreamError), answer
    marked = of_type(site, answer, "execution.sent")
    ended = (answer.state, answer.result_class, answer.code, answer.executed, answer.consumed)
    assert ended == ("failed", "failed_before_side_effect" if marked else "not_started", code, False, True)
    outcomes = [record["body"]["sent"] for record in of_type(site, answer, "attempt.outcome")]
    assert outcomes == ["not_sent"] * len(marked)


def begun(site: StagedSite, change: Change, key: rows.Key) -> Act:
    """While a sync takes its time: on record and in force, and not yet on disk."""

    async def act() -> None:
        before = site.parts.store.ordered(key)[0]
        site.making = asyncio.create_task(change.make(site, ""))  # type: ignore[attr-defined]  # kept until it ends
        while site.parts.store.ordered(key)[0] == before:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # what is on record swaps in at once

    return act


@pytest.mark.parametrize("sync", [CONSUMPTION_SYNCS, MARKER_SYNCS])
def test_apv_01_a_policy_that_denies_while_the_consumption_is_synced(
    site: StagedSite, pay: PaymentsServer, sync: str
) -> None:
    """APV-01: in force and on record before the marker, or before the call: not sent, because of the fresh refusal."""
    mine, call = approved(site)
    change = PolicyForbids()
    site.boundaries.during(sync, begun(site, change, rows.policy()))
    try:
        answer = told(site, call)
        check_unsent(site, answer, "PRECONDITION_FAILED")
    finally:
        site.run(change.undo(site))
    assert effects(pay, mine) == []
    assert bool(of_type(site, answer, "execution.sent")) == (sync == MARKER_SYNCS)


@pytest.mark.parametrize("sync", [CONSUMPTION_SYNCS, MARKER_SYNCS])
def test_c27_a_reload_while_the_consumption_is_synced_voids_nothing(
    site: StagedSite, pay: PaymentsServer, sync: str
) -> None:
    """C27, APV-01: the decision still stands, so the one attempt is made, once, under the policy in force."""
    mine, call = approved(site)
    change = PolicyReads()
    site.boundaries.during(sync, begun(site, change, rows.policy()))
    try:
        answer = told(site, call)
    finally:
        site.run(change.undo(site))
    assert isinstance(answer, Completed), answer
    assert len(effects(pay, mine)) == 1
    claims = of_type(site, answer, "execution.claimed")
    assert [claim["body"]["again"] for claim in claims] == [False, True]
    assert claims[0]["body"]["policy_revision"] != claims[1]["body"]["policy_revision"]
    assert claims[0]["body"]["effect_key"] == claims[1]["body"]["effect_key"]


@pytest.mark.parametrize("what", ["pin", "approver"])
def test_apv_01_whatever_else_was_relied_on(site: StagedSite, pay: PaymentsServer, what: str) -> None:
    """APV-01: a pin or an approver that changes between the consumption and the marker."""
    mine, call = approved(site)
    make, code = CHANGES[what]
    change = make()
    site.boundaries.at("mark_sent:before", lambda: change.make(site, ""))
    try:
        check_unsent(site, told(site, call), code)
    finally:
        site.run(change.undo(site))
    assert effects(pay, mine) == []


def passes(site: StagedSite, seconds: float) -> Act:
    """Time goes on for everything but monotonic clocks: the lease is good for longer."""

    async def act() -> None:
        site.machine.asleep += seconds

    return act


@pytest.mark.parametrize(
    "point",
    [CONSUMPTION_SYNCS, "consume:ordered", "mark_sent:before", MARKER_SYNCS, "dispatch:before"],
)
def test_apv_02_the_approval_ends_before_the_bytes_leave(site: StagedSite, pay: PaymentsServer, point: str) -> None:
    """APV-02: by code, at the marker or right behind it; lease and deadline go on."""
    mine, call = approved(site)
    site.run(passes(site, BEFORE_THE_END)())
    at = site.boundaries.during if point.endswith("written") else site.boundaries.at
    at(point, passes(site, PAST_THE_END))
    check_unsent(site, told(site, call), "APPROVAL_NOT_VALID")
    assert effects(pay, mine) == []


def test_apv_02_the_approval_ends_before_attempt_2(site: StagedSite, pay: PaymentsServer) -> None:
    """APV-02: attempt 1 was refused before it had an effect, the upstream is well again, and the approval is over."""
    mine, call = approved(site, "free")
    pay.control(refuse=True)
    site.run(passes(site, BEFORE_THE_END)())

    async def later() -> None:
        pay.control(refuse=False)
        await passes(site, PAST_THE_END)()

    site.boundaries.at("preflight:before", later, nth=2)
    answer = told(site, call)
    assert isinstance(answer, UpstreamError), answer
    assert (answer.result_class, answer.code) == ("failed_before_side_effect", "APPROVAL_NOT_VALID")
    assert (len(of_type(site, answer, "execution.claimed")), effects(pay, mine)) == (1, [])


def test_r025_the_deadline_of_the_call_that_repeats_it_holds_too(site: StagedSite, pay: PaymentsServer) -> None:
    """R025, APV-02: the first call named none; the one that consumes the approval ends earlier than the contract."""
    mine, _ = approved(site)
    deadline = site.parts.clock.now() + dt.timedelta(seconds=PAST_THE_END)
    site.boundaries.at("mark_sent:before", passes(site, PAST_THE_END))
    answer = told(site, refund_in("production", mine, key=mine, deadline=deadline))
    check_unsent(site, answer, "DEADLINE_PASSED")
    [claimed] = of_type(site, answer, "execution.claimed")
    assert parse_rfc3339(claimed["body"]["deadline_at"]) == deadline
    assert effects(pay, mine) == []


def gone(file: Path) -> Callable[[], None]:
    """Unlinked; what makes it anew."""
    secret = file.read_text()
    file.unlink()
    return lambda: _made(file, secret)


def emptied(file: Path) -> Callable[[], None]:
    """Truncated, and written again."""
    secret = file.read_text()
    file.write_text("")
    return lambda: _made(file, secret)


def readable(file: Path) -> Callable[[], None]:
    """Created as the umask says, and closed only then."""
    file.chmod(0o644)
    return lambda: file.chmod(0o600)


def _made(file: Path, secret: str) -> None:
    file.touch(mode=0o600)
    file.write_text(secret)


ROTATIONS: Final = {"unlinked": gone, "truncated": emptied, "mode": readable}


@pytest.mark.parametrize("identity", ["write", "read"])
@pytest.mark.parametrize("how", ROTATIONS)
@pytest.mark.parametrize("point", ["consume:ordered", "mark_sent:before", "dispatch:before"])
def test_ups_16_a_credential_that_is_being_rotated_is_waited_for(
    site: StagedSite, pay: PaymentsServer, point: str, how: str, identity: str
) -> None:
    """UPS-16: it is back 0.1 s later; one attempt is allowed, and one is made, under the one consumption."""
    mine, call = approved(site)

    async def rotate() -> None:
        asyncio.get_running_loop().call_later(0.1, ROTATIONS[how](site.folder / identity))

    site.boundaries.at(point, rotate)
    answer = told(site, call)
    assert isinstance(answer, Completed), answer
    assert len(effects(pay, mine)) == 1
    outcomes = [record["body"]["sent"] for record in of_type(site, answer, "attempt.outcome")]
    assert outcomes in (["answered"], ["not_sent", "answered"])


def test_ups_16_a_policy_worker_that_is_being_replaced_is_waited_for(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UPS-16: on the way back in, after a reload; what the policy could not answer is asked again."""
    mine, call = approved(site)
    change = PolicyReads()
    evaluate, asked = site.parts.engine.evaluate, list[str]()

    async def replaced(entrypoint: str, document: Any) -> Any:
        asked.append(entrypoint)
        if asked.count(entrypoint) in (2, 3) and "preconditions" in entrypoint:
            raise PolicyFailure(Reason.POLICY_DOWN, "the worker ended")
        return await evaluate(entrypoint, document)

    monkeypatch.setattr(site.parts.engine, "evaluate", replaced)
    site.boundaries.at("mark_sent:before", lambda: change.make(site, ""))
    try:
        answer = told(site, call)
    finally:
        monkeypatch.undo()
        site.run(change.undo(site))
    assert isinstance(answer, Completed), answer
    assert len(effects(pay, mine)) == 1


def test_ups_16_a_credential_that_never_comes_back_ends_at_the_deadline(
    site: StagedSite, pay: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """UPS-16: the reason is the credential, not the deadline; the operator was told while it was waited for."""
    mine, call = approved(site)
    back: list[Callable[[], None]] = []

    async def unlink() -> None:
        back.append(gone(site.folder / "write"))
        site.boundaries.at("preflight:before", passes(site, 301.0))

    site.boundaries.at("mark_sent:before", unlink)
    try:
        with caplog.at_level(logging.WARNING):
            check_unsent(site, told(site, call), "UPSTREAM_UNAVAILABLE")
    finally:
        back[0]()
    assert "waiting: UPSTREAM_UNAVAILABLE" in caplog.text
    assert effects(pay, mine) == []


def test_a_run_that_cannot_be_sealed_says_why(
    site: StagedSite, pay: PaymentsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect is done: the reason code and the sentence are in the log at warning, and the same call seals it once
    the cause is mended."""
    mine, call = approved(site)
    message = "the result key on disk is not the active one of the ledger"

    async def no_key(_: Any) -> Any:
        raise Unavailable(Reason.INTERNAL, message)

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(seal, "_key_condition", no_key)
        unsealed = told(site, call)
        assert isinstance(unsealed, InProgress), unsealed
    stopped = [record for record in caplog.records if record.getMessage().startswith("the run stopped")]
    assert {record.getMessage() for record in stopped} == {f"the run stopped: INTERNAL: {message}"}
    assert {record.execution_id for record in stopped} == {unsealed.execution_id}  # type: ignore[attr-defined]  # extra
    assert isinstance(told(site, call), Completed)
    assert len(effects(pay, mine)) == 1


def test_a_run_that_is_refused_says_its_code_alone(
    site: StagedSite, pay: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the consumption the sentence may hold policy's own words, which can be erased where they are kept."""
    mine = "NONE" + order()
    call = refund_in("production", mine, key=mine)
    approve(site, ask(site, call).approval_id)
    with caplog.at_level(logging.WARNING):
        refused = told(site, call)
    assert isinstance(refused, CallError)
    assert "NOT_REFUNDABLE" in str(refused)
    [stopped] = [record for record in caplog.records if record.getMessage().startswith("the run stopped")]
    assert (stopped.levelno, stopped.getMessage()) == (logging.WARNING, "the run stopped: PRECONDITION_FAILED")
