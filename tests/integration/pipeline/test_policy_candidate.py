"""``kblockd policy candidate`` beside a daemon that decides: what would change is seen, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kblockd.cli.kblockd import kblockd
from kblockd.client.errors import InvalidArgumentError, PermissionDeniedError
from tests.integration.pipeline.limits import limited, policy, refunds
from tests.integration.pipeline.local import LocalSite, news, size, until

SPIN = """
within if {
    input.args.amount == "1.50"
    count([1 | some i in numbers.range(1, 4000); some j in numbers.range(1, 4000); i + j < 0]) == 0
}
"""


@pytest.fixture(scope="module")
def shop_site() -> Iterator[LocalSite]:
    with limited(2) as (site, _):
        yield site


def run(site: LocalSite, *arguments: str, who: str = "operator") -> Result:
    command = ["policy", "candidate", *arguments, "--socket", str(site.socket(who)), "--json"]
    return CliRunner().invoke(kblockd, command, catch_exceptions=False)


def report(site: LocalSite, *arguments: str) -> dict[str, Any]:
    result = run(site, *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["candidate"]
    return found


def compared(site: LocalSite, questions: int) -> dict[str, Any]:
    """Once at least so many decisions were compared."""
    until(lambda: report(site, "--status")["changed"] + report(site, "--status")["same"] >= questions)
    return report(site, "--status")


def test_a_higher_limit_is_seen_and_changes_nothing(shop_site: LocalSite, tmp_path: Path) -> None:
    site = shop_site
    before = size(site)
    fresh = report(site, str(policy(tmp_path / "candidate", 5)))
    assert [record["type"] for record in news(site, before) if record["type"].startswith("policy")] == []
    asked = refunds(site, ["1.00", "3.00", "9.00"])
    by_amount = {amount: execution for execution, amount in asked.items()}
    found = compared(site, 3)
    assert found["revision"] == fresh["revision"] != ""
    decided = {d["execution_id"]: d for d in found["differences"] if d["entrypoint"] == "kblock/decision/result"}
    assert set(decided) == {by_amount["3.00"]}
    assert decided[by_amount["3.00"]]["in_force"].startswith("effect=require_approval")
    assert decided[by_amount["3.00"]]["candidate"] == "effect=allow [WITHIN]"
    with site.client() as agent:
        assert agent.get(execution_id=by_amount["3.00"]).answer.execution_id == by_amount["3.00"]
    proposed = {r["execution"]: r["body"]["effect"] for r in news(site, before) if r["type"] == "execution.proposed"}
    assert proposed[by_amount["3.00"]] == "require_approval"
    assert report(site, "--clear")["changed"] == found["changed"]
    assert json.loads(run(site, "--status").stdout) == {"candidate": None}


def test_a_candidate_that_runs_away_delays_and_fails_no_decision(shop_site: LocalSite, tmp_path: Path) -> None:
    site = shop_site
    folder = policy(tmp_path / "candidate", 2)
    (folder / "decision.rego").write_text((folder / "decision.rego").read_text() + SPIN)
    report(site, str(folder))
    before = size(site)
    refunds(site, ["1.50"])
    until(lambda: report(site, "--status")["failed"] >= 1)
    (difference,) = [d for d in report(site, "--status")["differences"] if d["candidate"].startswith("failure=")]
    assert difference["in_force"] == "effect=allow [WITHIN]"
    (decided,) = [r["body"] for r in news(site, before) if r["type"] == "execution.proposed"]
    assert (decided["effect"], decided["reasons"]) == ("allow", ["WITHIN"])
    report(site, "--clear")


def test_a_bundle_that_an_activation_would_refuse_leaves_the_candidate(shop_site: LocalSite, tmp_path: Path) -> None:
    site = shop_site
    good = report(site, str(policy(tmp_path / "good", 5)))
    bad = policy(tmp_path / "bad", 5)
    (bad / "recovery.rego").write_text("package kblock.recovery\nimport rego.v1\nresult := 7\n")
    refused = run(site, str(bad))
    assert refused.exit_code == 1
    assert "kblock/recovery/result" in refused.stdout
    with site.client("operator") as operator, pytest.raises(InvalidArgumentError, match="gzip"):
        operator.set_policy_candidate(b"not an archive")
    assert report(site, "--status")["revision"] == good["revision"]
    report(site, "--clear")


@pytest.mark.parametrize("who", ["agent", "lead", "auditor"])
def test_only_policy_editors_and_operators_set_a_candidate(shop_site: LocalSite, who: str) -> None:
    with shop_site.client(who) as client:
        for attempt in (
            lambda: client.set_policy_candidate(b"x"),
            client.policy_candidate,
            client.clear_policy_candidate,
        ):
            with pytest.raises(PermissionDeniedError):
                attempt()


def test_exactly_one_thing_is_asked_for(shop_site: LocalSite) -> None:
    assert run(shop_site).exit_code == 2
    assert run(shop_site, "--status", "--clear").exit_code == 2
