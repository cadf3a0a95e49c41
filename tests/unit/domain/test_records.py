"""Records: bytes and back, what is no record, and that none holds anything but identifiers, codes and numbers."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from kblockd.domain.canonical import NotCanonical
from kblockd.domain.fold import RULES, WITHOUT_ROWS
from kblockd.domain.records import MAX_LEAF, RECEIPT_PREDICATE, VERSION, Record, RecordType, read
from tests.unit.domain.bodies import BODIES, faults
from tests.unit.domain.histories import Records, configured

AT = "2026-11-01T12:00:00.000000Z"
MADE = Records("exe_1")
ONE_OF_EACH = [
    MADE.proposed(),
    MADE.requested(),
    MADE.decided(),
    MADE.revoked(),
    MADE.refused(),
    MADE.authorized(),
    MADE.refused_decision(),
    *(MADE.ended(type_) for type_ in (RecordType.REJECTED, RecordType.EXPIRED, RecordType.CANCELLED)),
    MADE.claimed(),
    MADE.sent(),
    MADE.outcome("accepted", operation="op-1"),
    MADE.accepted(),
    MADE.reconciled(),
    MADE.verified(),
    MADE.planned(),
    MADE.held(),
    MADE.resolved(),
    MADE.sealed("failed", "unknown_outcome"),
    MADE.disposition(),
    *(
        configured(type_, "one")
        for type_ in RecordType
        if re.match("policy|contract|upstream|principal|key|daemon|store.pruned", type_)
    ),
]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3), max_leaves=8)
TYPES = st.sampled_from(sorted(set(RecordType) - {RecordType.RECEIPT}))
RECORDS = st.builds(
    Record,
    TYPES,
    TEXTS,
    TEXTS,
    TEXTS,
    st.integers(0, 9),
    st.none() | st.integers(0, 16),
    st.dictionaries(TEXTS, VALUES),
)


@settings(deadline=None)
@given(RECORDS)
def test_a_leaf_reads_as_the_record_that_it_was_made_of(record: Record) -> None:
    leaf = record.leaf()
    assert read(leaf) == record
    assert read(leaf).leaf() == leaf


@settings(deadline=None)
@given(RECORDS)
def test_a_leaf_is_the_canonical_form_of_the_eight_fields(record: Record) -> None:
    """kblockd/ledger/README.md#records; written by a package that is not ours."""
    document = {
        "v": "kblockd.record/1",
        "type": str(record.type),
        "at": record.at,
        "tenant": record.tenant,
        "execution": record.execution,
        "attempt": record.attempt,
        "stage": record.stage,
        "body": record.body,
    }
    assert record.leaf() == rfc8785.dumps(document)


@pytest.mark.parametrize(
    "body",
    [{"x": 1.5}, {"x": 2.0}, {"x": [0, {"y": -0.0}]}, {"x": (1.0,)}, {"x": float("nan")}, {"x": float("inf")}],
)
def test_no_float_is_on_record(body: dict[str, Any]) -> None:
    """2.0 would come back as 2: a row would not fold to itself."""
    with pytest.raises(ValueError, match="float"):
        Record(RecordType.HELD, AT, body=body).leaf()


@pytest.mark.parametrize("value", [2**53, -(2**53), "\ud800", b"bytes", {1: 2}, object()])
def test_what_has_no_canonical_form_is_no_record(value: Any) -> None:
    with pytest.raises((NotCanonical, ValueError, TypeError)):
        Record(RecordType.HELD, AT, body={"x": value}).leaf()


def test_a_leaf_is_at_most_65535_bytes() -> None:
    """The length that the tile format can hold; the error says how much it was, never what."""
    empty = len(Record(RecordType.HELD, AT, body={"x": ""}).leaf())
    room = MAX_LEAF - empty
    assert len(Record(RecordType.HELD, AT, body={"x": "a" * room}).leaf()) == 65_535
    with pytest.raises(ValueError, match="a record of 65536 bytes, at most 65535 are possible"):
        Record(RecordType.HELD, AT, body={"x": "a" * (room + 1)}).leaf()
    with pytest.raises(ValueError, match="a record of"):
        Record(RecordType.HELD, AT, body={"x": "é" * (room // 2 + 1)}).leaf()


def test_a_receipt_brings_its_own_leaf() -> None:
    """Its leaf is its DSSE payload; there is no second form of it."""
    statement = {"predicateType": RECEIPT_PREDICATE, "predicate": {"executionId": "exe_1", "issuedAt": AT}}
    assert read(orjson.dumps(statement)) == Record(RecordType.RECEIPT, AT, execution="exe_1", stage=16)
    with pytest.raises(ValueError, match="receipt"):
        Record(RecordType.RECEIPT, AT, execution="exe_1").leaf()


GOOD = {
    "v": VERSION,
    "type": "execution.held",
    "at": AT,
    "tenant": "",
    "execution": "",
    "attempt": 0,
    "stage": 1,
    "body": {},
}


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        "text",
        None,
        7,
        {**GOOD, "v": "kblockd.record/2"},
        {**GOOD, "v": None},
        {**GOOD, "type": "execution.unheard_of"},
        {**GOOD, "type": ""},
        {**GOOD, "type": None},
        {**GOOD, "type": ["execution.held"]},
        {**GOOD, "type": "receipt"},
        {**GOOD, "index": 4},
        *({name: value for name, value in GOOD.items() if name != without} for without in GOOD),
        {"predicateType": "https://kblockd.dev/result/v1", "predicate": {}},
        {"predicateType": RECEIPT_PREDICATE},
        {"predicateType": RECEIPT_PREDICATE, "predicate": None},
        {"predicateType": RECEIPT_PREDICATE, "predicate": {"executionId": "exe_1"}},
        {"predicateType": RECEIPT_PREDICATE, "predicate": {"issuedAt": AT}},
    ],
)
def test_what_is_no_record_is_refused(document: Any) -> None:
    """An unknown type or version never folds to nothing in silence."""
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        read(orjson.dumps(document))


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_record_or_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - no 64 bytes are a record
        read(data)


def test_every_type_has_a_rule_or_none_on_purpose() -> None:
    """A new type is a decision: does a row follow from it, and which?"""
    assert RULES.keys() | WITHOUT_ROWS == set(RecordType)
    assert not RULES.keys() & WITHOUT_ROWS


def test_every_type_that_is_written_has_a_body_in_the_table() -> None:
    """The two that are left belong to parts that are not there yet; a receipt has no body."""
    later = {RecordType.LEASE_LOST, RecordType.STORE_RESTORED}
    assert set(RecordType) - BODIES.keys() == later | {RecordType.RECEIPT}
    assert {record.type for record in ONE_OF_EACH} == BODIES.keys()


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: record.type)
def test_ldg_23_a_body_holds_identifiers_codes_digests_numbers(record: Record) -> None:
    """R503: no free text anywhere; the samples are held against a running daemon's in tests/unit/system."""
    assert faults(record) == []


def test_the_check_for_free_text_sees_free_text() -> None:
    """So that the tests above can fail."""
    held = MADE.held()
    for body in ({"code": "The refund failed"}, {"code": "X", "keep_lock": "yes"}, {"detail": "anything"}):
        assert faults(Record(held.type, AT, body={**held.body, **body}))
    outcome = MADE.outcome("accepted", operation="op-1")
    for body in ({"operation": "please look at the order"}, {"request_ids": {"a": "b c"}}, {"output_sha256": "ab"}):
        assert faults(Record(outcome.type, AT, body={**outcome.body, **body}))
    assert faults(Record(held.type, AT, body={"code": "X", "class": ""})) == ["execution.held: keep_lock is missing"]
