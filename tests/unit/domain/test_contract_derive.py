"""What code derives from a contract and the arguments of a call."""

from __future__ import annotations

import copy
import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.config import document
from kblockd.domain import canonical
from kblockd.domain import contract as contracts
from kblockd.domain.envelope import BudgetBound, Envelope, TargetPin
from kblockd.domain.errors import InvalidArgument
from kblockd.domain.pointer import PointerMissing

ROOT = Path(__file__).parents[3]
SHIPPED: dict[str, Any] = document.read(ROOT / "config/actions/payment.refund.create.yaml").value
ARGS = {"order_id": "O-1", "amount": "250.00", "currency": "EUR"}


def contract(**changes: Any) -> contracts.ActionContract:
    return contracts.parse({**copy.deepcopy(SHIPPED), **changes})


def envelope(**fields: Any) -> Envelope:
    return Envelope("kblock.envelope/1", "production", "payment.refund.create", TargetPin(), b"{}", **fields)


def open_schema(**properties: Any) -> dict[str, Any]:
    tool = copy.deepcopy(SHIPPED["tool"])
    tool["arguments_schema"]["properties"].update(properties)
    return tool


def test_target_intent_and_summary_come_from_the_arguments() -> None:
    """R014, R047, R070."""
    read = contract()
    target = contracts.derive_target(read, ARGS)
    intent = contracts.derive_intent(read, ARGS)
    assert target == {"type": "order", "id": "O-1"}
    assert intent == {"order": "O-1", "amount": "250.00", "currency": "EUR"}
    assert contracts.summary(read, target, intent) == "Refund 250.00 EUR for order O-1"


@pytest.mark.parametrize("value", ["", " O-1", "O-1\n", "x" * 513, True, None, 1.5, {}, []])
def test_what_is_no_target_is_refused_at_its_pointer(value: Any) -> None:
    """R047."""
    with pytest.raises(InvalidArgument) as caught:
        contracts.derive_target(contract(), {**ARGS, "order_id": value})
    assert caught.value.violations[0].field == "envelope.arguments_json/order_id"


def test_an_absent_target_is_refused_and_an_integer_is_one() -> None:
    with pytest.raises(InvalidArgument):
        contracts.derive_target(contract(), {"amount": "1.00"})
    assert contracts.derive_target(contract(), {"order_id": 17})["id"] == "17"


def test_a_reworded_memo_is_the_same_deed() -> None:
    """C10: only what the contract names as intent counts; null and absent count alike."""
    tool = open_schema(memo={"type": ["string", "null"]}, region={"type": ["string", "null"]})
    read = contract(
        tool=tool, summary="Refund", intent={"order": "/args/order_id", "region": "/args/region", "kind": "refund"}
    )
    assert contracts.derive_intent(read, {**ARGS, "memo": "a"}) == contracts.derive_intent(read, {**ARGS, "memo": "b"})
    assert contracts.derive_intent(read, ARGS) == {"order": "O-1", "region": None, "kind": "refund"}
    assert contracts.derive_intent(read, {**ARGS, "region": None}) == contracts.derive_intent(read, ARGS)


def test_without_intent_all_arguments_count() -> None:
    changed = copy.deepcopy(SHIPPED)
    del changed["intent"]
    changed["summary"] = "Refund {intent.order_id}"
    assert contracts.derive_intent(contracts.parse(changed), ARGS) == ARGS


@given(st.text(max_size=40))
def test_a_foreign_value_in_a_summary_stays_text(text: str) -> None:
    """A value that looks like a placeholder is not expanded; escaping is the approvals' business."""
    read = contract()
    intent = {"order": text, "amount": "{target.id}{intent.currency}", "currency": 5}
    shown = contracts.summary(read, {"type": "order", "id": "O-1"}, intent)
    assert shown == "Refund {target.id}{intent.currency} 5 for order " + text


def test_read_and_lookup_arguments_are_resolved() -> None:
    read = contract()
    known = {"args": ARGS, "effect_key": "ab" * 32, "execution_id": "exe_1"}
    assert read.reads.verify is not None
    assert contracts.resolve(read.reads.verify.arguments, known) == {"order_id": "O-1"}
    assert contracts.resolve(read.lookup[0].arguments, known) == {"key": "ab" * 32}
    assert contracts.resolve(read.verification.expected, known) == {"refunds": 1, "amount": "250.00"}
    with pytest.raises(PointerMissing):
        contracts.resolve({"id": "/operation"}, known)


