"""The approval floor: what an action of a risk tier takes at least, whatever policy answers.

It stands in kblockd.yaml, so that whoever may write the policy folder alone cannot lower it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kblockd.domain.ledger import identifier, values
from kblockd.domain.values import value_type
from kblockd.policy.entrypoints import ALLOWING, Effect, bounded, decision

Approver = tuple[str, Collection[str]]
"""The owner of one who approved, and the roles that this principal has now."""


@value_type(frozen=True, slots=True)
class Floor:
    """So many distinct owners must approve, each with one of ``roles`` (empty: any). A count of 0 is no floor."""

    count: int
    roles: tuple[str, ...]


Floors = Mapping[str, Floor]
"""By risk tier."""


def raised(effect: Effect, floor: Floor | None) -> Effect:
    """The decision with the floor under it: an allowance becomes an approval, and no approval takes less.

    A denial stays one. Where policy names roles too, an approver must have one of its and one of the floor's; policy's
    alone suffice where each of them is among the floor's.
    """
    if floor is None or floor.count == 0 or effect.effect == "deny":
        return effect
    allows = effect.effect in ALLOWING
    roles = () if allows else effect.roles
    covered = bool(roles) and set(roles) <= set(floor.roles)
    return replace(
        effect,
        effect="require_approval",
        count=max(floor.count, 0 if allows else effect.count),
        roles=roles,
        floor_roles=() if covered else floor.roles,
        observe_until="" if allows else effect.observe_until,
    )


@value_type(frozen=True, slots=True)
class Ruling:
    """A decision as code lets it stand: ``said`` is policy's (``entrypoints.bounded``), ``stands`` has the floor under
    it."""

    said: Effect
    stands: Effect
    tier: str
    floor: Floor | None

    @property
    def is_raised(self) -> bool:
        """Whether the floor asks for more than policy did."""
        return self.said != self.stands

    def words(self) -> str:
        """How the floor raised what policy said, for approvers and policy authors; "" where it did not."""
        if not self.is_raised:
            return ""
        said, stands = self.said, self.stands
        asked = _demand(said.count, said.roles) if said.effect == "require_approval" else said.effect
        other = f", each with one of the roles {', '.join(stands.floor_roles)}" if stands.floor_roles else ""
        return f"policy said {asked}; approval_floor.{self.tier} raised it to {_owners(stands.count)}{other}"

    def on_record(self) -> values.Floor | None:
        """What the record of the decision holds of the floor in force, and of what policy said; None without one."""
        if self.floor is None or self.floor.count == 0:
            return None
        return values.Floor(
            count=self.floor.count,
            roles=tuple(self.floor.roles),
            raised=self.is_raised,
            policy_effect=self.said.effect,
            policy_count=self.said.count if self.said.effect == "require_approval" else 0,
        )


def ruled(effect: Effect, tier: str, floors: Floors, *, past_return: bool) -> Ruling:
    """From what policy answered; ``past_return`` as ``entrypoints.bounded``."""
    said, floor = bounded(effect, past_return=past_return), floors.get(tier)
    return Ruling(said, raised(said, floor), tier, floor)


def of_record(found: values.Floor | None) -> Floor | None:
    """The floor that ``Ruling.on_record`` kept."""
    return None if found is None else Floor(found.count, found.roles)


def met(demand: Effect, approvers: Iterable[Approver]) -> bool:
    """Whether those who approved are enough for what is demanded: nobody is needed for an allowance."""
    if demand.effect in ALLOWING:
        return True
    return demand.effect == "require_approval" and demand.count <= len(
        {owner for owner, roles in approvers if _has(roles, demand.roles) and _has(roles, demand.floor_roles)}
    )


def covered(demand: Effect, count: int, sets: Iterable[Collection[str]]) -> bool:
    """Whether an approval that asked ``count`` owners, each with one role of each of ``sets``, asked for as much as is
    demanded, whoever has which role now."""
    asked = [set(roles) for roles in sets if roles]
    wanted = [set(roles) for roles in (demand.roles, demand.floor_roles) if roles]
    return demand.count <= count and all(any(roles <= some for roles in asked) for some in wanted)


def of_input(result: Mapping[str, Any], document: Mapping[str, Any], floors: Floors) -> Ruling:
    """What the daemon would make of a checked decision over an input that somebody wrote: what the input does not say,
    counts as absent."""
    action, contract = _object(document.get("action")), _object(document.get("contract"))
    irreversible = _object(contract.get("recovery")).get("irreversible_step") is True
    past_return = contract.get("point_of_no_return") is True or irreversible
    return ruled(decision(result), str(action.get("risk_tier", "")), floors, past_return=past_return)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _has(roles: Collection[str], wanted: Collection[str]) -> bool:
    return not wanted or bool(set(wanted) & set(roles))


def _demand(count: int, roles: Collection[str]) -> str:
    return _owners(count) + (f" with one of the roles {', '.join(map(identifier, roles))}" if roles else "")


def _owners(count: int) -> str:
    return "1 owner" if count == 1 else f"{count} owners"
