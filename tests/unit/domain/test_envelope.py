"""The shape of an envelope: each field, wrong in each way, is named by its path, and nothing else is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain.envelope import (
    MAX_CALLER_KEY,
    MAX_IDENTIFIER,
    SCHEMA_VERSION,
    BindingPin,
    BudgetBound,
    Envelope,
    TargetPin,
    check_shape,
)
from kblockd.domain.errors import InvalidArgument, Reason

GOOD = Envelope(SCHEMA_VERSION, "production", "payment.refund.create", TargetPin("order", "A-1"), b"{}")

REQUIRED = ["environment", "operation", "target.id"]
OPTIONAL = [
    "action_id",
    "requester",
    "agent",
    "tenant",
    "organization",
    "target.type",
    "target.version",
    "binding.upstream",
    "binding.server_version",
    "binding.tool",
    "policy_revision",
    "approval_id",
    "compensation_ref",
]
DIGESTS = ["arguments_sha256", "binding.definition_sha256"]
CONTROLS = [chr(c) for c in (*range(32), 127)]


def changed(path: str, value: Any) -> Envelope:
    """The good envelope with one field replaced."""
    outer, _, inner = path.partition(".")
    new = dataclasses.replace(getattr(GOOD, outer), **{inner: value}) if inner else value
    return dataclasses.replace(GOOD, **{outer: new})


def keyed(key: str) -> Envelope:
    """With a caller key that is present."""
    return dataclasses.replace(GOOD, caller_key=key, has_caller_key=True)


def refusal(envelope: Envelope) -> InvalidArgument:
    """Why it was refused; nothing but ``InvalidArgument`` may come."""
    with pytest.raises(InvalidArgument) as raised:
        check_shape(envelope)
    return raised.value


def field(envelope: Envelope) -> str:
    """The one field that a refusal names, in the violation, the sentence and the next step alike."""
    error = refusal(envelope)
    (violation,) = error.violations
    assert error.message.startswith(f"{violation.field}: {violation.description}")
    assert error.message.endswith("Nothing was executed or consumed.")
    assert violation.field in error.next_step
    assert (error.executed, error.consumed, error.retryable) == (False, False, False)
    return violation.field


FULL = dataclasses.replace(
    GOOD,
    **dict.fromkeys(["action_id", "requester", "agent", "tenant", "organization", "policy_revision"], "x"),
    target=TargetPin("order", "A-1", "7"),
    arguments_sha256="0" * 64,
    binding=BindingPin("payments", "1.0.0", "refund", "f" * 64),
    approval_id="apr_1",
    approval_expires_at=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    caller_key="k",
    has_caller_key=True,
    preconditions={"amount": "100.00"},
    postconditions={},
    request_timeout=0.5,
    deadline=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    maximum_attempts=2,
    cancellation="signal",
    compensation_ref="undo",
    evidence=("record_policy_version",),
)


@pytest.mark.parametrize("envelope", [GOOD, FULL], ids=["least", "most"])
def test_a_good_envelope_passes(envelope: Envelope) -> None:
    check_shape(envelope)


@pytest.mark.parametrize("version", ["", "kblock.envelope/2", "kblock.envelope/1 ", "KBLOCK.ENVELOPE/1", "1"])
def test_r006_an_unknown_schema_version_is_refused(version: str) -> None:
    """R006: before anything else is looked at, with a reason of its own."""
    error = refusal(dataclasses.replace(GOOD, schema_version=version, environment="", arguments_json=b""))
    assert error.reason is Reason.UNKNOWN_SCHEMA_VERSION
    assert error.violations[0].field == "envelope.schema_version"
    assert SCHEMA_VERSION in error.message


@pytest.mark.parametrize("blank", ["", " ", "\t", "\n", "\u00a0", "\u2003  "])
@pytest.mark.parametrize("path", REQUIRED)
def test_required_fields_are_not_blank(path: str, blank: str) -> None:
    assert field(changed(path, blank)) == f"envelope.{path}"


def test_arguments_are_not_empty() -> None:
    assert field(changed("arguments_json", b"")) == "envelope.arguments_json"


@pytest.mark.parametrize("path", [*REQUIRED, *OPTIONAL])
def test_identifiers_have_at_most_256_bytes_of_utf8(path: str) -> None:
    check_shape(changed(path, "a" * MAX_IDENTIFIER))
    check_shape(changed(path, "é" * (MAX_IDENTIFIER // 2)))
    for value in ("a" * (MAX_IDENTIFIER + 1), "é" * (MAX_IDENTIFIER // 2) + "a", "🎁" * 65, "a" * 100_000):
        assert field(changed(path, value)) == f"envelope.{path}"


@pytest.mark.parametrize("path", [*REQUIRED, *OPTIONAL])
def test_identifiers_hold_no_control_characters(path: str) -> None:
    for control in CONTROLS:
        assert field(changed(path, f"a{control}b")) == f"envelope.{path}"


@pytest.mark.parametrize("value", [" a", "a ", "\u00a0a", "a\u2003"])
@pytest.mark.parametrize("path", [*REQUIRED, *OPTIONAL])
def test_identifiers_have_no_white_space_around_them(path: str, value: str) -> None:
    """Two spellings that look alike would be two names."""
    assert field(changed(path, value)) == f"envelope.{path}"


@pytest.mark.parametrize(
    "value", ["0", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 63 + "\n", " " + "0" * 64, "٠" * 64]
)
@pytest.mark.parametrize("path", DIGESTS)
def test_digests_are_64_lowercase_hexadecimal_digits(path: str, value: str) -> None:
    assert field(changed(path, value)) == f"envelope.{path}"


@pytest.mark.parametrize("key", ["", " ", "   ", "\t", "\n", "\u00a0", "\u2003"])
def test_idm_19_a_blank_key_never_falls_back_to_the_unprotected_path(key: str) -> None:
    """It is refused as a key, not taken as none."""
    assert field(keyed(key)) == "envelope.caller_key"
    assert "blank" in refusal(keyed(key)).message


@pytest.mark.parametrize("control", CONTROLS)
def test_idm_19_a_key_holds_no_control_character(control: str) -> None:
    """NUL above all: a store or an upstream may end the key there."""
    assert field(keyed(f"a{control}b")) == "envelope.caller_key"


def test_idm_19_a_key_has_at_most_255_bytes() -> None:
    check_shape(keyed("a" * MAX_CALLER_KEY))
    for key in ("a" * (MAX_CALLER_KEY + 1), "é" * 128, "a" * 10_240):
        assert field(keyed(key)) == "envelope.caller_key"
        assert "a" * 20 not in refusal(keyed(key)).message


def test_a_key_is_opaque_otherwise() -> None:
    """White space inside and around is the client's own matter: it is never trimmed, so never merged."""
    for key in (" k", "k ", "a b", "ключ", "🎁", '"}', "../../x"):
        check_shape(keyed(key))


