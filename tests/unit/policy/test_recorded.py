"""Inputs put together again, without a store: what is referred to, what is kept, and what cannot be replayed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.canonical import canonical, digest, reparse, sha256_hex
from kblockd.domain.contract import derive_intent, parse
from kblockd.domain.ledger import rows
from kblockd.policy import inputs, verdicts
from kblockd.policy.recorded import Inputs, NotReplayable, Why, decisions
from kblockd.store.protocol import Append, Key
from tests.harness import refund_contract
from tests.records import Record, RecordType, typed
from tests.unit.domain.histories import Records, hexdigest

CONTRACT = parse(refund_contract())
ARGS = {"order_id": "A-1", "amount": "100.00", "currency": "EUR"}
ENVELOPE = {"operation": "payment.refund.create", "target": {"type": "order", "id": "A-1", "version": ""}}
OUTCOME = {"class": "unknown_outcome", "attempts": 1, "output": {"ok": True}}


class Books:
    """Records, rows and payloads as a store gives them."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.rows: dict[Key, Any] = {}
        self.payloads: dict[Key, bytes] = {}

    def leaf(self, index: int) -> Append | None:
        return Append(self.leaves[index]) if index < len(self.leaves) else None

    def get(self, key: Key) -> tuple[int, Any] | None:
        return (0, self.rows[key]) if key in self.rows else None

    def raw(self, key: Key) -> bytes | None:
        return self.payloads.get(key)

    def keep(self, scope: str, value: Any) -> str:
        data = value if isinstance(value, bytes) else canonical(value)
        self.payloads[rows.payload(scope, sha256_hex(data))] = data
        return sha256_hex(data)


def asked(**parts: Any) -> dict[str, Any]:
    """An input about the one action."""
    about = inputs.subject(
        operation="payment.refund.create", risk_tier="high", environment="production", tool="refund",
        tool_version="1.0.0", target={"type": "order", "id": "A-1"}, intent=derive_intent(CONTRACT, ARGS),
        action_sha256=hexdigest("action exe_1"), envelope=ENVELOPE, args=ARGS, contract=CONTRACT.document,
        contract_sha256=CONTRACT.sha256, upstream="payments", origin="https://payments.example:443",
        definition_sha256=hexdigest("definition"),
    )  # fmt: skip
    return inputs.document(about, now="2026-11-01T12:00:00.000000Z", principal={"id": "agent:a"}, **parts)


@pytest.fixture
def books() -> Books:
    """A ledger with one decision and one verification, each with its input."""
    made = Books()
    call = made.keep("exe_1", {"envelope": ENVELOPE, "args": ARGS, "salt": "s"})
    read, output = (made.keep("exe_1", {"salt": "s", "value": value}) for value in ({"refunds": []}, {"ok": True}))
    first = asked()
    after = asked(read={"refunds": []}, outcome=OUTCOME, finding={"finding": "present", "verdict": ""})
    kept = made.keep("exe_1", inputs.kept(first)), made.keep("exe_1", inputs.kept(after, read=read, output=output))
    records = Records("exe_1")
    for record, document, payload in ((records.proposed(), first, kept[0]), (records.verified(), after, kept[1])):
        body = {**record.body, "input_sha256": digest(document), "input_payload": payload}
        if record.type == RecordType.PROPOSED:
            body |= {"contract_sha256": made.keep("contract", CONTRACT.document), "call_sha256": call}
        made.leaves.append(Record(record.type, record.at, "acme", "exe_1", 1, record.stage, body).leaf())
    made.rows[rows.execution("exe_1")] = SimpleNamespace(records=(0, 1))
    return made


def test_pol_12_the_input_is_the_one_that_was_asked(books: Books) -> None:
    first, after = (Inputs(books).question(one) for one in decisions(books))
    assert first.document == asked()
    assert after.document == asked(read={"refunds": []}, outcome=OUTCOME, finding={"finding": "present", "verdict": ""})
    assert not first.past_return


def test_what_is_kept_refers_to_what_is_kept_elsewhere(books: Books) -> None:
    """Without a payload that holds it a value is kept in place; null is not kept at all."""
    document = asked(snapshot={"status": "paid"}, read=[1], outcome=OUTCOME)
    referring = reparse(inputs.kept(document, snapshot="a" * 64, output="b" * 64))
    assert referring["classification"] == "restricted"
    assert referring["snapshot"] == {"payload": "a" * 64}
    assert referring["outcome"]["output"] == {"payload": "b" * 64}
    assert referring["read"] == {"value": [1]}
    assert not referring.keys() & {"args", "contract", "envelope", "action", "approval", "finding", "target_version"}
    values = {"a" * 64: {"status": "paid"}, "b" * 64: {"ok": True}}
    assert inputs.again(document, referring, values.__getitem__) == document


