"""Statements: exactly the members of kblockd/evidence/README.md, strict both ways."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kblockd.domain.canonical import canonical
from kblockd.domain.states import ResultClass
from kblockd.evidence import statements
from kblockd.evidence.errors import BadStatement
from kblockd.evidence.statements import Approval, Disposition, LedgerEvent, Receipt, Result, Statement, payload, read
from tests.unit.evidence import samples
from tests.unit.evidence.samples import ACTION, HEX, World

RESULT = """executionId tenant caller tool toolVersion target state resultClass code attempts effectKey upstream
contractSha256 startedAt finishedAt idempotency approval policy verification output credential daemon"""
APPROVAL = "approvalId approver owner decision presentedSha256 maxUses notBefore notAfter policyDigest signedBy"
RECEIPT = "executionId state ledger events issuedAt"
NESTED = {
    "upstream": {"origin", "operationId"},
    "idempotency": {"digest", "replay"},
    "approval": {"id", "digest", "consumedIndex"},
    "policy": {"id", "digest"},
    "verification": {"outcome", "source", "digest"},
    "output": {"size", "mediaType", "redaction"},
    "credential": {"ref", "version"},
    "daemon": {"version", "instance"},
}


def _all(world: World) -> list[Statement]:
    return [samples.result(), samples.receipt(world.result), samples.approval(), samples.disposition()]


def _document(statement: Statement) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload(statement))
    return found


@pytest.mark.parametrize(("kind", "members"), [(Result, RESULT), (Approval, APPROVAL), (Receipt, RECEIPT)])
def test_predicates_have_exactly_the_members_of_the_format(world: World, kind: type[Statement], members: str) -> None:
    (statement,) = (one for one in _all(world) if type(one) is kind)
    assert set(_document(statement)["predicate"]) == set(members.split())


def test_a_full_result_writes_every_member_with_its_nested_ones() -> None:
    """R467: the outcome in one signed document."""
    document = _document(samples.result())
    assert set(document["predicate"]) == set(RESULT.split())
    for name, members in NESTED.items():
        assert set(document["predicate"][name]) == members
    assert set(document["predicate"]["caller"]) == {"principal", "spiffeId", "certSha256", "apiKeyId"}
    assert [subject["name"] for subject in document["subject"]] == ["action", "output"]
    assert document["subject"][0]["digest"] == {"sha256": ACTION}
    assert document["_type"] == "https://in-toto.io/Statement/v1"


def test_predicate_types_and_subjects_are_those_of_the_format(world: World) -> None:
    found = [(_document(s)["predicateType"], [x["name"] for x in _document(s)["subject"]]) for s in _all(world)]
    assert found == [
        ("https://kblockd.dev/result/v1", ["action", "output"]),
        ("https://kblockd.dev/receipt/v1", ["result", "action", "approval"]),
        ("https://kblockd.dev/approval/v1", ["action"]),
        ("https://kblockd.dev/disposition/v1", ["result"]),
    ]


def test_all_integers_are_texts_and_times_end_in_z(world: World) -> None:
    def walk(value: object) -> None:
        assert not isinstance(value, float)
        assert isinstance(value, bool) or not isinstance(value, int)
        for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(member)

    for statement in _all(world):
        walk(_document(statement))
        assert payload(statement) == canonical(_document(statement))
    predicate = _document(samples.result())["predicate"]
    assert predicate["attempts"] == "1"
    assert predicate["startedAt"] == "2026-11-29T12:00:00.123456Z"


def test_read_is_the_inverse_of_payload(world: World) -> None:
    for statement in _all(world):
        assert read(payload(statement), type(statement)) == statement


def test_optional_members_are_absent_not_null() -> None:
    bare = replace(
        samples.result(),
        output=None,
        output_sha256=None,
        approval=None,
        idempotency=None,
        verification=None,
        credential=None,
        caller=statements.CallerIdentity("local:agent"),
    )
    document = _document(bare)
    assert set(document["predicate"]) == set(RESULT.split()) - {
        "output",
        "approval",
        "idempotency",
        "verification",
        "credential",
    }
    assert document["predicate"]["caller"] == {"principal": "local:agent"}
    assert [subject["name"] for subject in document["subject"]] == ["action"]
    assert read(payload(bare), Result) == bare


def test_records_of_the_own_commit_have_no_index(world: World) -> None:
    events = _document(samples.receipt(world.result))["predicate"]["events"]
    assert events[-1] == {"type": "result.sealed", "leafHash": HEX}
    assert events[0]["index"] == "1"


@pytest.mark.parametrize(
    "events",
    [
        (LedgerEvent("a", HEX, 2), LedgerEvent("b", HEX, 1)),
        (LedgerEvent("a", HEX, 2), LedgerEvent("b", HEX, 2)),
        (LedgerEvent("a", HEX), LedgerEvent("b", HEX, 1)),
    ],
)
def test_events_out_of_ledger_order_are_refused(world: World, events: tuple[LedgerEvent, ...]) -> None:
    with pytest.raises(ValueError, match="ledger order"):
        replace(samples.receipt(world.result), events=events)


def test_impossible_statements_are_refused() -> None:
    for change in ({"output": None}, {"output_sha256": None}, {"result_class": ResultClass.NONE}, {"action": "A" * 64}):
        with pytest.raises(ValueError, match=r"output|class|digest"):
            replace(samples.result(), **change)
    with pytest.raises(ValueError, match="notAfter"):
        replace(samples.approval(), not_after=samples.NOW.replace(year=2025))
    with pytest.raises(TypeError, match="negative"):
        payload(replace(samples.result(), attempts=-1))
    with pytest.raises(ValueError, match="exceeds the limit of 65535"):
        payload(replace(samples.result(), code="x" * 70_000))


def test_one_kind_is_never_read_as_another(world: World) -> None:
    every = _all(world)
    for statement in every:
        for other in every:
            if type(other) is not type(statement):
                with pytest.raises(BadStatement, match="predicateType"):
                    read(payload(statement), type(other))


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        ("attempts", 1, "/attempts: must be text"),
        ("attempts", "01", "/attempts: must be a decimal"),
        ("attempts", "-1", "/attempts: must be a decimal"),
        ("attempts", "1.0", "/attempts: must be a decimal"),
        ("state", "held", "/state: 'held' is not a valid value"),
        ("resultClass", "", "a result has a class"),
        ("startedAt", "2026-11-29T12:00:00Z", "/startedAt"),
        ("startedAt", "2026-11-29T12:00:00.123456+00:00", "/startedAt"),
        ("startedAt", "2026-11-29T12:00:00.1Z", "valid value"),
        ("contractSha256", "abc", "64 lowercase"),
        ("tenant", None, "/tenant: must be text"),
        ("caller", "x", "/caller: must be an object"),
        ("idempotency", {"digest": HEX, "replay": "false"}, "/idempotency/replay: must be true or false"),
        ("idempotency", {"digest": HEX}, "/idempotency/replay: missing"),
        ("idempotency", {"digest": HEX, "replay": True, "x": "y"}, "/idempotency/x: unknown"),
        ("approval", None, "/approval: must be an object"),
        ("surplus", "x", "/surplus: unknown"),
        ("action", ACTION, "/predicate/action: unknown"),
    ],
)
def test_a_wrong_member_is_named(at: str, value: object, why: str) -> None:
    document = _document(samples.result())
    document["predicate"][at] = value
    with pytest.raises(BadStatement) as caught:
        read(canonical(document), Result)
    assert why in str(caught.value)


def test_wrong_frames_are_refused(world: World) -> None:
    document = _document(samples.receipt(world.result))
    digest = {"sha256": HEX}
    frames = [
        {**document, "_type": "https://in-toto.io/Statement/v0.1"},
        {**document, "extra": "x"},
        {**document, "predicate": []},
        {**document, "subject": []},
        {**document, "subject": {}},
        {**document, "subject": [*document["subject"], document["subject"][0]]},
        {**document, "subject": document["subject"][::-1]},
        {**document, "subject": [{"name": "other", "digest": digest}]},
        {**document, "subject": [{"name": "result", "digest": {**digest, "sha512": "x"}}]},
        {**document, "subject": [{"name": "result", "digest": digest, "uri": "x"}]},
    ]
    for frame in frames:
        with pytest.raises(BadStatement):
            read(canonical(frame), Receipt)
    with pytest.raises(BadStatement, match="canonical"):
        read(json.dumps(document).encode(), Receipt)
    with pytest.raises(BadStatement, match="twice"):
        read(payload(samples.disposition()).replace(b'"source"', b'"source":"x","source"'), Disposition)
