"""Checked results become typed answers; what is not checked does not."""

from __future__ import annotations

from typing import Any

import pytest

from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure, entrypoints
from kblockd.policy.deciding.entrypoints import AUTHZ, DECISION, PRECONDITIONS, RECOVERY, VERIFICATION, PolicyReason

REASONS = [{"code": "A", "message": "b"}]
GOOD: dict[str, dict[str, Any]] = {
    AUTHZ: {"allow": True, "tenants": ["t"], "agents": ["*"], "reasons": REASONS},
    DECISION: {
        "effect": "require_approval",
        "approvals": {"count": 2, "roles": ["r"]},
        "observe_until": "",
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


NOBODY: dict[str, Any] = {"count": 0, "roles": []}
CONTRADICTIONS = [
    ({"effect": "allow", "approvals": {"count": 0, "roles": ["lead"]}}, "result.approvals.roles must be empty"),
    ({"effect": "allow", "observe_until": "2027-01-01T00:00:00Z"}, "result.observe_until must be empty"),
    ({"effect": "require_approval", "observe_until": "2027-01-01T00:00:00Z"}, "result.observe_until must be empty"),
    (
        {"effect": "observe", "observe_until": "2999-01-01T00:00:00Z", "approvals": {"count": 0, "roles": ["lead"]}},
        "result.approvals.roles must be empty",
    ),
    ({"effect": "observe", "observe_until": "2999-01-01T00:00:00"}, "result.observe_until has no offset from UTC"),
    ({"effect": "observe", "observe_until": "2999-01-01"}, "result.observe_until is not a time in RFC 3339"),
    ({"effect": "observe", "observe_until": ""}, "result.observe_until is not a time in RFC 3339"),
    ({"effect": "observe", "observe_until": "2999-13-01T00:00:00Z"}, "result.observe_until is not a time that exists"),
]


@pytest.mark.parametrize(("changed", "said"), CONTRADICTIONS)
def test_apv_07_a_bound_that_the_effect_would_ignore_is_refused(changed: dict[str, Any], said: str) -> None:
    """APV-07: an author who sets it believes in it. A time without an offset is refused as that."""
    result = {"effect": "allow", "approvals": NOBODY, "observe_until": "", "reasons": [], **changed}
    with pytest.raises(PolicyFailure) as raised:
        entrypoints.check(DECISION, result)
    assert raised.value.reason is Reason.POLICY_TYPE
    assert said in raised.value.message


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"effect": "observe", "observe_until": "2999-01-01T00:00:00Z"},
        {"effect": "observe", "observe_until": "2027-01-01T01:00:00.5+01:00"},
        {"effect": "require_approval", "approvals": {"count": 1, "roles": ["lead"]}},
        {"effect": "deny", "approvals": {"count": 1, "roles": ["lead"]}, "observe_until": "whenever"},
        {"approvals": {"count": 1, "roles": []}},  # the stricter half holds: ``bounded`` makes an approval of it
    ],
)
def test_apv_07_what_has_no_contradiction_passes(changed: dict[str, Any]) -> None:
    """A denial stays one, whatever stands beside it."""
    result = {"effect": "allow", "approvals": NOBODY, "observe_until": "", "reasons": [], **changed}
    assert entrypoints.check(DECISION, result) is result
