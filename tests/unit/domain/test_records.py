"""Records: bytes and back, what is no record, and that none holds anything but identifiers, codes and numbers."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from kblockd.domain import ledger
from kblockd.domain.errors import Reason, StoredUnreadable
from kblockd.domain.ledger import Body, rows, table
from kblockd.domain.ledger.claim import ExecutionSent
from kblockd.domain.ledger.sealing import ExecutionHeld, ReceiptIssued
from kblockd.domain.ledger.values import Fence
from tests.records import MAX_LEAF, RECEIPT_PREDICATE, VERSION, Record, RecordType, document, leaves, read
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
WORDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=8)  # keys: named by adapters


def values(info: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold."""
    match info:
        case inspect.StrType():
            return TEXTS
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case inspect.VarTupleType():
            return st.lists(values(info.item_type), max_size=3).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(values, info.item_types))
        case inspect.DictType():
            return st.dictionaries(WORDS, values(info.value_type), max_size=3)
        case inspect.UnionType():
            return st.one_of(*map(values, info.types))
        case inspect.StructType():
            fields = {field.name: values(field.type) for field in info.fields}
            needed = {field.name: fields.pop(field.name) for field in info.fields if field.required}
            return st.fixed_dictionaries(needed, optional=fields).map(lambda members: info.cls(**members))
    raise TypeError(info)


TYPED = st.builds(
    ledger.Record,
    st.one_of(*(values(inspect.type_info(body)) for body in table.BODIES if body is not ReceiptIssued)),
    TEXTS,
    TEXTS,
    TEXTS,
    st.integers(0, 9),
    st.none() | st.integers(0, 16),
)


@given(TYPED)
def test_a_leaf_reads_as_the_record_that_it_was_made_of(record: ledger.Record) -> None:
    leaf = record.leaf()
    assert ledger.read(leaf) == record
    assert ledger.read(leaf).leaf() == leaf


@given(TYPED)
def test_a_leaf_is_the_canonical_form_of_the_eight_fields(record: ledger.Record) -> None:
    """kblockd/ledger/README.md#records; written by a package that is not ours."""
    document_ = {
        "v": "kblockd.record/1",
        "type": str(record.type),
        "at": record.at,
        "tenant": record.tenant,
        "execution": record.execution,
        "attempt": record.attempt,
        "stage": record.stage,
        "body": document(record.body),
    }
    assert record.leaf() == rfc8785.dumps(document_)


def sent(value: Any) -> ledger.Record:
    """A record that the type checker would not let pass."""
    return ledger.Record(ExecutionSent(fence=Fence(value, 1), boot="b-1", effect_key=""), AT)


@pytest.mark.parametrize("value", [1.5, 2.0, [0, {"y": -0.0}], (1.0,), float("nan"), float("inf")])
def test_no_float_is_on_record(value: Any) -> None:
    """2.0 would come back as 2: a row would not fold to itself."""
    with pytest.raises(ValueError, match="Expected `int`"):
        sent(value).leaf()


@pytest.mark.parametrize("value", [2**53, -(2**53), "\ud800", b"bytes", {1: 2}, object()])
def test_what_has_no_canonical_form_is_no_record(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        sent(value).leaf()


def test_a_leaf_is_at_most_65535_bytes() -> None:
    """The length that the tile format can hold; the error says how much it was, never what."""

    def held(code: str) -> bytes:
        return ledger.Record(ExecutionHeld(code=code, keep_lock=True), AT).leaf()

    room = MAX_LEAF - len(held(""))
    assert len(held("a" * room)) == 65_535
    with pytest.raises(ValueError, match="a record of 65536 bytes, at most 65535 are possible"):
        held("a" * (room + 1))
    with pytest.raises(ValueError, match="a record of"):
        held("é" * (room // 2 + 1))


def test_a_receipt_brings_its_own_leaf() -> None:
    """Its leaf is its DSSE payload; there is no second form of it."""
    statement = {"predicateType": RECEIPT_PREDICATE, "predicate": {"executionId": "exe_1", "issuedAt": AT}}
    receipt = ledger.Record(ReceiptIssued(), AT, execution="exe_1", stage=16)
    assert ledger.read(orjson.dumps(statement)) == receipt
    with pytest.raises(ValueError, match="receipt"):
        receipt.leaf()


GOOD: dict[str, Any] = {
    "v": VERSION,
    "type": "execution.held",
    "at": AT,
    "tenant": "",
    "execution": "",
    "attempt": 0,
    "stage": 1,
    "body": {"class": "", "code": "X", "keep_lock": True},
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
        ledger.read(orjson.dumps(document))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_record_or_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - no 64 bytes are a record
        ledger.read(data)


@pytest.mark.parametrize(
    "later",
    [
        {"v": "kblockd.record/2"},
        {"type": "execution.unheard_of"},
        {"body": {**GOOD["body"], "a_field_to_come": ""}},
        {"body": {**GOOD["body"], "class": "a_class_to_come"}},
        {"body": []},
    ],
    ids=["version", "type", "field", "member", "form"],
)
def test_a_record_of_a_later_release_says_that_it_is_one(later: dict[str, Any]) -> None:
    """Whoever meets it is told what to do, and not that the daemon has a defect."""
    with pytest.raises(StoredUnreadable, match="cannot be read by this release") as raised:
        ledger.read(orjson.dumps({**GOOD, **later}))
    assert raised.value.reason is Reason.STORED_UNREADABLE


@pytest.mark.parametrize(
    "row", [b'{"execution":"exe_1","records":[1],"to_come":1}', b'{"execution":"exe_1"}', b'{"execution":', b"\xff"]
)
def test_a_row_of_a_later_release_says_that_it_is_one(row: bytes) -> None:
    with pytest.raises(StoredUnreadable, match="a row of the table open cannot be read by this release"):
        rows.decode("open", row)


def test_every_type_has_a_rule_or_none_on_purpose() -> None:
    """A new type is a decision: does a row follow from it, and which?"""
    for body in table.BODIES:
        assert (body.fold is not Body.fold) == bool(body.WRITES), body


def test_names_and_versions_of_types_are_unique() -> None:
    forms = [(body.TYPE, body.VERSION) for body in (*table.BODIES, *table.OLDER)]
    assert len(set(forms)) == len(forms)


@pytest.mark.parametrize("leaf", leaves(), ids=lambda leaf: f"{read(leaf).type}-{len(leaf)}")
def test_the_bytes_of_todays_types_stay_as_they_are(leaf: bytes) -> None:
    """``tests/vectors/leaves.jsonl`` was written before records were types; a line is never changed."""
    record = ledger.read(leaf)
    assert document(record.body) == read(leaf).body or record.type == RecordType.RECEIPT
    assert record.type == RecordType.RECEIPT or record.leaf() == leaf


def test_every_type_has_a_vector() -> None:
    assert {read(leaf).type for leaf in leaves()} == set(RecordType)


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
