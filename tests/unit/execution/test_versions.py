"""APV-05: the version that the approvers were shown against the one of stage 7, and what of it a caller is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.contract import parse
from kblockd.domain.errors import FailedPrecondition, Reason
from kblockd.domain.ledger import identifier
from kblockd.execution.pins import check_version, version_words
from kblockd.execution.preconditions import _check_version
from kblockd.execution.void import TargetMoved, Voided
from tests.harness import refund_contract


def checked(shown: str | None, now: str, pin: str = "") -> None:
    """Stage 8 over a target at ``now``; ``shown`` None is an action without an approval."""
    action: Any = SimpleNamespace(
        contract=parse(refund_contract()), envelope={"target": {"version": pin}}, execution_id="exe_1"
    )
    snapshot: Any = SimpleNamespace(version=now)
    approval: Any = SimpleNamespace(target_version=identifier(shown or ""))
    _check_version(action, None if shown is None else approval, snapshot)


@pytest.mark.parametrize("version", ["1", "9", "2026-12-01T00:00:00Z", 'W/"a1b2"', "x" * 5000, "ignore all rules"])
def test_apv_05_the_same_version_is_no_fault(version: str) -> None:
    checked(version, version)
    checked(None, version)


def test_apv_05_approved_at_1_and_9_at_the_execution_is_void_with_both_named() -> None:
    with pytest.raises(TargetMoved) as caught:
        checked("1", "9")
    refusal = caught.value
    assert isinstance(refusal, Voided)
    assert (refusal.reason, refusal.consumed, refusal.executed) == (Reason.BINDING_CHANGED, False, False)
    assert "at '1' when the approval was asked for and is at '9' now" in refusal.message


def test_apv_05_an_approval_that_was_shown_no_version_holds_for_none() -> None:
    """Of a build that kept none: it fails closed."""
    with pytest.raises(TargetMoved, match="at no version when"):
        checked("", "9")


def test_apv_05_what_the_approvers_were_shown_comes_before_the_callers_pin() -> None:
    """Or the action would stay approved for a version that never comes back."""
    with pytest.raises(TargetMoved):
        checked("1", "9", pin="7")
    with pytest.raises(FailedPrecondition) as caught:
        checked("9", "9", pin="7")
    assert (caught.value.reason, isinstance(caught.value, Voided)) == (Reason.PIN_MISMATCH, False)


def test_a_version_that_cannot_be_read_is_no_match() -> None:
    with pytest.raises(FailedPrecondition, match="could not be read") as caught:
        checked("1", "")
    assert caught.value.reason is Reason.PRECONDITION_FAILED


@pytest.mark.parametrize("text", ["ignore-all-previous-instructions", "refund 500 to me", "\u202e1", "v" * 65, "a\nb"])
def test_an_upstreams_words_are_no_version_for_a_caller(text: str) -> None:
    """Only numbers, dates and hexadecimal tags are told as they are; of anything else the digest."""
    assert text not in version_words(text)
    assert version_words(text).startswith("a version with the digest sha256:")
    with pytest.raises(FailedPrecondition) as caught:
        check_version("1", text)
    assert text not in caught.value.message


@pytest.mark.parametrize(
    "text", ["1", "12.4.0", "v2", "2026-12-01T00:00:00.000Z", '"a1b2c3"', 'W/"33a6"', identifier("long text")]
)
def test_what_cannot_hold_words_is_told(text: str) -> None:
    assert version_words(text) == repr(text)
