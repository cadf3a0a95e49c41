"""The whole daemon killed at random instants under load, and the checker that says what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.counts import COUNTS
from tests.crash.load.campaign import Campaign
from tests.crash.load.checker import Fault, Report, check
from tests.crash.load.forgeries import FORGERIES, Forgery
from tests.crash.load.history import interrupted
from tests.crash.load.plan import Plan
from tests.crash.load.run import campaign, table

SHORT = Plan(seed=15_553, kills=6, callers=16)
LONG = Plan(seed=20_261_129, kills=200, callers=64)
ALWAYS_SEEN = frozenset(Fault) - {Fault.UNEXPECTED_REFUSAL}
"""Rules that have cases in any campaign; whether a refusal is met depends on the instant."""

Judged = tuple[Campaign, Report]
Say = Callable[[str, str], None]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def short() -> Judged:
    """The plan of this seed has all fates, verdicts and denials early on, a death before the daemon serves, a start
    without policies and a spoilt change of them."""
    return campaign(SHORT, forked=True)


def check_sound(judged: Judged, say: Say) -> None:
    """Nothing was found, every rule had something to look at, and the deaths hit calls under way."""
    done, report = judged
    said = table(done, report)
    say(COUNTS, said)
    assert done.kills == done.plan.kills
    assert report.findings == [], said
    assert done.verified["ok"], said
    assert {one for one in Fault if report.looked_at[one]} >= ALWAYS_SEEN, said
    assert interrupted(done.history.leaves).total() > done.plan.kills, said


def test_rec_04_idm_05_out_08_kills_at_random_instants_under_load(short: Judged, record_property: Say) -> None:
    """REC-04, IDM-05, OUT-08: no double effect, nothing that was acknowledged is lost, no false success and
    no false "nothing happened", an approval is consumed once, a result stays what it was (R111, R186, R194, R462)."""
    check_sound(short, record_property)


def test_the_short_campaign_has_mixed_ends(short: Judged) -> None:
    """A campaign in which everything succeeds would prove little."""
    done, _ = short
    ends = {(one.kind, one.result_class) for one in done.history.given}
    assert ends >= {
        ("Completed", "completed_verified"),
        ("UpstreamError", "failed_before_side_effect"),
        ("ApprovalPending", ""),
        ("Denied", ""),
    }
    assert ends & {("UpstreamError", "failed_after_side_effect"), ("UpstreamError", "unknown_outcome")}
    assert {verdict for _, verdict in done.history.decided} == {"approve", "deny"}
    assert {"policy.refused", "policy.activated"} <= {leaf.type for leaf in done.history.leaves}


@pytest.mark.parametrize("forgery", FORGERIES, ids=str)
def test_the_checker_finds_each_lie(short: Judged, forgery: Forgery) -> None:
    """One lie in a history that is sound otherwise: it is found under its name, and nothing is found that is not."""
    done, report = short
    assert report.findings == []
    forged = check(forgery.forge(dataclasses.replace(done.history)))
    assert forgery.fault in {one.fault for one in forged.findings}
    assert {one.fault for one in forged.findings} <= {forgery.fault, *forgery.beside}, forged.findings


def test_every_fault_is_forged() -> None:
    """No rule of the checker goes unproved."""
    assert {forgery.fault for forgery in FORGERIES} == set(Fault)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_rec_04_idm_05_out_08_two_hundred_kills_under_load(record_property: Say) -> None:
    """As the short one, with 64 callers and the command itself as the process that dies (R111, R186, R194, R462)."""
    check_sound(campaign(LONG, forked=False), record_property)
