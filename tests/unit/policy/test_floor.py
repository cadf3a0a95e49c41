"""The approval floor: no policy takes less than it, and what was raised is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kblockd.policy.entrypoints import Effect, PolicyReason
from kblockd.policy.floor import Floor, covered, met, of_input, of_record, raised, ruled
from kblockd.policy.verdicts import on_record
from tests.records import RecordType, document, typed

WHY = (PolicyReason("LOW_RISK", "low risk"),)
ENDS = "2030-01-01T00:00:00.000000Z"
TWO = Floor(2, ("legal", "security"))
ANYBODY = Floor(2, ())


def asks(count: int, *roles: str, floor: tuple[str, ...] = ()) -> Effect:
    """A decision that asks for an approval."""
    return Effect("require_approval", count, roles, "", WHY, floor)


@pytest.mark.parametrize(
    ("said", "floor", "stands"),
    [
        pytest.param(Effect("allow", 0, (), "", WHY), TWO, asks(2, floor=TWO.roles), id="allow"),
        pytest.param(Effect("observe", 0, (), ENDS, WHY), TWO, asks(2, floor=TWO.roles), id="observe"),
        pytest.param(asks(1, "finance"), TWO, asks(2, "finance", floor=TWO.roles), id="fewer-owners-and-other-roles"),
        pytest.param(asks(3, "finance"), TWO, asks(3, "finance", floor=TWO.roles), id="without-the-role"),
        pytest.param(asks(1, "legal"), TWO, asks(2, "legal"), id="its-roles-are-among-the-floors"),
        pytest.param(asks(2, "legal"), TWO, asks(2, "legal"), id="enough"),
        pytest.param(asks(2), TWO, asks(2, floor=TWO.roles), id="anybody"),
        pytest.param(asks(1, "finance"), ANYBODY, asks(2, "finance"), id="a-floor-without-roles"),
        pytest.param(Effect("deny", 0, (), "", WHY), TWO, Effect("deny", 0, (), "", WHY), id="a-denial"),
        pytest.param(Effect("allow", 0, (), "", WHY), Floor(0, ()), Effect("allow", 0, (), "", WHY), id="no-floor"),
        pytest.param(Effect("allow", 0, (), "", WHY), None, Effect("allow", 0, (), "", WHY), id="no-tier"),
    ],
)
def test_a_decision_below_the_floor_is_raised_to_it(said: Effect, floor: Floor | None, stands: Effect) -> None:
    assert raised(said, floor) == stands


def test_what_was_raised_is_said_with_both_demands() -> None:
    ruling = ruled(Effect("allow", 0, (), "", WHY), "critical", {"critical": TWO}, past_return=False)
    assert ruling.words() == (
        "policy said allow; approval_floor.critical raised it to 2 owners, each with one of the roles legal, security"
    )
    ruling = ruled(asks(1, "fin\u202eance"), "high", {"high": ANYBODY}, past_return=False)
    assert ruling.words().startswith("policy said 1 owner with one of the roles sha256:")
    assert ruling.words().endswith("; approval_floor.high raised it to 2 owners")


@pytest.mark.parametrize("said", [asks(2, "legal"), asks(5, "security"), Effect("deny", 0, (), "", WHY)])
def test_what_was_not_raised_says_nothing(said: Effect) -> None:
    ruling = ruled(said, "critical", {"critical": TWO}, past_return=False)
    assert (ruling.is_raised, ruling.words()) == (False, "")


def test_the_record_says_what_policy_said_and_what_floor_stood_under_it() -> None:
    ruling = ruled(asks(1, "finance"), "critical", {"critical": TWO}, past_return=False)
    kept = ruling.on_record()
    assert document(kept) == {
        "count": 2,
        "roles": ["legal", "security"],
        "raised": True,
        "policy_effect": "require_approval",
        "policy_count": 1,
    }
    assert of_record(kept) == TWO
    assert ruled(asks(1), "low", {"critical": TWO}, past_return=False).on_record() is None
    assert ruled(asks(1), "low", {"low": Floor(0, ())}, past_return=False).on_record() is None
    assert of_record(None) is None


@pytest.mark.parametrize(
    ("demand", "approvers", "enough"),
    [
        (asks(2, "legal"), [("person:a", ["legal"]), ("person:b", ["legal", "x"])], True),
        (asks(2, "legal"), [("person:a", ["legal"]), ("person:a", ["legal"])], False),
        (asks(2, "legal"), [("person:a", ["legal"]), ("person:b", ["finance"])], False),
        (asks(1, "finance", floor=("legal",)), [("person:a", ["finance"])], False),
        (asks(1, "finance", floor=("legal",)), [("person:a", ["legal"])], False),
        (asks(1, "finance", floor=("legal",)), [("person:a", ["finance", "legal"])], True),
        (asks(1), [], False),
        (Effect("allow", 0, (), "", WHY), [], True),
        (Effect("deny", 0, (), "", WHY), [("person:a", ["legal"])], False),
    ],
)
def test_who_approved_counts_by_owner_and_by_each_set_of_roles(demand: Effect, approvers: Any, enough: bool) -> None:
    """A person who has one of policy's roles and one of the floor's satisfies both; two accounts of one owner count
    once."""
    assert met(demand, approvers) is enough


@pytest.mark.parametrize(
    ("demand", "count", "sets", "enough"),
    [
        (asks(1, "finance"), 1, [["finance"], []], True),
        (asks(2, "finance"), 1, [["finance"], []], False),
        (asks(1), 3, [["finance"], []], True),
        (asks(1, "finance", "legal"), 1, [["finance"], []], True),
        (asks(1, "legal"), 1, [["finance", "legal"], []], False),
        (asks(1, "legal"), 1, [[], []], False),
        (asks(1, "finance", floor=("legal",)), 1, [["finance"], ["legal"]], True),
        (asks(1, "finance", floor=("legal",)), 1, [["finance"], []], False),
        (asks(1, floor=("legal", "finance")), 1, [["finance"], []], True),
    ],
)
def test_an_approval_covers_a_demand_that_is_no_stricter(demand: Effect, count: int, sets: Any, enough: bool) -> None:
    """By what was asked for alone: that an approver has lost a role since is no growth of the demand."""
    assert covered(demand, count, sets) is enough


def answer(effect: str, count: int = 0) -> dict[str, Any]:
    """A checked result of kblock.decision."""
    return {"effect": effect, "approvals": {"count": count, "roles": []}, "observe_until": "", "reasons": []}


@pytest.mark.parametrize(
    ("document", "stands"),
    [
        ({"action": {"risk_tier": "critical"}, "contract": None}, ("require_approval", 2)),
        ({"action": {"risk_tier": "low"}, "contract": {"point_of_no_return": True}}, ("require_approval", 1)),
        (
            {"action": {"risk_tier": "low"}, "contract": {"recovery": {"irreversible_step": True}}},
            ("require_approval", 1),
        ),
        ({"action": {"risk_tier": "low"}}, ("allow", 0)),
        ({"action": "nonsense", "contract": []}, ("allow", 0)),
        ({}, ("allow", 0)),
    ],
)
def test_an_explanation_says_what_code_makes_of_the_answer(document: dict[str, Any], stands: tuple[str, int]) -> None:
    found = of_input(answer("allow"), document, {"critical": TWO}).stands
    assert (found.effect, found.count) == stands


def test_policy_diff_reads_the_floors_roles_from_the_request() -> None:
    """A replay raises the answer to the floor of the record, so the floor's roles are part of what is compared."""
    body = typed(RecordType.PROPOSED, effect="require_approval", observe_until="")
    request = typed(RecordType.APPROVAL_REQUESTED, count=2, roles=["a"], floor_roles=["c", "b"])
    verdict = on_record("kblock/decision/result", body, request)
    assert verdict.said == {"effect": "require_approval", "count": 2, "roles": ["a"], "floor_roles": ["b", "c"]}
    assert dataclasses.is_dataclass(verdict)
