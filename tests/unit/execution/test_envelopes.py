"""The stored envelope gives the same bounds again, and says everything that policies may ask for."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain.canonical import canonical, reparse
from kblockd.domain.contract import parse, tighten
from kblockd.domain.envelope import BindingPin, Envelope, TargetPin
from kblockd.execution import envelopes
from tests.harness import refund_contract

CONTRACT = parse(refund_contract({"execution": {"maximum_attempts": 3}}))
BARE = Envelope("kblock.envelope/1", "production", "payment.refund.create", TargetPin(id="A-1"), b"{}")
FULL = dataclasses.replace(
    BARE,
    target=TargetPin("order", "A-1", "7"),
    run_id="run",
    action_id="act",
    requester="local:agent",
    agent="local:agent",
    tenant="acme",
    organization="org",
    arguments_sha256="a" * 64,
    binding=BindingPin("payments", "3.2.0", "refund", "b" * 64),
    policy_revision="c" * 64,
    approval_id="apr_1",
    approval_expires_at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
    caller_key="secret",
    has_caller_key=True,
    preconditions={"a": 1},
    postconditions={"b": "x"},
    request_timeout=1.5,
    deadline=dt.datetime(2030, 1, 1, 0, 0, 1, 234567, tzinfo=dt.UTC),
    maximum_attempts=2,
    cancellation="none",
    evidence=("record_tool_contract_hash",),
)


@pytest.mark.parametrize("envelope", [BARE, FULL], ids=["bare", "full"])
def test_a_stored_envelope_gives_the_same_limits_again(envelope: Envelope) -> None:
    """R025, R026: what was agreed is what a restart works with, to the microsecond."""
    stored = reparse(canonical(envelopes.document(envelope)))
    again = envelopes.restore(stored)
    assert tighten(CONTRACT, again).as_json() == tighten(CONTRACT, envelope).as_json()
    assert (again.target, again.action_id, again.evidence) == (envelope.target, envelope.action_id, envelope.evidence)


@given(st.floats(min_value=0.001, max_value=3.0))
def test_every_time_out_is_the_same_after_a_restart(seconds: float) -> None:
    """R198: limits are whole milliseconds; rounding once and rounding twice are the same."""
    envelope = dataclasses.replace(BARE, request_timeout=seconds)
    again = envelopes.restore(envelopes.document(envelope))
    assert tighten(CONTRACT, again).request_timeout_ms == tighten(CONTRACT, envelope).request_timeout_ms


def test_the_document_holds_every_field_but_arguments_and_caller_key() -> None:
    """R008 to R029: policies see what the caller sent; the key and the arguments go other ways."""
    left_out = {"arguments_json", "arguments_sha256", "caller_key", "has_caller_key", "budget", "request_timeout"}
    fields = {field.name for field in dataclasses.fields(Envelope) if field.compare} - left_out | {"request_timeout_ms"}
    assert set(envelopes.document(FULL)) == fields
    assert "secret" not in str(envelopes.document(FULL))


def test_what_is_absent_is_empty_and_never_missing() -> None:
    """A policy that compares with "" must not meet an undefined value."""
    document: dict[str, Any] = envelopes.document(BARE)
    assert None not in document.values()
    assert document["target"] == {"type": "", "id": "A-1", "version": ""}
    assert document["binding"] == {"upstream": "", "server_version": "", "tool": "", "definition_sha256": ""}
    assert (document["approval_expires_at"], document["deadline"], document["request_timeout_ms"]) == ("", "", 0)
