"""The damage matrix: refused or found, with the numbers and the next step; nothing is lost silently or sent again."""

from __future__ import annotations

import random

import pytest

from tests.crash.damage.assess import assess, check, never_silent
from tests.crash.damage.damages import MATRIX, Damage, in_store
from tests.crash.damage.estate import Estate

pytestmark = pytest.mark.xdist_group("damage")


CASES = [pytest.param(one, marks=[pytest.mark.soak] if one.soak else [], id=one.name) for one in MATRIX]


@pytest.mark.parametrize("damage", CASES)
def test_led_10_rcp_01_damage_is_refused_or_found(estate: Estate, damage: Damage) -> None:
    """LED-10, RCP-01, RCP-09: daemon, verification and export tell the same story."""
    check(assess(estate, damage))


FILES = ("*.log", "*.sst", "MANIFEST-*", "OPTIONS-*", "CURRENT", "IDENTITY", "rocksdict-config.json")


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("image", ["stopped", "killed"])
@pytest.mark.parametrize("pattern", FILES)
def test_led_10_a_bit_flipped_anywhere_is_never_silent(estate: Estate, pattern: str, image: str) -> None:
    """LED-10: twelve places drawn for each kind of file."""
    chance = random.Random(f"{pattern} {image}")
    outcomes = [
        never_silent(estate, image, in_store(pattern, chance.random(), bit=chance.randrange(8))) for _ in range(12)
    ]
    print(pattern, image, sorted(outcomes))
