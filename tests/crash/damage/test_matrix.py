"""The damage matrix: refused or found, with the numbers and the next step; nothing is lost silently or sent again."""

from __future__ import annotations

import pytest

from tests.crash.damage.assess import assess, check
from tests.crash.damage.damages import MATRIX, Damage
from tests.crash.damage.estate import Estate

pytestmark = pytest.mark.xdist_group("damage")


CASES = [pytest.param(one, marks=[pytest.mark.soak] if one.soak else [], id=one.name) for one in MATRIX]


@pytest.mark.parametrize("damage", CASES)
def test_led_10_rcp_01_damage_is_refused_or_found(estate: Estate, damage: Damage) -> None:
    """LED-10, RCP-01, RCP-09: daemon, verification and export tell the same story."""
    check(assess(estate, damage))