def test_a_version_that_a_repeat_named_is_kept(books: Books) -> None:
    document = asked()
    document["envelope"] = {**ENVELOPE, "target": {**ENVELOPE["target"], "version": "7"}}  # type: ignore[dict-item]  # of str
    assert inputs.again(asked(), reparse(inputs.kept(document)), {}.__getitem__) == document


def of_nothing(books: Books, record: Record, document: dict[str, Any]) -> None:
    """A decision about no execution: its input is kept whole, in a place of its own."""
    digest_ = books.keep(rows.policy_input("", "")[1], inputs.whole(document))
    body = {**record.body, "input_sha256": digest(document), "input_payload": digest_}
    books.leaves.append(Record(record.type, record.at, "acme", "", 0, record.stage, body).leaf())


def test_pol_12_a_decision_about_no_execution_is_put_together_again(books: Books) -> None:
    """Stage 0's, and stage 3's where something else than the decision refused the call."""
    made = Records("exe_1")
    called = {**dict.fromkeys(asked()), "v": inputs.INPUT, "principal": {"id": "agent:b"}, "method": "m"}
    of_nothing(books, made.authorized(), called)
    of_nothing(books, made.refused_decision(), asked())
    authz, refused = list(decisions(books))[2:]
    assert authz.entrypoint == "kblock/authz/result"
    assert authz.about == refused.about == "agent:b /kblock.v1.ExecutionService/Execute"
    assert dict(authz.verdict.said) == {"allow": True, "view": hexdigest("view")[:16]}
    assert refused.entrypoint == "kblock/decision/result"
    assert dict(refused.verdict.said) == {"effect": "observe", "observe_until": "2026-10-01T00:00:00Z"}
    assert [Inputs(books).question(one).document for one in (authz, refused)] == [called, asked()]


def test_a_decision_about_no_execution_is_bounded_by_its_contract(books: Books) -> None:
    """R003, R307: past a point of no return policy alone is not enough, in a replay neither."""
    final = parse(refund_contract({"point_of_no_return": True}))
    of_nothing(books, Records("exe_1").refused_decision(), {**asked(), "contract": final.document})
    *_, refused = decisions(books)
    assert Inputs(books).question(refused).past_return


@pytest.mark.parametrize("kept", [{"v": "other/1"}, {"v": inputs.KEPT}, {"v": inputs.KEPT, "input": {"contract": 1}}])
def test_another_payload_in_its_place_is_not_taken_for_the_input(books: Books, kept: dict[str, Any]) -> None:
    of_nothing(books, Records("exe_1").authorized(), {**asked(), "contract": None})
    document = reparse(books.leaves[-1])
    document["body"]["input_payload"] = books.keep(rows.policy_input("", "")[1], kept)
    books.leaves[-1] = canonical(document)
    *_, authz = decisions(books)
    with pytest.raises(NotReplayable, match="INPUT_DIFFERS"):
        Inputs(books).question(authz)


def erased(books: Books, field: str, scope: str = "exe_1") -> None:
    """The payload that the first record names is gone."""
    del books.payloads[rows.payload(scope, body_of(books)[field])]


