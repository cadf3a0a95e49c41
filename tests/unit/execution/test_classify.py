"""Every adapter outcome under every contract: one table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kblockd.domain.contract import ActionContract, parse
from kblockd.domain.states import ResultClass
from kblockd.execution.classify import classify_outcome
from kblockd.upstream.adapter import Facts, Outcome, Sent
from tests.harness import refund_contract

BEFORE, UNKNOWN = ResultClass.FAILED_BEFORE_SIDE_EFFECT, ResultClass.UNKNOWN_OUTCOME
ANSWERED, ACCEPTED = ResultClass.COMPLETED_UNVERIFIED, ResultClass.ACCEPTED
ERRORS = {"in": "body", "media_type": "application/json", "has": "/error"}

# (what is known, is it an error) to the class where errors prove nothing, and where the tool's own are effect-free.
TABLE: dict[tuple[Sent, bool], tuple[ResultClass, ResultClass]] = {
    (Sent.NOT_SENT, False): (BEFORE, BEFORE),
    (Sent.NOT_SENT, True): (BEFORE, BEFORE),
    (Sent.ANSWERED, False): (ANSWERED, ANSWERED),
    (Sent.ANSWERED, True): (UNKNOWN, BEFORE),
    (Sent.ACCEPTED, False): (ACCEPTED, ACCEPTED),
    (Sent.ACCEPTED, True): (ACCEPTED, ACCEPTED),
    (Sent.LOST, False): (UNKNOWN, UNKNOWN),
    (Sent.LOST, True): (UNKNOWN, UNKNOWN),
}


def contract(effect_free: bool) -> ActionContract:
    """The refund, with errors that prove something or not."""
    return parse(refund_contract({"tool": {"errors_are_effect_free": effect_free, "errors": ERRORS}}))


def test_the_table_is_whole() -> None:
    """OUT-05, R210: a new word of the plugin API needs a row here."""
    assert set(TABLE) == set(itertools.product(Sent, (False, True)))


@pytest.mark.parametrize(("sent", "is_error"), list(TABLE))
@pytest.mark.parametrize("effect_free", [False, True])
@pytest.mark.parametrize("output", [{"error": "", "ok": True}, {"ok": False, "error": "no"}])
def test_r210_a_class_follows_from_what_is_proved(sent: Sent, is_error: bool, effect_free: bool, output: Any) -> None:
    """R210 to R226, MCP-06, OUT-05, kblockd/execution/README.md#from-outcome-to-class: never from what the answer says
    of itself."""
    facts = Facts(True, "body", 422, "application/json")
    outcome = Outcome(sent, output, is_error, operation="op-1", code="HTTP_422", detail="success!", facts=facts)
    assert classify_outcome(outcome, contract(effect_free)) is TABLE[sent, is_error][effect_free]


def test_no_attempt_is_verified_by_its_own_answer() -> None:
    """R226, R239: completed_verified never comes from stage 12."""
    assert ResultClass.COMPLETED_VERIFIED not in {found for pair in TABLE.values() for found in pair}
