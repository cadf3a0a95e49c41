"""What stays of a decision: every question of an execution can be asked again, exactly, from what the store keeps.

Each story is read back over the wire (the records) and from the store beside the running daemon (the inputs).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kblockd.client.answers import Completed, Held
from kblockd.client.calls import Call
from kblockd.client.errors import FailedPrecondition
from kblockd.domain.canonical import digest
from kblockd.domain.envelope import TargetPin
from kblockd.domain.ledger import rows
from kblockd.policy.recorded import Inputs, Question, Recorded, decisions
from kblockd.store.database import open_view
from tests.harness import approve, refund
from tests.integration.pipeline import limits
from tests.integration.pipeline.local import (
    LocalSite,
    ask,
    in_background,
    order,
    records,
    refund_in,
    run_approved,
    types,
    until,
)
from tests.integration.pipeline.shop import Shop
from tests.upstreams.payments import PaymentsServer

DECISION, PRECONDITIONS = "kblock/decision/result", "kblock/preconditions/result"
VERIFICATION, RECOVERY = "kblock/verification/result", "kblock/recovery/result"
FIELDS = ("policy_engine", "policy_revision", "decision_id", "input_sha256", "input_payload", "policy_us", "reasons")
WRITE, READ = "Bearer write-7hqx", "Bearer read-2vbn"


def verified(site: LocalSite, pay: PaymentsServer) -> str:
    mine = order()
    return run_approved(site, refund(mine, key=mine)).execution_id


def found_by_its_key(site: LocalSite, pay: PaymentsServer) -> str:
    pay.control(lose_answer_once=True)
    return verified(site, pay)


def attempted_twice(site: LocalSite, pay: PaymentsServer) -> str:
    mine = order()
    call = refund_in("twice", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    pay.control(refuse=True)
    running = in_background(site, call)
    until(lambda: "attempt.outcome" in types(site, pending.execution_id))
    pay.control(refuse=False)
    running.join(60)
    with site.client() as agent:
        assert isinstance(agent.execute(call), Completed)
    return pending.execution_id


def unknown_with_an_output(site: LocalSite, pay: PaymentsServer) -> str:
    mine = order()
    pay.control(is_error_after_effect=True)
    held = run_approved(site, refund_in("blind", mine, key=mine))
    assert isinstance(held, Held)
    return held.execution_id


def unmet(site: LocalSite, pay: PaymentsServer) -> str:
    mine = "NONE" + order()
    pending = ask(site, refund(mine, key=mine))
    approve(site, pending.approval_id)
    with site.client() as agent, pytest.raises(FailedPrecondition, match="NOT_REFUNDABLE"):
        agent.execute(refund(mine, key=mine))
    until(lambda: "call.refused" in types(site, pending.execution_id))
    return pending.execution_id


def version_named_later(site: LocalSite, pay: PaymentsServer) -> str:
    """The repeat of a call may name the version of the target: then stage 8 sees another envelope than stage 3."""
    mine = order()
    call = refund(mine, key=mine)
    approve(site, ask(site, call).approval_id)
    arguments = {"order_id": mine, "amount": "100.00", "currency": "EUR"}
    with site.client() as agent:
        later = Call.of(
            "payment.refund.create", "production", target=TargetPin(id=mine, version="1"), arguments=arguments, key=mine
        )
        done = agent.execute(later)
    assert isinstance(done, Completed)
    return done.execution_id


STORIES: dict[Callable[[LocalSite, PaymentsServer], str], list[str]] = {
    verified: [DECISION, PRECONDITIONS, VERIFICATION],
    found_by_its_key: [DECISION, PRECONDITIONS, VERIFICATION],
    attempted_twice: [DECISION, PRECONDITIONS, RECOVERY, PRECONDITIONS, VERIFICATION],
    unknown_with_an_output: [DECISION, PRECONDITIONS, RECOVERY],
    unmet: [DECISION, PRECONDITIONS],
    version_named_later: [DECISION, PRECONDITIONS, VERIFICATION],
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_pol_12_every_question_on_record_can_be_asked_again(
    site: LocalSite, pay: PaymentsServer, story: Callable[[LocalSite, PaymentsServer], str]
) -> None:
    """POL-12, R109: engine, revision, decision id, digest, reasons and duration of each; the digest is that of the
    input that the store gives back, whatever lay between."""
    execution = story(site, pay)
    on_record = [r for r in records(site, execution) if r["body"].get("decision_id") and r["type"] != "result.sealed"]
    asked = questions(site, execution)
    assert [recorded.entrypoint for recorded, _ in asked] == STORIES[story]
    assert len(on_record) == len(asked)
    for record, (recorded, question) in zip(on_record, asked, strict=True):
        body = record["body"]
        assert body.keys() >= set(FIELDS)
        assert body["policy_engine"] == "embedded"
        assert body["policy_us"] > 0
        assert body["decision_id"] == recorded.decision_id
        assert digest(question.document) == body["input_sha256"] == recorded.input_sha256
        assert question.document["now"] <= record["at"]


def test_an_input_that_is_put_together_again_holds_what_the_stage_saw(site: LocalSite, pay: PaymentsServer) -> None:
    """The references are to the right payloads: the output of the attempt, the snapshot of the consumption."""
    execution = verified(site, pay)
    (_, first), (_, before), (_, after) = questions(site, execution)
    assert [q.document["snapshot"] and q.document["snapshot"]["status"] for q in (first, before, after)] == [
        None, "paid", "paid",
    ]  # fmt: skip
    assert before.document["approval"]["state"] == "approved"
    assert after.document["outcome"]["output"]["status"] == "succeeded"
    assert len(after.document["read"]["refunds"]) == 1
    assert first.document["contract"]["tool"]["name"] == "refund"


@pytest.fixture(scope="module")
def with_credentials() -> Iterator[tuple[LocalSite, Shop]]:
    """An upstream with credentials, whose orders are read before and after; calls may have a memo."""
    memo = {"tool": {"arguments_schema": {"properties": {"memo": {"type": "string", "maxLength": 64}}}}}
    with limits.limited(200.0, memo, secrets={"write": WRITE, "read": READ}) as made:
        yield made


def test_kept_inputs_are_restricted_small_and_hold_no_arguments(with_credentials: tuple[LocalSite, Shop]) -> None:
    """C17, R599: what is kept is classified; arguments, contract, snapshot and output stay where they are kept once."""
    echoing, _ = with_credentials
    secret = "ssn-078-05-1120"
    execution = with_memo(echoing, order(), secret)
    with open_view(echoing.data / "store") as view:
        kept = [view.raw(rows.payload(execution, one.input_payload)) for one, _ in questions(echoing, execution)]
        leaves = [view.leaf(index) for index in range(view.size())]
        on_record = [value for key, value in view.encoded(("execution",))]
    assert len(kept) == 3
    for data in kept:
        assert data is not None
        assert json.loads(data)["classification"] == "restricted"
        assert len(data) < 900
    text = b"".join([*filter(None, kept), *(leaf.leaf + leaf.aux for leaf in leaves if leaf), *on_record])
    assert secret.encode() not in text


def test_a_question_over_what_was_scrubbed_is_asked_again_over_what_was_scrubbed(
    with_credentials: tuple[LocalSite, Shop],
) -> None:
    """R598: the credential that the upstream said again was never in the input, and is nowhere on disk."""
    echoing, shop = with_credentials
    mine = order()
    shop.shop.orders[mine] = {"echo": f"you came with {READ}"}
    execution = with_memo(echoing, mine, "nothing of note")
    _, (_, before), _ = questions(echoing, execution)
    assert READ not in json.dumps(before.document)
    assert "echo" in before.document["snapshot"]
    for file in (echoing.data / "store").iterdir():
        assert READ.partition(" ")[2].encode() not in file.read_bytes(), file


def test_a_decision_and_its_input_are_one_commit(
    site: LocalSite, pay: PaymentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit lands whole or not at all, so that no crash parts a decision from its input."""
    assert site.daemon is not None
    store = site.daemon.parts.store
    commit, seen = store.commit, []

    async def spied(conditions: Any, appends: Any, payloads: Any = (), **options: Any) -> Any:
        bodies = [json.loads(append.leaf).get("body", {}) for append in appends]
        named = {body["input_payload"] for body in bodies if body.get("input_payload")}
        seen.append((named, {payload.key[2] for payload in payloads}))
        return await commit(conditions, appends, payloads, **options)

    monkeypatch.setattr(store, "commit", spied)
    execution = attempted_twice(site, pay)
    asked = {one.input_payload for one, _ in questions(site, execution)}
    assert set().union(*(named for named, _ in seen)) == asked
    assert len(asked) == 5
    assert all(named <= written for named, written in seen)


def questions(site: LocalSite, execution: str) -> list[tuple[Recorded, Question]]:
    """The decisions of one execution with their inputs, as the store gives them back."""
    with open_view(site.data / "store") as view:
        inputs = Inputs(view)
        return [(one, inputs.question(one)) for one in decisions(view) if one.execution == execution]


def with_memo(site: LocalSite, mine: str, memo: str) -> str:
    """A refund with this memo, done."""
    arguments: dict[str, Any] = {"order_id": mine, "amount": "100.00", "currency": "EUR", "memo": memo}
    with site.client() as agent:
        done = agent.execute(Call.of("payment.refund.create", "shop", target=mine, arguments=arguments, key=mine))
    assert isinstance(done, Completed), done
    return done.execution_id
