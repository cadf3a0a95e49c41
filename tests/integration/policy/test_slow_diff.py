"""``kblockd policy diff`` with a bundle that answers slowly: what only waited for its turn is no change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kblockd.cli import policy_diff
from kblockd.cli.kblockd import kblockd
from tests.integration.pipeline.limits import limited, policy, refunds

SLOW = """
slowly if {
	xs := numbers.range(1, 600)
	count([1 | some a in xs; some b in xs; a + b == 0]) == 0
}
"""


def test_a_slow_bundle_that_answers_the_same_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question alone is well within its seconds, all of a batch one after the other are not."""
    monkeypatch.setattr(policy_diff, "EVALUATE_SECONDS", 1.0)
    with limited(2.0) as (site, _):
        refunds(site, ["1.00"] * 24)
        slow = policy(tmp_path / "slow", 2.0)
        file = slow / "decision.rego"
        file.write_text(file.read_text().replace("} if within", "} if {\n\tslowly\n\twithin\n}") + SLOW)
        arguments = ["policy", "diff", "recorded", str(slow), "--config", str(site.config), "--json"]
        result = CliRunner().invoke(kblockd, arguments, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["changed"]) == (0, [])
    assert found["decisions"]["unchanged"] == 49  # with what stage 0 decided of the agent