def test_no_key_is_no_key() -> None:
    check_shape(dataclasses.replace(GOOD, caller_key="", has_caller_key=False))


@pytest.mark.parametrize(
    "seconds", [0, 0.0, -0.0, -1, -0.001, 86_400.001, 10**9, float("inf"), float("nan"), -float("inf")]
)
def test_a_request_timeout_is_more_than_nothing_and_at_most_a_day(seconds: float) -> None:
    assert field(changed("request_timeout", seconds)) == "envelope.request_timeout"


@pytest.mark.parametrize("seconds", [0.001, 1, 86_400, None])
def test_a_request_timeout_within_its_bounds(seconds: float | None) -> None:
    check_shape(changed("request_timeout", seconds))


@pytest.mark.parametrize(
    "name", ["", "record", "record_", "Record_x", "record_X", "record_1", "record_x\n", "x", "record_" + "a" * 65]
)
def test_evidence_names_a_key_of_the_contract(name: str) -> None:
    assert field(changed("evidence", ("record_good", name))) == "envelope.evidence[1]"


def test_evidence_is_bounded() -> None:
    check_shape(changed("evidence", ("record_a",) * 32))
    assert field(changed("evidence", ("record_a",) * 33)) == "envelope.evidence"


@pytest.mark.parametrize("budget", [BudgetBound(), BudgetBound(count=1), BudgetBound(amount="1", unit="EUR")])
def test_a_budget_is_not_ignored_in_silence(budget: BudgetBound) -> None:
    """A bound that nobody enforces would be a lie."""
    assert field(changed("budget", budget)) == "envelope.budget"


def test_a_run_is_not_ignored_in_silence() -> None:
    assert field(changed("run_id", "run-1")) == "envelope.run_id"


def test_every_field_is_looked_at_or_free_on_purpose() -> None:
    """A new field is a decision. The times and maps are checked against the contract, not alone."""
    later = {"approval_expires_at", "deadline", "preconditions", "postconditions", "maximum_attempts", "cancellation"}
    looked_at = {path.partition(".")[0] for path in (*REQUIRED, *OPTIONAL, *DIGESTS)}
    looked_at |= {"schema_version", "arguments_json", "caller_key", "has_caller_key", "request_timeout"}
    looked_at |= {"evidence", "budget", "run_id"}
    later.add("arguments")  # arguments_json once more, as it was parsed
    assert {f.name for f in dataclasses.fields(Envelope)} == looked_at | later
    inner = {f"binding.{f.name}" for f in dataclasses.fields(BindingPin)}
    inner |= {f"target.{f.name}" for f in dataclasses.fields(TargetPin)}
    assert inner <= {*REQUIRED, *OPTIONAL, *DIGESTS}


TEXT = st.text(max_size=300)


@given(st.sampled_from([*REQUIRED, *OPTIONAL, *DIGESTS]), TEXT)
def test_any_text_is_taken_or_refused_by_its_name(path: str, value: str) -> None:
    """Whatever comes, lone surrogates too: a refusal that names the field, or an identifier as it should be."""
    envelope = changed(path, value)
    try:
        check_shape(envelope)
    except InvalidArgument:
        assert field(envelope) == f"envelope.{path}"
        return
    assert value == value.strip()
    assert len(value.encode("utf-8", "surrogatepass")) <= MAX_IDENTIFIER
    assert not any(control in value for control in CONTROLS)
    assert value or path not in REQUIRED


@given(TEXT)
def test_any_key_is_taken_or_refused_by_its_name(key: str) -> None:
    try:
        check_shape(keyed(key))
    except InvalidArgument:
        assert field(keyed(key)) == "envelope.caller_key"
        return
    assert key.strip()
    assert len(key.encode("utf-8", "surrogatepass")) <= MAX_CALLER_KEY
    assert not any(control in key for control in CONTROLS)


@given(st.floats())
def test_any_timeout_is_taken_or_refused_by_its_name(seconds: float) -> None:
    envelope = changed("request_timeout", seconds)
    if 0 < seconds <= 86_400:
        check_shape(envelope)
    else:
        assert field(envelope) == "envelope.request_timeout"
