"""How long the first look waits."""

from __future__ import annotations

from kblockd.client.answers import Completed
from tests.integration.cases.conftest import DELAY
from tests.integration.pipeline.local import order, records, refund_in, run_approved
from tests.integration.staged import StagedSite


def test_ver_01_r263_the_first_read_waits_until_the_authority_can_know(staged: StagedSite) -> None:
    """VER-01, R263: what the contract says that consistency takes; nothing is read, and nothing concluded, before."""
    mine = order()
    done = run_approved(staged, refund_in("delayed", mine, key=mine))
    assert isinstance(done, Completed)
    took = sum(
        us for r in records(staged, done.execution_id) for stage, us in r["body"].get("stages", []) if stage == 14
    )
    assert took >= DELAY * 1_000_000