def body_of(books: Books, index: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = reparse(books.leaves[index])["body"]
    return body


def rewritten(books: Books, **changes: Any) -> None:
    """The first record with another body."""
    document = reparse(books.leaves[0])
    books.leaves[0] = canonical({**document, "body": {**document["body"], **changes}})


def altered(books: Books, field: str) -> None:
    """The payload holds something else than it did."""
    key = rows.payload("exe_1", body_of(books)[field])
    books.payloads[key] = books.payloads[key].replace(b"2026-11-01", b"2026-11-02").replace(b"100.00", b"999.00")


@pytest.mark.parametrize(
    ("why", "spoil"),
    [
        (Why.INPUT_NOT_KEPT, lambda books: rewritten(books, input_payload="")),
        (Why.INPUT_ERASED, lambda books: erased(books, "input_payload")),
        (Why.PAYLOAD_ERASED, lambda books: erased(books, "call_sha256")),
        (Why.PAYLOAD_ERASED, lambda books: erased(books, "contract_sha256", "contract")),
        (Why.INPUT_DIFFERS, lambda books: altered(books, "input_payload")),
        (Why.INPUT_DIFFERS, lambda books: altered(books, "call_sha256")),
        (Why.INPUT_DIFFERS, lambda books: rewritten(books, input_sha256=hexdigest("another"))),
        (Why.INPUT_DIFFERS, lambda books: rewritten(books, input_payload=books.keep("exe_1", b"[]"))),
        (Why.INPUT_DIFFERS, lambda books: rewritten(books, input_payload=books.keep("exe_1", {"v": "other/1"}))),
        (Why.INPUT_DIFFERS, lambda books: books.rows.clear()),
    ],
)
def test_what_cannot_be_put_together_exactly_is_not_replayable(
    books: Books, why: Why, spoil: Callable[[Books], Any]
) -> None:
    spoil(books)
    with pytest.raises(NotReplayable) as missing:
        Inputs(books).question(next(decisions(books)))
    assert missing.value.why is why


def test_a_record_of_an_older_daemon_was_not_kept(books: Books) -> None:
    """It has a digest and no payload."""
    document = reparse(books.leaves[0])
    del document["body"]["input_payload"], document["body"]["reasons"]
    books.leaves[0] = canonical(document)
    with pytest.raises(NotReplayable, match="INPUT_NOT_KEPT"):
        Inputs(books).question(next(decisions(books)))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"allow": False, "tenants": ["acme"], "agents": ["*"]}, {"allow": False}),
        ({"allow": True, "tenants": ["b", "a", "a"], "agents": []}, {"allow": True, "view": "<a, b>"}),
    ],
)
def test_who_may_call_compares_by_the_rows_that_are_shown(result: dict[str, Any], said: dict[str, Any]) -> None:
    """In whatever order the policy names them; a denial shows none."""
    given = verdicts.of("kblock/authz/result", {**result, "reasons": []}, past_return=False).said
    if "view" in said:
        said = {**said, "view": digest({"tenants": ["a", "b"], "agents": []})[:16]}
    assert given == said


DENIED = {"effect": "deny", "approvals": {"count": 3, "roles": ["x"]}, "observe_until": "", "reasons": []}


@pytest.mark.parametrize(
    ("result", "past_return", "said"),
    [
        (DENIED, False, {"effect": "deny"}),
        ({**DENIED, "effect": "allow"}, False, {"effect": "require_approval", "count": 3, "roles": ["x"]}),
        ({**DENIED, "effect": "allow", "approvals": {"count": 0, "roles": []}}, False, {"effect": "allow"}),
        (
            {**DENIED, "effect": "allow", "approvals": {"count": 0, "roles": []}},
            True,
            {"effect": "require_approval", "count": 1, "roles": []},
        ),
        (
            {**DENIED, "effect": "observe", "approvals": {"count": 0, "roles": []}, "observe_until": "2030"},
            False,
            {"effect": "observe", "observe_until": "2030"},
        ),
    ],
)
def test_a_decision_counts_as_code_lets_it_stand(
    result: dict[str, Any], past_return: bool, said: dict[str, Any]
) -> None:
    """R003, R307: what a record holds is bounded; what a bundle says is bounded before it is compared."""
    assert verdicts.of("kblock/decision/result", result, past_return=past_return).said == said


@pytest.mark.parametrize(
    ("ok", "stands", "reason"),
    [(True, True, ""), (False, True, "PRECONDITION_FAILED"), (False, False, "PRECONDITION_FAILED"),
     (True, False, "POLICY_CHANGED")],
)  # fmt: skip
def test_preconditions_on_record_compare_with_what_a_bundle_says(ok: bool, stands: bool, reason: str) -> None:
    entrypoint = "kblock/preconditions/result"
    fresh = verdicts.of(entrypoint, {"ok": ok, "stands": stands, "reasons": []}, past_return=False)
    refused = typed(RecordType.CALL_REFUSED, reason=reason, reasons=[])
    body = refused if reason else typed(RecordType.CLAIMED, reasons=[])
    assert fresh == verdicts.on_record(entrypoint, body, None)


def test_a_recovery_on_record_is_what_policy_chose_not_what_code_made_of_it() -> None:
    entrypoint = "kblock/recovery/result"
    fresh = verdicts.of(
        entrypoint, {"recovery": "retry", "reasons": [{"code": "A", "message": "m"}]}, past_return=False
    )
    body = typed(RecordType.RECOVERY_PLANNED, recovery="manual", refused="retry", reasons=["A"])
    assert fresh == verdicts.on_record(entrypoint, body, None)
