"""A run that ends on its way leaves calls, findings and late answers: whoever goes on knows of all of them.

Each run is ended as a stop of the daemon ends it, and taken up again by the caller's repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed, Held
from kblockd.domain.errors import Reason
from kblockd.domain.ledger import rows
from kblockd.domain.stages import Stage
from kblockd.policy.deciding import PolicyFailure
from kblockd.upstream.adapter import Outcome, Sent
from tests.harness import EFFECT_FREE, approve
from tests.integration.pipeline.conftest import pay, payments
from tests.integration.pipeline.local import ask, effects, order, records, refund_in, types, until, variants
from tests.integration.staged import StagedSite, told
from tests.upstreams.payments import PaymentsServer

__all__ = ["pay", "payments", "site"]

SOON = {
    "tool": EFFECT_FREE,
    "execution": {"maximum_attempts": 3},
    "verification": {"maximum_duration_seconds": 1},
}
ONCE = {**SOON, "execution": {"maximum_attempts": 1}}
DONE = Outcome(Sent.ANSWERED, output={"status": "done"})


@pytest.fixture(scope="module")
def made(payments: PaymentsServer) -> Iterator[StagedSite]:
    """Three attempts, or one; the tool's own errors are free of effects."""
    with StagedSite.serving(payments, variants({"soon": SOON, "once": ONCE})) as site:
        for name in ("write", "read"):
            site.secret(name, f"Bearer {name}-of-the-payments")
        credentials = {name: f"file:{site.folder / name}" for name in ("write", "read")}
        site.rewrite(lambda document: document.update(credentials=credentials), "upstreams/payments.yaml")
        for action in (site.config.parent / "actions").iterdir():
            site.rewrite(lambda document: document["execution"].update(credential_source="static"), str(action))
        site.restart()
        yield site


@pytest.fixture
def site(made: StagedSite, pay: PaymentsServer) -> Iterator[StagedSite]:
    """Every act was met."""
    yield made
    pay.control(refuse=False, lose_answer_once=False)
    assert made.boundaries.clear() == []


class Credential:
    """The write credential's file, while somebody replaces it."""

    def __init__(self, site: StagedSite) -> None:
        self._file = site.folder / "write"
        self._secret = self._file.read_text()

    async def take_away(self) -> None:
        self._file.unlink()

    def put_back(self) -> None:
        self._file.touch(mode=0o600)
        self._file.write_text(self._secret)

    async def rotate(self) -> None:
        """Gone for a tenth of a second."""
        await self.take_away()
        asyncio.get_running_loop().call_later(0.1, self.put_back)


def approved(site: StagedSite, environment: str = "soon") -> tuple[str, Any, str]:
    """The order, the call and its execution."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    return mine, call, pending.execution_id


async def absent(_: Any) -> Outcome:
    """What a replica that lags answers to a look-up."""
    return Outcome(Sent.ANSWERED, {"found": False})


def stopped(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch, execution_id: str, call: Any, point: str
) -> None:
    """Attempt 1 acts and its answer is lost; the run ends at ``point``, and no look-up shows the effect afterwards."""

    async def stop() -> None:
        monkeypatch.setattr(site.parts.upstreams["payments"].read, "lookup", absent)
        raise asyncio.CancelledError

    pay.control(lose_answer_once=True)
    site.boundaries.at(point, stop)
    told(site, call)
    until(lambda: site.daemon.supervisor.running(execution_id) is None)  # type: ignore[union-attr]


def bodies(site: StagedSite, execution_id: str, type_: str) -> list[dict[str, Any]]:
    """Of the records of one type."""
    return [record["body"] for record in records(site, execution_id) if record["type"] == type_]


def check_one(site: StagedSite, pay: PaymentsServer, mine: str, answer: Answer) -> None:
    """One call, one effect, and nobody says that there is none."""
    assert answer.executed, answer
    assert len(bodies(site, answer.execution_id, "execution.sent")) == 1
    assert len(effects(pay, mine)) == 1


def test_ver_06_what_was_found_stays_found_through_a_death_in_its_verification(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by its key, on record, and then a verification that can last for minutes: the next run verifies on. A
    look-up that shows nothing now is no absence, and allows no attempt."""
    mine, call, execution_id = approved(site)
    stopped(site, pay, monkeypatch, execution_id, call, "verify:before")
    answer = told(site, call)
    assert isinstance(answer, Completed | Held), answer
    check_one(site, pay, mine, answer)
    assert [found["finding"] for found in bodies(site, execution_id, "finding.reconciled")] == ["present"]


