"""What an envelope may bring along (AGT-03)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.contract import parse
from kblockd.domain.errors import InvalidArgument
from kblockd.execution import admit
from tests.harness import refund_contract
from tests.unit.domain.test_envelope import FULL

UNREAD = {"reads": {"snapshot": None}, "preflight": {"require_current_resource_version": False}}
DECLARED = {"status": "paid"}


def contract(**declared: Any) -> Any:
    """As far as it is looked at."""
    expected = SimpleNamespace(expected=declared.get("expected", {}))
    return SimpleNamespace(operation="refund", preconditions=declared.get("preconditions", {}), verification=expected)


@pytest.mark.parametrize(
    ("name", "declares", "word"),
    [("preconditions", "preconditions", "preconditions"), ("postconditions", "expected", "verification.expected")],
)
def test_agt_03_conditions_that_the_contract_does_not_declare_are_refused(name: str, declares: str, word: str) -> None:
    """No policy is told to look at them, and they would be kept."""
    bare = replace(FULL, preconditions=None, postconditions=None)
    given = replace(bare, **{name: {"a": 1}})
    with pytest.raises(InvalidArgument, match=f"declares no {word}; leave it out") as caught:
        admit._check_conditions(contract(), given)
    assert caught.value.violations[0].field == f"envelope.{name}_json"
    assert (caught.value.executed, caught.value.consumed) == (False, False)
    admit._check_conditions(contract(**{declares: DECLARED}), given)
    admit._check_conditions(contract(), replace(bare, **{name: {}}))


def test_agt_03_conditions_share_the_bound_in_canonical_form() -> None:
    """1e20 is four bytes as it comes and 21 as it is kept."""
    parts: Any = SimpleNamespace(limits=SimpleNamespace(arguments_bytes=100))
    bare = replace(FULL, arguments_json=b'{"a":1}', arguments_sha256="", preconditions={"b": [1e20] * 3})
    assert admit._arguments(parts, replace(bare, postconditions=None)).value == {"a": 1}
    with pytest.raises(InvalidArgument, match="at most 100 are taken"):
        admit._arguments(parts, replace(bare, postconditions={"c": "x" * 40}))


def test_apv_04_an_argument_that_the_read_of_the_target_needs_is_asked_for_at_once() -> None:
    """APV-04: the schema leaves it out, the contract reads the target by it; nobody can approve or run such a call."""
    reads = {"snapshot": {"arguments": {"order_id": "/args/order_id", "currency": "/args/currency"}}}
    made = parse(refund_contract({"reads": reads}))
    admit._check_read(made, {"order_id": "o-1", "amount": "1.00", "currency": "EUR"})
    with pytest.raises(InvalidArgument, match="is needed to read the target") as caught:
        admit._check_read(made, {"order_id": "o-1", "amount": "1.00"})
    assert caught.value.violations[0].field == "envelope.arguments_json/currency"
    admit._check_read(parse(refund_contract(UNREAD)), {})
