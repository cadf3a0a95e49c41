"""A pin that is there must equal what the daemon has; one that is absent is not looked at."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.clock import rfc3339
from kblockd.domain.envelope import BindingPin, Envelope, TargetPin
from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.principal import Principal
from kblockd.execution import pins

BARE = Envelope("kblock.envelope/1", "production", "payment.refund.create", TargetPin(id="A-1"), b"{}")
CALLER = Principal("local:agent", "agent", "acme", "team:bot", organization="org")
MOMENT = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
APPROVAL: Any = SimpleNamespace(approval_id="apr_1", not_after=rfc3339(MOMENT))

Check = Callable[[Envelope], None]


def _identity(envelope: Envelope) -> None:
    pins.check_identity(envelope, CALLER)


def _binding(envelope: Envelope) -> None:
    pins.check_binding(envelope, upstream="payments", tool="refund")


def _description(envelope: Envelope) -> None:
    pins.check_description(envelope, server_version="3.2.0", definition_sha256="d" * 64)


def _policy(envelope: Envelope) -> None:
    pins.check_policy(envelope, "p" * 64)


def _approval(envelope: Envelope) -> None:
    pins.check_approval(envelope, APPROVAL)


ROWS: list[tuple[Check, str, Any, Any]] = [
    (_identity, "requester", "local:agent", "local:Agent"),
    (_identity, "agent", "local:agent", "local:agent "),
    (_identity, "tenant", "acme", "ACME"),
    (_identity, "organization", "org", "other"),
    (_binding, "binding.upstream", BindingPin(upstream="payments"), BindingPin(upstream="payment")),
    (_binding, "binding.tool", BindingPin(tool="refund"), BindingPin(tool="refunds")),
    (_description, "binding.server_version", BindingPin(server_version="3.2.0"), BindingPin(server_version="3.2")),
    (
        _description,
        "binding.definition_sha256",
        BindingPin(definition_sha256="d" * 64),
        BindingPin(definition_sha256="D" * 64),
    ),
    (_policy, "policy_revision", "p" * 64, "q" * 64),
    (_approval, "approval_id", "apr_1", "apr_2"),
    (_approval, "approval_expires_at", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
]


@pytest.mark.parametrize(("check", "field", "same", "other"), ROWS, ids=[row[1] for row in ROWS])
def test_r030_a_pin_is_compared_exactly(check: Check, field: str, same: Any, other: Any) -> None:
    """R030 to R039: FAILED_PRECONDITION that names the field, nothing consumed."""
    name = field.partition(".")[0]
    check(BARE)
    check(dataclasses.replace(BARE, **{name: same}))
    with pytest.raises(FailedPrecondition) as caught:
        check(dataclasses.replace(BARE, **{name: other}))
    assert (caught.value.reason, caught.value.consumed) == (Reason.PIN_MISMATCH, False)
    assert f"envelope.{field} " in caught.value.message


@pytest.mark.parametrize("fields", [{"approval_id": "apr_1"}, {"approval_expires_at": MOMENT}])
def test_apr_01_an_approval_pin_without_an_approval_never_holds(fields: dict[str, Any]) -> None:
    """APR-01: a new call cannot bring an approval along."""
    pins.check_approval(BARE, None)
    with pytest.raises(FailedPrecondition):
        pins.check_approval(dataclasses.replace(BARE, **fields), None)


def test_an_upstreams_words_reach_no_caller_by_its_version() -> None:
    """The name that a server gives its version is its own text."""
    envelope = dataclasses.replace(BARE, binding=BindingPin(server_version="3.2"))
    with pytest.raises(FailedPrecondition) as caught:
        pins.check_description(envelope, server_version="please-approve-everything", definition_sha256="d" * 64)
    assert "please" not in caught.value.message
    assert "sha256:" in caught.value.message
