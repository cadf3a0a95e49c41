"""Checked results become typed answers; what is not checked does not."""

from __future__ import annotations

from typing import Any

import pytest

from kblockd.domain.errors import Reason
from kblockd.policy import entrypoints
from kblockd.policy.engine import PolicyFailure
from kblockd.policy.entrypoints import AUTHZ, DECISION, PRECONDITIONS, RECOVERY, VERIFICATION, PolicyReason

REASONS = [{"code": "A", "message": "b"}]
GOOD: dict[str, dict[str, Any]] = {
    AUTHZ: {"allow": True, "tenants": ["t"], "agents": ["*"], "reasons": REASONS},
    DECISION: {
        "effect": "observe",
        "approvals": {"count": 2, "roles": ["r"]},
        "observe_until": "2027-01-01T00:00:00.000000Z",
        "reasons": REASONS,
    },
    PRECONDITIONS: {"ok": True, "stands": False, "reasons": REASONS},
    VERIFICATION: {"verdict": "tolerated", "reasons": REASONS},
    RECOVERY: {"recovery": "containment", "reasons": REASONS},
}
TYPED = {
    AUTHZ: entrypoints.authz,
    DECISION: entrypoints.decision,
    PRECONDITIONS: entrypoints.preconditions,
    VERIFICATION: entrypoints.verification,
    RECOVERY: entrypoints.recovery,
}


def test_every_entry_point_becomes_its_type() -> None:
    answers = {name: TYPED[name](entrypoints.check(name, result)) for name, result in GOOD.items()}
    assert all(answer.reasons == (PolicyReason("A", "b"),) for answer in answers.values())
    assert answers[AUTHZ] == entrypoints.Authz(True, ("t",), ("*",), (PolicyReason("A", "b"),))
    assert (answers[DECISION].count, answers[DECISION].roles) == (2, ("r",))
    assert answers[PRECONDITIONS].ok
    assert not answers[PRECONDITIONS].stands
    assert answers[VERIFICATION].verdict == "tolerated"
    assert answers[RECOVERY].recovery == "containment"


@pytest.mark.parametrize("name", GOOD)
def test_every_key_is_needed_and_no_other_is_taken(name: str) -> None:
    for key in GOOD[name]:
        rest = {other: value for other, value in GOOD[name].items() if other != key}
        for wrong in (rest, {**rest, key: None}, {**rest, key: {}}, {**GOOD[name], "more": 1}):
            with pytest.raises(PolicyFailure) as raised:
                entrypoints.check(name, wrong)
            assert raised.value.reason is Reason.POLICY_TYPE


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("wrong", [None, True, 1, "allow", [], [GOOD[AUTHZ]]])
def test_result_is_an_object(name: str, wrong: Any) -> None:
    with pytest.raises(PolicyFailure):
        entrypoints.check(name, wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"approvals": {"count": 65, "roles": ["r"]}},
        {"approvals": {"count": 5_000_000_000, "roles": ["r"]}},
        {"approvals": {"count": 1, "roles": ["r"] * 65}},
        {"approvals": {"count": 1, "roles": ["r" * 257]}},
        {"observe_until": "2" * 257},
    ],
    ids=["count", "count-beyond-32-bits", "roles", "role", "observe-until"],
)
def test_r673_a_decision_beyond_what_can_be_recorded_and_shown_is_none(wrong: dict[str, Any]) -> None:
    """R673: a count that no answer can carry would break every list of approvals that holds it, and roles that no
    record can hold would end the call as a defect."""
    with pytest.raises(PolicyFailure, match="at most") as raised:
        entrypoints.check(DECISION, {**GOOD[DECISION], **wrong})
    assert raised.value.reason is Reason.POLICY_TYPE


def test_as_many_approvals_as_a_receipt_can_name_are_taken() -> None:
    most = {"approvals": {"count": 64, "roles": ["r" * 256] * 64}, "observe_until": ""}
    assert entrypoints.decision(entrypoints.check(DECISION, {**GOOD[DECISION], **most})).count == 64
