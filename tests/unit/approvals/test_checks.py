"""Who may revoke, in which capacity, and in which state."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.approvals.asked import Asked
from kblockd.approvals.checks import Capacity, check_approver, check_revoker, check_state
from kblockd.domain.clock import rfc3339
from kblockd.domain.errors import FailedPrecondition, PermissionDenied
from kblockd.domain.principal import Principal

UNTIL = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
JUST = dt.timedelta(microseconds=1)


def person(name: str, owner: str, *roles: str, kind: str = "person") -> Principal:
    """One who is configured."""
    return Principal(f"local:{name}", kind, "acme", owner, roles)


AGENT = person("agent", "team:bot", kind="agent")
TEAM = person("team", "team:bot", "finance")
LEAD = person("lead", "person:lead", "finance")
MOVED_ON = person("moved-on", "person:lead", "legal")
OPERATOR = person("operator", "person:op", "operator")
COUNSEL = person("counsel", "person:counsel", "legal")
PEOPLE = {one.id: one for one in (AGENT, TEAM, LEAD, MOVED_ON, OPERATOR, COUNSEL)}


def row(*owners: str, **changes: Any) -> Any:
    """An approval that ``owners`` have decided."""
    decisions = [SimpleNamespace(owner=owner, verdict="approve") for owner in owners]
    asked = {"requester": "local:agent", "owner": "team:bot", "roles": ["finance"], "execution": "exe_1"}
    return SimpleNamespace(**{**asked, "floor_roles": (), "decisions": decisions, **changes})


@pytest.mark.parametrize(
    ("who", "approval", "capacity"),
    [
        pytest.param(AGENT, row(), Capacity.REQUESTER, id="the-requester"),
        pytest.param(TEAM, row(), Capacity.REQUESTER, id="its-owner"),
        pytest.param(TEAM, row(owner="team:before"), Capacity.REQUESTER, id="its-owner-now"),
        pytest.param(TEAM, row(requester="local:gone"), Capacity.REQUESTER, id="its-owner-then"),
        pytest.param(LEAD, row(), Capacity.APPROVER, id="who-could-decide"),
        pytest.param(LEAD, row("person:chief"), Capacity.APPROVER, id="who-could-decide-still"),
        pytest.param(LEAD, row("person:lead"), Capacity.APPROVER, id="who-approved"),
        pytest.param(MOVED_ON, row("person:lead"), Capacity.APPROVER, id="who-approved-and-lost-the-role"),
        pytest.param(COUNSEL, row(roles=[]), Capacity.APPROVER, id="anybody-where-no-role-is-asked-for"),
        pytest.param(OPERATOR, row("person:lead"), Capacity.OPERATOR, id="an-operator"),
    ],
)
def test_r108_who_may_revoke(who: Principal, approval: dict[str, Any], capacity: Capacity) -> None:
    assert check_revoker(PEOPLE, who, approval) is capacity


def test_another_role_revokes_nothing() -> None:
    with pytest.raises(PermissionDenied, match="none of the roles that policy asks for: finance"):
        check_revoker(PEOPLE, COUNSEL, row("person:lead"))


@pytest.mark.parametrize(
    ("roles", "refused"),
    [
        (("finance",), "the approval floor asks for: legal"),
        (("legal",), "policy asks for: finance"),
        (("clerk",), "policy asks for: finance"),
        (("finance", "legal"), ""),
    ],
)
def test_an_approver_has_one_of_policys_roles_and_one_of_the_floors(roles: tuple[str, ...], refused: str) -> None:
    """Where both name roles, one of each: the floor is not lowered by what policy names."""
    somebody = person("somebody", "person:somebody", *roles)
    approval = row(floor_roles=["legal"])
    people = {**PEOPLE, somebody.id: somebody}
    if not refused:
        check_approver(people, somebody, approval)
        return
    with pytest.raises(PermissionDenied, match=refused):
        check_approver(people, somebody, approval)


def test_a_role_that_policy_made_up_reaches_nobody_as_text() -> None:
    """A role is a policy's text: a word, or its digest."""
    with pytest.raises(PermissionDenied, match=r"policy asks for: sha256:[0-9a-f]{64}$"):
        check_approver(PEOPLE, COUNSEL, row(roles=["please approve\x1b[2J"]))


@pytest.mark.parametrize("check", [check_approver, check_revoker])
def test_who_is_configured_otherwise_now_changes_nothing(check: Any) -> None:
    """R036: the connection was made by another version of the principal, or by one that is gone."""
    for people in ({}, {**PEOPLE, LEAD.id: person("lead", "person:lead", "finance", "legal")}):
        with pytest.raises(PermissionDenied, match="not configured as it was"):
            check(people, LEAD, row())


def found(state: str, marker: int = 0, result_class: str = "", *, executing: bool = False) -> Asked:
    """An approval in that state, and its execution."""
    execution: Any = SimpleNamespace(
        state="executing" if executing else "failed", marker=marker, result_class=result_class
    )
    return Asked(row(state=state, not_after=rfc3339(UNTIL)), execution, ())


@pytest.mark.parametrize("state", ["pending", "approved"])
def test_revocable_before_its_use_and_in_time(state: str) -> None:
    check_state(found(state), UNTIL - JUST, "revoked", "pending", "approved")
    with pytest.raises(FailedPrecondition, match="is expired, so it can no longer be revoked"):
        check_state(found(state), UNTIL, "revoked", "pending", "approved")


@pytest.mark.parametrize("state", ["denied", "expired", "revoked", "void"])
def test_what_is_over_was_not_consumed(state: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"is {state}, so it can no longer be revoked") as refused:
        check_state(found(state), UNTIL - JUST, "revoked", "pending", "approved")
    assert (refused.value.consumed, refused.value.executed) == (False, False)
    assert (refused.value.execution_id, bool(refused.value.next_step)) == ("exe_1", True)


@pytest.mark.parametrize(
    ("marker", "result_class", "executed"),
    [
        pytest.param(0, "", False, id="claimed"),
        pytest.param(1, "", True, id="sent"),
        pytest.param(1, "failed_before_side_effect", False, id="shown-not-to-have-happened"),
        pytest.param(1, "unknown_outcome", True, id="unknown"),
        pytest.param(1, "completed_verified", True, id="done"),
    ],
)
def test_r363_what_is_used_was_consumed(marker: int, result_class: str, executed: bool) -> None:
    """R363: whoever comes too late learns whether an effect may exist."""
    with pytest.raises(FailedPrecondition, match="is used, so it can no longer be revoked") as refused:
        check_state(found("used", marker, result_class), UNTIL, "revoked", "pending", "approved")
    assert (refused.value.consumed, refused.value.executed) == (True, executed)
    with pytest.raises(FailedPrecondition) as meanwhile:
        check_state(found("used", marker, result_class, executing=True), UNTIL, "revoked", "pending", "approved")
    assert meanwhile.value.executed == bool(marker)  # the class is that of one attempt, and of no end
    assert "look at the execution" in refused.value.next_step


def test_who_can_no_longer_deny_is_told_to_revoke() -> None:
    with pytest.raises(FailedPrecondition) as refused:
        check_state(found("approved"), UNTIL - JUST, "decided", "pending")
    assert "revoke it" in refused.value.next_step
