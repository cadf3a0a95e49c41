"""What an approver reads, and the digest that a decision must carry."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from kblockd.approvals.presentation import Demand, Subject, Version, present, presented_sha256, summary
from kblockd.domain.canonical import canonical
from kblockd.domain.contract import parse
from tests.harness import refund_contract

AFTER, UNTIL = "2030-01-01T00:00:00.000000Z", "2030-01-01T00:10:00.000000Z"


def subject(args: dict[str, Any] | None = None, contract: dict[str, Any] | None = None) -> Subject:
    """A refund that somebody is asked about."""
    given = args or {"order_id": "A-1", "amount": "100.00", "currency": "EUR"}
    return Subject(
        execution_id="exe_1",
        action_sha256="a" * 64,
        tenant="acme",
        requester="local:agent",
        agent="local:agent",
        operation="payment.refund.create",
        environment="production",
        contract=parse(contract or refund_contract()),
        args=given,
        intent={"order": given["order_id"], "amount": given["amount"], "currency": given["currency"]},
        target={"type": "order", "id": given["order_id"]},
        version=Version("1"),
        demand=Demand(1, ("finance",)),
    )


def shown(one: Subject) -> dict[str, Any]:
    """Its presentation."""
    return present(one, "apr_1", AFTER, UNTIL)


def test_everything_that_is_agreed_is_shown() -> None:
    """R040, R306: action digest, arguments whole, intent, target, side effects, risk and time."""
    document = shown(subject())
    assert document["summary"] == 'Refund "100.00" "EUR" for order "A-1"'
    assert document["arguments"] == subject().args
    assert (document["risk_tier"], document["upstream"], document["tool"]) == ("high", "payments", "refund")
    assert document["side_effects"] == ["money moved to the customer"]
    assert (document["not_before"], document["not_after"]) == (AFTER, UNTIL)
    assert document["warnings"] == []


def test_the_digest_covers_every_field() -> None:
    """R040: whoever decides on another text decides on something else."""
    document = shown(subject())
    digest = presented_sha256(document)
    for name in document:
        changed = copy.deepcopy(document)
        changed[name] = "something else"
        assert presented_sha256(changed) != digest, name
    assert presented_sha256(dict(reversed(document.items()))) == digest
    assert presented_sha256(shown(replace(subject(), execution_id="exe_2"))) != digest


def test_a_value_cannot_write_the_sentence() -> None:
    """R306: quotes, placeholders, terminal escapes and direction changes in a value stay a value."""
    order = '1" approved by the bank {intent.amount} \x1b[8m \u202e'
    text = shown(subject({"order_id": order, "amount": "1.00", "currency": "EUR"}))["summary"]
    assert text == ('Refund "1.00" "EUR" for order "1\\" approved by the bank {intent.amount} \\u001b[8m \\u202e"')


def test_a_placeholder_without_a_value_shows_nothing() -> None:
    """It is neither an error nor a template that leaks."""
    assert summary("a {intent.none} b {target.id} {other.x}", {}, {"id": "A"}) == 'a  b "A" '


@pytest.mark.parametrize("change", [{"point_of_no_return": True}, {"recovery": {"irreversible_step": True}}])
def test_r306_what_cannot_be_undone_is_said(change: dict[str, Any]) -> None:
    """R292, R306: the limits of compensation are visible to the approver."""
    assert shown(subject(contract=refund_contract(change)))["warnings"] == [
        "this action cannot be undone once it is done"
    ]


def test_long_arguments_are_flagged() -> None:
    """Somebody could hide what matters behind ten screens."""
    found = shown(subject({"order_id": "A-1", "amount": "1.00", "currency": "EUR", "memo": "x" * 5000}))["warnings"]
    assert found == ["the arguments are long; read them whole before you decide"]


def test_the_presentation_has_a_canonical_form() -> None:
    """It is stored as a payload and hashed."""
    assert canonical(shown(subject()))
