"""The day of one hostile agent in a minute: what must hold whatever the machine's speed. Times are the long run's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from kblockd.client import AsyncClient
from tests.harness import Site
from tests.soak.hostile_day import Noticed, Result, daemon, suffer

SECONDS = 2.0
QUIET = 0.3
pytestmark = pytest.mark.xdist_group("hostile day")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One daemon for the whole day."""
    with daemon() as made:
        yield made


def test_agt_06_a_flood_of_refusals_is_a_handful_of_records(site: Site) -> None:
    """Two hundred calls that the policy does not let the agent make. It comes first: the executions that an attack
    leaves behind write records of their own."""

    async def flood() -> int:
        async with AsyncClient(f"unix:{site.socket('operator')}") as operator:
            before = int((await operator.checkpoint()).splitlines()[1])
            async with AsyncClient(f"unix:{site.socket('other')}") as hostile:
                calls = (hostile.policy_status() for _ in range(200))
                said = await asyncio.gather(*calls, return_exceptions=True)
            assert {str(getattr(one, "reason", one)) for one in said} <= {"PERMISSION_DENIED", "PRINCIPAL_LIMIT"}
            return int((await operator.checkpoint()).splitlines()[1]) - before

    # The first of each kind, and what stage 0 decided of whoever calls for the first time.
    assert 1 <= uvloop.run(flood()) <= 8


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("AGT-04", "OK"),  # denied: an execution of its own, and its records
        ("AGT-05", ""),  # nothing of it need be answered within the two seconds: it waits for its turn
        ("AGT-06", "PERMISSION_DENIED"),
        ("AGT-07", "OK"),
        ("allowed", "OK"),
        ("stalling", "RESOURCE_EXHAUSTED"),
        ("watching", "RESOURCE_EXHAUSTED"),
        ("health", "INVALID_ARGUMENT"),
        ("reflection", "RESOURCE_EXHAUSTED INTERNAL"),  # its own client says INTERNAL of a write after the refusal
    ],
)
def test_agt_a_hostile_agent_costs_the_other_no_call(site: Site, name: str, code: str) -> None:
    """AGT-04 to AGT-07 and their like, calls of gRPC's own services among them: the daemon lives in 512 MiB, every call
    of the other agent succeeds, and the ledger grows by no more than the shares."""
    result = uvloop.run(suffer(site, name, SECONDS, QUIET))
    assert result.faults(most=0) == []
    assert not code or any(result.ended.get(one, 0) > 0 for one in code.split()), (result.ended, result.words)
    assert (code and name != "reflection") or "OK" not in result.ended, result.ended
    assert site.process is not None
    assert site.process.poll() is None


QUIETLY = Noticed(40.0, 10.0, 20.0, {})
GOOD = Result("x", QUIETLY, QUIETLY, QUIETLY, 200.0, 100, 1.0, 1000, {}, {})


def test_the_judgement_over_a_day() -> None:
    """What the table calls a fault."""
    assert GOOD.faults(2.0) == []
    slow = Noticed(40.0, 10.0, 41.0, {})
    failing = Noticed(40.0, 10.0, 20.0, {"OVERLOAD": 1})
    for changed, word in (
        ({"during": slow}, "2.05 times"),
        ({"during": failing}, "OVERLOAD"),
        ({"peak_mib": 513.0}, "513 MiB"),
        ({"records": 1001}, "1001 records"),
    ):
        (fault,) = Result(**{**{f: getattr(GOOD, f) for f in GOOD.__slots__}, **changed}).faults(2.0)
        assert word in fault
    assert Result(**{**{f: getattr(GOOD, f) for f in GOOD.__slots__}, "during": slow}).faults(0) == []
    assert "during x  1.00" in GOOD.line()
