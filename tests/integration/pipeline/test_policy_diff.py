"""``kblockd policy diff`` over ledgers that a daemon wrote: exactly what a changed rule affects, nothing guessed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kblockd.cli.kblockd import kblockd
from kblockd.client.answers import ApprovalPending, Completed
from kblockd.domain.ledger import rows
from kblockd.execution.retention import WHAT, InputRetention
from kblockd.policy.recorded import decisions
from kblockd.store.database import open_view
from tests.contract.policy.support import opa_binary
from tests.harness import approve
from tests.integration.pipeline.limits import limited, policy, refunds
from tests.integration.pipeline.local import LocalSite, news, order, refund_in, size
from tests.records import RecordType

CENTS = range(1, 1001)
CALLERS = 1  # stage 0 decides once that the agent may call Execute
LIMIT = 200  # cents: what is within it ran at once, the rest waits for an approval
AUTHZ, DECISION, PRECONDITIONS = "kblock/authz/result", "kblock/decision/result", "kblock/preconditions/result"
ALLOWED = {"effect": "allow", "reasons": ["WITHIN"]}
ASKED_FOR = {"effect": "require_approval", "count": 1, "roles": ["finance"], "reasons": ["ABOVE"]}

Ledger = tuple[LocalSite, Mapping[str, int]]


@pytest.fixture(scope="module")
def thousand() -> Iterator[Ledger]:
    """A thousand executions, from a cent to ten euros, and the cents of each; the daemon still runs."""
    with limited(LIMIT / 100) as (site, _):
        amounts = refunds(site, [f"{cents / 100:.2f}" for cents in CENTS])
        yield site, {execution: round(float(amount) * 100) for execution, amount in amounts.items()}


def run(site: LocalSite, old: str | Path, new: Path, *options: str) -> Result:
    """The command; only a defect raises."""
    arguments = ["policy", "diff", str(old), str(new), "--config", str(site.config), *options]
    return CliRunner().invoke(kblockd, arguments, catch_exceptions=False)


def in_force(site: LocalSite) -> Path:
    return site.config.parent / "policy"


def found(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize(
    ("old", "new", "decided", "checked"),
    [
        pytest.param(None, 150, range(151, 201), range(151, 201), id="recorded-stricter"),
        pytest.param(150, 250, range(151, 251), range(151, 201), id="bundles-looser"),
    ],
)
def test_pol_12_of_a_thousand_executions_exactly_those_that_a_changed_threshold_affects(
    thousand: Ledger, tmp_path: Path, old: int | None, new: int, decided: range, checked: range
) -> None:
    """Against what was recorded, and between two bundles of which neither was in force. Those that ran at once have a
    question of stage 8 on record as well, those that wait have none."""
    site, cents = thousand
    before = policy(tmp_path / "old", old / 100) if old else "recorded"
    result = run(site, before, policy(tmp_path / "new", new / 100), "--json")
    assert result.exit_code == 6
    report = found(result)
    assert sorted(cents[execution] for execution in report["executions"]) == list(decided)
    answers = (ALLOWED, ASKED_FOR) if old is None else (ASKED_FOR, ALLOWED)
    checks = ("hold", "POLICY_CHANGED") if old is None else ("POLICY_CHANGED", "hold")
    for entrypoint, affected, (was, will) in (
        (DECISION, decided, answers),
        (PRECONDITIONS, checked, [{"preconditions": word, "reasons": []} for word in checks]),
    ):
        changed = [row for row in report["changed"] if row["entrypoint"] == entrypoint]
        assert sorted(cents[row["execution_id"]] for row in changed) == list(affected)
        assert all((row["old"], row["new"]) == (was, will) for row in changed)
    assert report["decisions"] == {
        "changed": len(decided) + len(checked),
        "unchanged": CALLERS + len(CENTS) + LIMIT - len(decided) - len(checked),
        "other_reasons": 0,
        "not_replayable": 0,
    }


def test_pol_12_every_input_gives_its_digest_and_other_reasons_alone_change_nothing(
    thousand: Ledger, tmp_path: Path
) -> None:
    """All of a thousand executions are replayed, and stay as they were: the exit code says so."""
    site, _ = thousand
    renamed = policy(tmp_path / "renamed", LIMIT / 100)
    file = renamed / "decision.rego"
    file.write_text(file.read_text().replace('"ABOVE"', '"TOO_HIGH"'))
    result = run(site, "recorded", renamed, "--json")
    assert result.exit_code == 0
    assert found(result)["decisions"] == {
        "changed": 0,
        "other_reasons": 800,
        "unchanged": 400 + CALLERS,
        "not_replayable": 0,
    }


def test_a_change_is_a_line_with_execution_entry_point_answers_and_reasons(thousand: Ledger, tmp_path: Path) -> None:
    """Nothing of the arguments is printed."""
    site, cents = thousand
    result = run(site, "recorded", policy(tmp_path / "new", 1.99))
    [execution] = [execution for execution, amount in cents.items() if amount == 200]
    first, second, sides, summary = result.stdout.splitlines()
    answers = "effect=allow [WITHIN] -> effect=require_approval count=1 roles=finance [ABOVE]"
    assert first == f"{execution} {DECISION}: {answers}"
    assert second == f"{execution} {PRECONDITIONS}: preconditions=hold [] -> preconditions=POLICY_CHANGED []"
    assert sides.startswith("old recorded, new ")
    assert summary.startswith("2 decisions of 1 executions would change")


def test_a_rule_that_gives_no_answer_any_more_is_a_change(thousand: Ledger, tmp_path: Path) -> None:
    """Undefined means deny: the call would be refused."""
    site, cents = thousand
    new = policy(tmp_path / "new", LIMIT / 100)
    file = new / "preconditions.rego"
    silent = 'result := {"ok": true, "stands": stands, "reasons": []} if not input.args.amount == "0.07"'
    file.write_text(file.read_text().replace('result := {"ok": true, "stands": stands, "reasons": []}', silent))
    report = found(run(site, "recorded", new, "--json"))
    [row] = report["changed"]
    assert (row["entrypoint"], row["new"]) == (PRECONDITIONS, {"failure": "POLICY_UNDEFINED", "reasons": []})
    assert cents[row["execution_id"]] == 7


def test_a_bundle_that_would_be_refused_is_refused_before_anything_is_asked(thousand: Ledger, tmp_path: Path) -> None:
    site, _ = thousand
    broken = policy(tmp_path / "broken", 1.0)
    (broken / "recovery.rego").write_text("package kblock.recovery\nresult := {")
    result = run(site, "recorded", broken)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "recovery.rego" in result.stderr


@pytest.fixture(scope="module")
def brief() -> Iterator[tuple[LocalSite, str, str]]:
    """One that ran and one that was approved and ran: two executions, four decisions."""
    with limited(2.0) as (site, _):
        [ran] = refunds(site, ["1.00"])
        mine = order()
        call = refund_in("shop", mine, key=mine, amount="5.00")
        with site.client() as agent:
            pending = agent.execute(call)
            assert isinstance(pending, ApprovalPending)
            approve(site, pending.approval_id)
            assert isinstance(agent.execute(call), Completed)
        yield site, ran, pending.execution_id


def test_an_approved_action_still_goes_on_where_its_decision_did_not_change(
    brief: tuple[LocalSite, str, str], tmp_path: Path
) -> None:
    """The approval is part of the input that is asked again."""
    site, ran, _ = brief
    report = found(run(site, "recorded", policy(tmp_path / "new", 0.5), "--json"))
    assert [(row["execution_id"], row["entrypoint"]) for row in report["changed"]] == [
        (ran, DECISION),
        (ran, PRECONDITIONS),
    ]


def test_who_may_call_what_is_replayed_too(brief: tuple[LocalSite, str, str], tmp_path: Path) -> None:
    """A rule of stage 0 that shuts somebody out is seen before anyone deploys it: principal and method are named."""
    site, _, _ = brief
    new = policy(tmp_path / "new", 2.0)
    file = new / "authz.rego"
    text = file.read_text()
    assert "/kblock.v1.ApprovalService/Decide" in text
    file.write_text(text.replace("/kblock.v1.ApprovalService/Decide", "/kblock.v1.ApprovalService/Elsewhere"))
    result = run(site, "recorded", new, "--json")
    assert result.exit_code == 6
    report = found(result)
    assert report["executions"] == []
    [changed] = report["changed"]
    assert changed["about"] == "local:lead /kblock.v1.ApprovalService/Decide"
    assert (changed["entrypoint"], changed["execution_id"]) == (AUTHZ, "")
    assert changed["old"].pop("view")
    assert (changed["old"]["allow"], changed["new"]["allow"]) == (True, False)


def test_a_backup_is_replayed_like_the_ledger(brief: tuple[LocalSite, str, str], tmp_path: Path) -> None:
    """Where there is no store, that is said."""
    site, ran, _ = brief
    assert site.daemon is not None
    backup, new = tmp_path / "backup", policy(tmp_path / "new", 0.5)
    site.run(site.daemon.parts.store.backup(str(backup)))
    report = found(run(site, "recorded", new, "--json", "--data-dir", str(backup)))
    assert (report["executions"], report["missing"]) == ([ran], {})
    empty = run(site, "recorded", new, "--data-dir", str(tmp_path))
    assert (empty.exit_code, empty.stdout) == (1, "")
    assert "store is missing" in empty.stderr


def test_a_ledger_is_replayed_by_the_configured_engine(brief: tuple[LocalSite, str, str], tmp_path: Path) -> None:
    """What the embedded engine decided OPA decides again, in a process of this command's own."""
    site, ran, _ = brief
    document = json.loads(site.config.read_text())
    document["policy"] |= {"engine": "opa", "opa": {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")}}
    other = site.config.with_name("opa.yaml")
    other.write_text(json.dumps(document))
    same, stricter = policy(tmp_path / "same", 2.0), policy(tmp_path / "new", 0.5)
    for new, affected in ((same, set()), (stricter, {ran})):
        arguments = ["policy", "diff", "recorded", str(new), "--config", str(other), "--json"]
        result = CliRunner().invoke(kblockd, arguments, catch_exceptions=False)
        assert set(found(result)["executions"]) == affected
        assert found(result)["decisions"]["not_replayable"] == 0
    assert not (site.folder / "opa").exists()


def test_what_retention_erased_is_said_to_be_not_replayable_and_nothing_else_is_gone(
    brief: tuple[LocalSite, str, str], tmp_path: Path
) -> None:
    """C17: inputs go after their days and not before; the records stay, the ledger verifies, nothing is guessed."""
    site, _, approved = brief
    assert site.daemon is not None
    parts = site.daemon.parts
    days = site.daemon.configuration.policy.input_retention_days
    assert site.run(InputRetention(parts.store, parts.clock, days).erase()) == 0
    before = size(site)
    with open_view(site.data / "store") as view:
        made = list(decisions(view))
        assert all(view.raw(rows.policy_input(one.execution, one.input_payload)) is not None for one in made)
    of_executions = [one for one in made if one.execution]
    assert (len(of_executions), {one.entrypoint for one in made if not one.execution}) == (4, {AUTHZ})
    assert site.run(InputRetention(parts.store, Later(parts.clock, days), days).erase()) == len(made)
    with open_view(site.data / "store") as view:
        assert [view.raw(rows.policy_input(one.execution, one.input_payload)) for one in made] == [None] * len(made)
    [pruned] = news(site, before)
    counted = (pruned["type"], pruned["body"]["what"], pruned["body"]["count"])
    assert counted == (RecordType.STORE_PRUNED, WHAT, len(made))
    assert pruned["body"]["before_index"] == before

    result = run(site, "recorded", policy(tmp_path / "new", 0.5), "--json")
    assert result.exit_code == 3
    report = found(result)
    assert (report["changed"], report["missing"]) == ([], {"INPUT_ERASED": len(made)})
    assert report["decisions"]["not_replayable"] == len(made)
    assert "verified" in site.command("ledger", "verify", "--config", str(site.config))
    with site.client() as agent:
        assert isinstance(agent.get(execution_id=approved).answer, Completed)


def test_with_no_retention_no_input_is_kept(tmp_path: Path) -> None:
    """policy.input_retention_days 0: the record has the digest of the input, and there is no payload."""
    with limited(2.0, daemon={"policy": {"input_retention_days": 0, "evaluate_timeout_seconds": 5.0}}) as (site, _):
        [ran] = refunds(site, ["1.00"])
        result = run(site, in_force(site), policy(tmp_path / "new", 0.5))
        with open_view(site.data / "store") as view:
            kept = [value for _, value in view.encoded(("payload", ran)) if b"kept-input" in value]
            recorded = list(decisions(view))
    assert result.exit_code == 3
    assert "3 INPUT_NOT_KEPT" in result.stdout
    assert kept == []
    assert [(one.input_payload, len(one.input_sha256)) for one in recorded] == [("", 64)] * 3


class Later:
    """The daemon's clock, so many days on."""

    def __init__(self, clock: Any, days: int) -> None:
        self._clock, self._shift = clock, dt.timedelta(days=days)

    def now(self) -> dt.datetime:
        moment: dt.datetime = self._clock.now() + self._shift
        return moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)