def test_c3_a_late_answer_on_record_forbids_every_absence(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came when nobody ran the execution, and says that the effect was done; a look-up that is final says absent."""
    mine, call, execution_id = approved(site)
    stopped(site, pay, monkeypatch, execution_id, call, "reconcile:before")
    site._loop.call_soon_threadsafe(site.parts.late.add, execution_id, 1, DONE)  # type: ignore[union-attr]
    until(lambda: [body["late"] for body in bodies(site, execution_id, "attempt.outcome")] == [False, True])
    answer = told(site, call)
    assert isinstance(answer, Held), answer
    assert (answer.code, answer.outcome_unknown) == ("LATE_ANSWER", True)
    check_one(site, pay, mine, answer)


def test_c3_a_late_answer_is_not_lost_to_a_run_that_begins_meanwhile(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's first record comes before the late answer's: then it is the run's to take."""
    mine, call, execution_id = approved(site)
    stopped(site, pay, monkeypatch, execution_id, call, "reconcile:before")
    key = rows.execution(execution_id)

    async def begins() -> None:
        before = site.parts.store.ordered(key)[0]
        assert await site.daemon.supervisor.take_up(execution_id)  # type: ignore[union-attr]
        while site.parts.store.ordered(key)[0] == before:
            await asyncio.sleep(0.01)

    site.boundaries.at(f"{Stage.CLASSIFY.label}:ordering", begins)
    site._loop.call_soon_threadsafe(site.parts.late.add, execution_id, 1, DONE)  # type: ignore[union-attr]
    until(lambda: site.boundaries._waiting == {})
    answer = told(site, call)
    assert isinstance(answer, Completed | Held), answer
    check_one(site, pay, mine, answer)
    until(lambda: True in [body["late"] for body in bodies(site, execution_id, "attempt.outcome")])


def test_ups_16_a_call_that_was_not_begun_counts_for_policy_no_more_than_for_the_bound(
    site: StagedSite, pay: PaymentsServer
) -> None:
    """Three are allowed. One was marked and not begun, the next two refused before their effect: one is left."""
    mine, call, execution_id = approved(site)
    credential = Credential(site)

    async def well() -> None:
        pay.control(refuse=False)

    pay.control(refuse=True)
    site.boundaries.at("dispatch:before", credential.rotate)
    site.boundaries.at("recover:after", well, nth=2)
    answer = told(site, call)
    assert isinstance(answer, Completed), answer
    outcomes = [body["proof"] for body in bodies(site, execution_id, "attempt.outcome")]
    assert outcomes == ["not_begun", "effect_free", "effect_free", ""]
    assert len(effects(pay, mine)) == 1


def test_ups_16_a_call_that_was_not_begun_is_made_by_the_run_after_it(site: StagedSite, pay: PaymentsServer) -> None:
    """One attempt is allowed, and its credential was being rotated when the run ended: it has not been made yet."""
    mine, call, execution_id = approved(site, "once")
    credential = Credential(site)

    async def stop() -> None:
        credential.put_back()
        raise asyncio.CancelledError

    site.boundaries.at("dispatch:before", credential.take_away)
    site.boundaries.at("classify:after", stop)
    told(site, call)
    until(lambda: site.daemon.supervisor.running(execution_id) is None)  # type: ignore[union-attr]
    answer = told(site, call)
    assert isinstance(answer, Completed), answer
    assert [body["proof"] for body in bodies(site, execution_id, "attempt.outcome")] == ["not_begun", ""]
    assert "recovery.planned" not in types(site, execution_id)
    assert len(effects(pay, mine)) == 1


def test_ups_16_what_was_not_begun_before_a_stop_leaves_all_attempts(site: StagedSite, pay: PaymentsServer) -> None:
    """Three are allowed. One was not begun, then the run ended; two are refused before their effect, the third acts."""
    mine, call, execution_id = approved(site)
    credential = Credential(site)

    async def stop() -> None:
        raise asyncio.CancelledError

    async def well() -> None:
        pay.control(refuse=False)

    pay.control(refuse=True)
    site.boundaries.at("dispatch:before", credential.rotate)
    site.boundaries.at("mark_sent:before", stop, nth=2)
    told(site, call)
    until(lambda: site.daemon.supervisor.running(execution_id) is None)  # type: ignore[union-attr]
    site.boundaries.at("recover:after", well, nth=2)
    answer = told(site, call)
    assert isinstance(answer, Completed), answer
    proofs = [body["proof"] for body in bodies(site, execution_id, "attempt.outcome")]
    assert proofs == ["not_begun", "effect_free", "effect_free", ""]
    assert len(effects(pay, mine)) == 1


def test_ups_07_a_hold_over_a_lost_attempt_does_not_say_that_nothing_happened(
    site: StagedSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt 1 was lost and is absent so far; attempt 2 was refused, and policy cannot say what follows."""
    _, call, execution_id = approved(site)
    evaluate, planned = site.parts.engine.evaluate, list[str]()
    write = site.parts.upstreams["payments"].write
    invoke, lost = write.invoke, [Outcome(Sent.LOST, code="CONNECTION_LOST")]

    async def down(entrypoint: str, document: Any) -> Any:
        planned.extend([entrypoint] * ("recovery" in entrypoint))
        if len(planned) > 1:
            raise PolicyFailure(Reason.POLICY_DOWN, "the worker ended")
        return await evaluate(entrypoint, document)

    async def invoked(*given: Any, **more: Any) -> Outcome:
        return lost.pop() if lost else await invoke(*given, **more)

    monkeypatch.setattr(site.parts.engine, "evaluate", down)

    async def refused() -> None:
        with site.client() as agent:
            seen.append(await asyncio.to_thread(agent.get, execution_id=execution_id))

    seen: list[Any] = []
    site.boundaries.at("recover:before", refused, nth=2)
    monkeypatch.setattr(write, "invoke", invoked)
    pay.control(refuse=True)
    answer = told(site, call)
    assert isinstance(answer, Held), answer
    assert [body["class"] for body in bodies(site, answer.execution_id, "attempt.outcome")] == [
        "unknown_outcome",
        "failed_before_side_effect",
    ]
    assert (answer.executed, answer.outcome_unknown) == (True, True)
    (meanwhile,) = seen
    assert (meanwhile.answer.phase, meanwhile.answer.executed) == ("recovering", True)