def test_a_caller_sees_what_is_revealed_and_nothing_else() -> None:
    known = {"args": ARGS, "output": {"refund_id": "r1", "status": "ok", "iban": "DE00"}, "snapshot": {"email": "x"}}
    assert contracts.reveal(contract().reveal, known) == {"output": {"refund_id": "r1", "status": "ok"}}
    assert contracts.reveal(contract(reveal=[]).reveal, known) == {}
    everything = {"output": known["output"], "snapshot": known["snapshot"]}
    assert contracts.reveal(contract(reveal=[""]).reveal, known) == everything
    assert contracts.reveal(contract(reveal=["/snapshot"]).reveal, known) == {"snapshot": {"email": "x"}}
    assert contracts.reveal(contract().reveal, {"args": ARGS}) == {}
    assert contracts.reveal(contract().reveal, {"output": "not an object"}) == {}


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        ({"found": True}, True),
        ({"found": False}, False),
        ({"found": 1}, None),
        ({"found": "false"}, None),
        ({"found": None}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_only_a_boolean_says_present_or_absent(answer: Any, finding: bool | None) -> None:
    """R268: everything else is unprovable."""
    assert contracts.present(contract().lookup[0], answer) is finding


@pytest.mark.parametrize(
    ("consistent", "seconds", "proves"),
    [("strong", 5, True), ("strong", 0, True), ("strong", None, False), ("eventual", None, False)],
)
def test_absence_is_proof_only_where_declared(consistent: str, seconds: int | None, proves: bool) -> None:
    entry = {**SHIPPED["lookup"][0], "consistent": consistent, "absent_final_after_seconds": seconds}
    assert contract(lookup=[entry]).lookup[0].proves_absence is proves


def test_the_digest_covers_everything_and_survives_a_round_trip() -> None:
    """R018: what approvals bind; loading the stored document again gives the same contract."""
    read = contract()
    again = contracts.parse(canonical.reparse(canonical.canonical(read.document)))
    assert again == read
    assert again.sha256 == read.sha256 == canonical.digest(read.document)
    assert contract(summary="Refund {target.id}").sha256 != read.sha256
    assert contract(owners={"incident": "somebody else"}).sha256 != read.sha256


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from pathlib import Path; from kblockd.config import document; "
        "from kblockd.domain import contract; print(contract.parse(document.read(Path(sys.argv[1])).value).sha256)"
    )
    path = str(ROOT / "config/actions/payment.refund.create.yaml")
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == contract().sha256


def test_without_bounds_the_contract_holds() -> None:
    limits = contracts.tighten(contract(), envelope())
    assert limits.request_timeout_seconds == 30
    assert (limits.maximum_attempts, limits.cancellation, limits.deadline) == (1, "none", None)
    assert limits.as_json()["requestTimeoutMs"] == 30_000
    assert canonical.digest(limits.as_json())


def test_bounds_tighten() -> None:
    """R025, R026, R027, R029."""
    execution = {**SHIPPED["execution"], "maximum_attempts": 3}
    deadline = dt.datetime(2026, 11, 29, 12, 1, tzinfo=dt.UTC)
    limits = contracts.tighten(
        contract(execution=execution),
        envelope(
            request_timeout=2.5,
            maximum_attempts=2,
            deadline=deadline,
            cancellation="none",
            evidence=("record_verification_result",),
            preconditions={"x": 1},
        ),
    )
    assert (limits.request_timeout_ms, limits.maximum_attempts) == (2500, 2)
    assert limits.preconditions == {"x": 1}
    consumed = dt.datetime(2026, 11, 29, 12, 0, tzinfo=dt.UTC)
    assert limits.no_attempt_after(consumed) == deadline
    assert limits.no_attempt_after(consumed - dt.timedelta(hours=1)) == consumed - dt.timedelta(minutes=55)


@pytest.mark.parametrize(
    ("field", "bounds"),
    [
        ("envelope.request_timeout", {"request_timeout": 30.001}),
        ("envelope.request_timeout", {"request_timeout": 0.0001}),
        ("envelope.request_timeout", {"request_timeout": float("nan")}),
        ("envelope.request_timeout", {"request_timeout": -1.0}),
        ("envelope.maximum_attempts", {"maximum_attempts": 2}),
        ("envelope.cancellation", {"cancellation": "signal"}),
        ("envelope.evidence[1]", {"evidence": ("record_verification_result", "record_everything")}),
        ("envelope.budget", {"budget": BudgetBound(count=1)}),
    ],
)
def test_a_bound_that_would_widen_is_refused_by_name(field: str, bounds: dict[str, Any]) -> None:
    """R007, R025 to R029: an envelope may only tighten the contract."""
    with pytest.raises(InvalidArgument) as caught:
        contracts.tighten(contract(), envelope(**bounds))
    assert caught.value.violations[0].field == field
