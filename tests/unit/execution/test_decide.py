"""What code makes of a policy's answer: past a point of no return it never runs without a person."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.contract import parse
from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.execution.decide import KEPT_CONDITIONS, _needed, check_observed
from kblockd.policy.deciding.entrypoints import Effect, PolicyReason
from kblockd.policy.deciding.floor import ruled
from tests.harness import refund_contract

WHY = (PolicyReason("LOW_RISK", "low risk"),)
ENDS = "2030-01-01T00:00:00.000000Z"
FINAL: dict[str, dict[str, Any]] = {
    "point-of-no-return": {"point_of_no_return": True},
    "irreversible-step": {"recovery": {"irreversible_step": True}},
    "both": {"point_of_no_return": True, "recovery": {"irreversible_step": True}},
}


def settled(change: dict[str, Any], effect: Effect) -> Effect:
    """The effect that is followed under a contract with this change."""
    contract = parse(refund_contract(change))
    return ruled(effect, "high", {}, past_return=contract.requires_approval).stands


@pytest.mark.parametrize("change", FINAL.values(), ids=FINAL)
@pytest.mark.parametrize(("word", "until"), [("allow", ""), ("observe", ENDS)])
def test_r003_policy_alone_is_not_enough_past_a_point_of_no_return(
    change: dict[str, Any], word: str, until: str
) -> None:
    """R003, R307, R736, R762: one approver at least, whatever policy says; its reasons stay, its window does not."""
    assert settled(change, Effect(word, 0, (), until, WHY)) == Effect("require_approval", 1, (), "", WHY)
    assert settled({}, Effect(word, 0, (), until, WHY)) == Effect(word, 0, (), until, WHY)


@pytest.mark.parametrize("change", FINAL.values(), ids=FINAL)
def test_r307_what_policy_demands_more_is_kept(change: dict[str, Any]) -> None:
    """R307, R762: more approvers and their roles stand; a denial stays one."""
    two = Effect("require_approval", 2, ("finance",), "", WHY)
    assert settled(change, two) == two
    denied = Effect("deny", 0, (), "", WHY)
    assert settled(change, denied) == denied


@pytest.mark.parametrize("word", ["allow", "observe"])
def test_an_allowance_that_counts_approvals_asks_for_them(word: str) -> None:
    """A policy that contradicts itself: the stricter half holds."""
    assert settled({}, Effect(word, 2, ("finance",), ENDS, WHY)) == Effect("require_approval", 2, ("finance",), "", WHY)


def test_an_approval_by_nobody_is_an_approval_by_one() -> None:
    """require_approval with a count of zero would be an allowance by another name."""
    assert settled({}, Effect("require_approval", 0, (), "", WHY)).count == 1


def test_agt_06_large_conditions_of_a_denied_call_are_not_kept() -> None:
    """Small ones are, so that its decision can be replayed."""
    small = {"operation": "o", "preconditions": {"a": 1}, "postconditions": {}}
    assert _needed(small) == small
    for name in ("preconditions", "postconditions"):
        large = {**small, name: {"k": "x" * KEPT_CONDITIONS}}
        assert _needed(large) == {"operation": "o", "preconditions": {}, "postconditions": {}}


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        ("2029-12-31T23:59:59Z", Reason.OBSERVE_ENDED),
        ("2030-01-01T00:30:00+01:00", Reason.OBSERVE_ENDED),
        ("2031-01-01T00:00:00", Reason.POLICY_TYPE),
        ("", Reason.POLICY_TYPE),
        ("2031-01-01T00:00:00Z", None),
    ],
)
def test_apv_07_a_stored_window_without_an_offset_is_refused_as_that(until: str, reason: Reason | None) -> None:
    """APV-07: an action that was recorded before such an answer was refused. "Has ended" is said only of what has."""
    parts: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: dt.datetime(2030, 1, 1, tzinfo=dt.UTC)))
    check_observed(parts, "allow", until)
    if reason is None:
        check_observed(parts, "observe", until)
        return
    with pytest.raises(FailedPrecondition) as refused:
        check_observed(parts, "observe", until)
    assert refused.value.reason is reason
    assert ("ended" in refused.value.message) is (reason is Reason.OBSERVE_ENDED)
