"""The commands against the real daemon, the real upstream and real keys, from the pin to the verified receipt."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kblockd.cli.kblockctl import kblockctl
from kblockd.cli.kblockd import kblockd
from tests.harness import Site, refund
from tests.upstreams.payments import PaymentsServer

ARGUMENTS = json.dumps({"order_id": "A-1", "amount": "100.00", "currency": "EUR"})
EXECUTE = ("execute", "payment.refund.create", "-e", "production", "-t", "A-1", "--key", "key-1", "-j", ARGUMENTS)
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server


@pytest.fixture(scope="module")
def site(payments: PaymentsServer) -> Iterator[Site]:
    with Site.make() as made:
        made.configure(payments.url)
        made.pin()
        made.start()
        yield made


@pytest.fixture
def run(site: Site) -> Run:
    def command(who: str, *arguments: str, input: str | None = None) -> Result:
        environment = {"KBLOCKD_SOCKET": str(site.socket(who)), "COLUMNS": "200", "NO_COLOR": "1"}
        return CliRunner().invoke(kblockctl, list(arguments), input=input, env=environment)

    return command


@pytest.fixture
def offline(site: Site) -> Run:
    def command(*arguments: str) -> Result:
        return CliRunner().invoke(kblockd, list(arguments), env={"KBLOCKD_CONFIG": str(site.config)})

    return command


def refusals(run: Run) -> set[tuple[str, str]]:
    leaves = documents(run("operator", "ledger", "read", "--limit", "1000", "--json"))["leaves"]
    found = [json.loads(leaf["leaf"]) for leaf in leaves]
    return {(r["body"]["principal"], r["body"]["method"]) for r in found if r.get("type") == "call.refused"}


def documents(result: Result) -> dict:
    assert result.exit_code in (0, 3), result.output
    return json.loads(result.stdout)


@pytest.mark.xdist_group("commands")
def test_from_the_call_to_the_verified_receipt(
    site: Site, payments: PaymentsServer, run: Run, offline: Run, tmp_path: Path
) -> None:
    """R359, R361, R656: pending, shown, approved, repeated, completed once; and everything about it can be read."""
    pending = run("agent", *EXECUTE, "--json")
    assert pending.exit_code == 3, pending.output
    document = json.loads(pending.stdout)
    assert (document["status"], document["executed"], document["consumed"]) == ("approval_pending", False, False)
    approval, execution = document["approval_id"], document["execution_id"]

    listed = documents(run("lead", "approvals", "--state", "pending", "--json"))
    assert [item["approval_id"] for item in listed["items"]] == [approval]
    approved = run("lead", "approve", approval, "--reason", "as agreed", input="y\n")
    assert approved.exit_code == 0, approved.output
    assert "A-1" in approved.stdout
    assert f"{approval} is approved" in approved.stdout
    assert len(payments.state.read_text().splitlines() if payments.state.exists() else []) == 0

    done = run("agent", *EXECUTE, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["execution_id"], document["status"]) == (execution, "completed")
    again = json.loads(run("agent", *EXECUTE, "--json").stdout)
    assert (again["replayed"], again["result_dsse"]) == (True, document["result_dsse"])
    assert len(payments.state.read_text().splitlines()) == 1

    names = {event["name"] for event in documents(run("agent", "timeline", execution, "--json"))["events"]}
    assert {"decide", "consume", "mark_sent", "classify", "verify", "seal"} <= names
    assert "09 consume" in run("agent", "timeline", execution).stdout
    assert run("agent", "watch", execution).stdout.splitlines()[-1].split()[2] == "seal"

    out = tmp_path / "evidence"
    assert run("agent", "receipt", "get", execution, "--out", str(out)).exit_code == 0
    keys = site.data / "keys"
    pinned = ("--root", str(keys / "root.pub.pem"), "--keyset", str(keys / "keyset.dsse.json"))
    for source in ((execution,), ("--dir", str(out))):
        verified = run("agent", "receipt", "verify", *source, *pinned, "--state", "succeeded")
        assert (verified.exit_code, verified.stdout.startswith("verified: ")) == (0, True), verified.output
    expected = document["action_sha256"]
    assert run("agent", "receipt", "verify", execution, *pinned, "--action", expected).exit_code == 0
    assert run("agent", "receipt", "verify", execution, *pinned, "--action", "ab" * 32).exit_code == 1

    leaves = documents(run("operator", "ledger", "read", execution, "--json"))["leaves"]
    types = [json.loads(leaf["leaf"]).get("type", "receipt") for leaf in leaves]
    assert types[:3] == ["execution.proposed", "approval.requested", "approval.decided"]
    assert types[-2:] == ["result.sealed", "receipt"]
    proof = run("operator", "ledger", "proof", str(leaves[-1]["index"]))
    assert proof.stdout.startswith("c2sp.org/tlog-proof@v1")

    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_text(run("operator", "ledger", "checkpoint").stdout)
    report = offline("ledger", "verify", "--checkpoint", str(checkpoint), "--json")
    assert (report.exit_code, json.loads(report.stdout)["ok"]) == (0, True), report.output


@pytest.mark.xdist_group("commands")
def test_a_caller_that_waits_for_its_approval_goes_on_when_it_is_given(
    site: Site, payments: PaymentsServer, run: Run
) -> None:
    """R359, R361: approved is decided, although the execution waits for the identical call."""
    call = refund("A-2", key="key-waiting")
    with site.client() as agent:
        pending = agent.execute(call)
        assert run("lead", "approve", pending.approval_id, input="y\n").exit_code == 0
        done = agent.wait_for_approval(pending, timeout_seconds=30)
    assert (done.execution_id, done.status) == (pending.execution_id, "completed")
    assert sum(effect["order_id"] == "A-2" for effect in payments.effects()) == 1


@pytest.mark.xdist_group("commands")
def test_r108_what_was_approved_is_taken_back(site: Site, payments: PaymentsServer, run: Run) -> None:
    """R108: an approver stops it without being asked anything; once more there is nothing to stop."""
    call = refund("A-9", key="key-revoked")
    with site.client() as agent:
        pending = agent.execute(call)
        assert run("lead", "approve", pending.approval_id, input="y\n").exit_code == 0
        revoked = documents(run("lead", "revoke", pending.approval_id, "--reason", "called again", "--json"))
        assert agent.execute(call).code == "APPROVAL_REVOKED"
    assert (revoked["approval_id"], revoked["execution_id"]) == (pending.approval_id, pending.execution_id)
    listed = documents(run("lead", "approvals", "--state", "revoked", "--json"))
    assert [item["approval_id"] for item in listed["items"]] == [pending.approval_id]
    again = run("agent", "revoke", pending.approval_id, "--reason", "mine")
    assert (again.exit_code, "is revoked" in again.stderr) == (1, True), again.output
    assert not any(effect["order_id"] == "A-9" for effect in payments.effects())


@pytest.mark.xdist_group("commands")
def test_every_stage_of_one_run_stands_once_in_the_timeline(site: Site, run: Run) -> None:
    """One row a stage with its own time; a record's own time is told by the record after it."""
    call = refund("A-3", key="key-timed")
    with site.client() as agent:
        pending = agent.execute(call)
        assert run("lead", "approve", pending.approval_id, input="y\n").exit_code == 0
        done = agent.execute(call)
    events = documents(run("agent", "timeline", done.execution_id, "--json"))["events"]
    timed = {event["name"]: event["took_microseconds"] for event in events}
    assert all(timed[name] > 0 for name in ("consume", "mark_sent", "classify", "verify"))
    assert (timed["decide"], timed["await_approval"], timed["seal"]) == (0, 0, 0)
    assert sum(microseconds for event in events for _, microseconds in event["stages"]) < 60_000_000
    lines = run("agent", "timeline", done.execution_id).stdout.splitlines()[1:]
    stages = [number for line in lines if (number := re.search(r"\b(\d\d) [a-z]", line))]
    assert [int(found[1]) for found in stages] == [0, 1, 2, 3, 4, 0, 1, 2, *range(5, 17)]


@pytest.mark.xdist_group("commands")
def test_the_ledger_verifies_beside_the_daemon_that_writes_it(site: Site, offline: Run) -> None:
    verified = offline("ledger", "verify")
    assert (verified.exit_code, verified.stdout.splitlines()[-1].startswith("verified")) == (0, True), verified.output
    assert site.process is not None
    assert (site.data / "lock").read_text().split()[0] == str(site.process.pid)


@pytest.mark.xdist_group("commands")
def test_a_checkpoint_of_another_history_is_found(site: Site, run: Run, offline: Run, tmp_path: Path) -> None:
    lines = run("operator", "ledger", "checkpoint").stdout.split("\n")
    lines[2] = base64.b64encode(b"\0" * 32).decode()
    forged = tmp_path / "forged"
    forged.write_text("\n".join(lines))
    refused = offline("ledger", "verify", "--checkpoint", str(forged))
    assert (refused.exit_code, f"{forged}: not a checkpoint of kblockd.example/" in refused.stderr) == (1, True)


@pytest.mark.xdist_group("commands")
def test_what_is_no_checkpoint_is_named_with_its_file(run: Run, offline: Run, tmp_path: Path) -> None:
    """Among several files the one that is wrong, and of which log one is expected."""
    kept, other = tmp_path / "kept", tmp_path / "other"
    kept.write_text(run("operator", "ledger", "checkpoint").stdout)
    other.write_bytes(b"\xff{}")
    refused = offline("ledger", "verify", "--checkpoint", str(kept), "--checkpoint", str(other), "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["message"].startswith(f"{other}: not a checkpoint of kblockd.example/")


@pytest.mark.xdist_group("commands")
def test_policy_check_and_status_beside_the_daemon(offline: Run) -> None:
    assert offline("policy", "check").exit_code == 0
    status = offline("policy", "status")
    assert (status.exit_code, "(the same)" in status.stdout) == (0, True), status.output
    assert offline("check").exit_code == 0


@pytest.mark.xdist_group("commands")
def test_upstream_pin_prints_what_is_pinned(site: Site, offline: Run) -> None:
    to_read = offline("upstream", "pin", "payments")
    assert "Money moves at once" in to_read.stderr
    assert to_read.stdout.startswith("tools:\n")
    assert "Money" not in to_read.stdout
    printed = json.loads(offline("upstream", "pin", "payments", "--json").stdout)
    pinned = json.loads((site.config.parent / "upstreams" / "payments.yaml").read_text())["tools"]
    assert {name: {"definition_sha256": tool["definition_sha256"]} for name, tool in printed.items()} == pinned


@pytest.mark.xdist_group("commands")
def test_who_may_not_is_told_so_and_it_is_on_record(run: Run) -> None:
    """R010: the socket is the principal; the refusal is a record that an operator can read."""
    refused = run("lead", *EXECUTE)
    assert (refused.exit_code, "PERMISSION_DENIED" in refused.stderr) == (1, True), refused.output
    wanted = ("local:lead", "/kblock.v1.ExecutionService/Execute")
    limit = time.monotonic() + 30
    # A refusal is answered before it is durable, and only what is durable is read.
    while wanted not in refusals(run):
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.xdist_group("commands")
def test_a_caller_key_is_known_to_its_principal_alone(run: Run) -> None:
    """Who asks by another's key is told so, and by which name to ask instead."""
    unknown = run("operator", "get", "--key", "key-1")
    assert unknown.exit_code == 1
    assert "no execution under the caller key 'key-1' of local:operator" in unknown.stderr
    assert "ask by execution_id" in unknown.stderr


@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize(("who", "command"), [("agent", "list"), ("lead", "approvals")])
def test_a_page_token_that_no_page_gave_is_no_empty_page(run: Run, who: str, command: str) -> None:
    """An operator who mistypes one must not read "none" for an answer; the token of the other list is none here."""
    for name in ("x", "y"):
        run("agent", *[name if part == "key-1" else part for part in EXECUTE])
    first = documents(run(who, command, "--limit", "1", "--json"))
    second = documents(run(who, command, "--limit", "1", "--page-token", first["next_token"], "--json"))
    assert second["items"][0]["approval_id"] != first["items"][0]["approval_id"]
    other = first["items"][0]["approval_id" if command == "list" else "execution_id"]
    for wrong in ("zzz", other, first["next_token"][:-1]):
        refused = run(who, command, "--page-token", wrong)
        assert (refused.exit_code, "page_token: was never" in refused.stderr) == (1, True), refused.output


@pytest.mark.xdist_group("commands")
def test_a_wrong_field_over_the_real_daemon_writes_nothing(run: Run) -> None:
    """IDM-19: no state for a blank key."""
    run("operator", "ledger", "read")  # that each may call this method is on record, once
    run("agent", *EXECUTE, "--json")
    before = len(documents(run("operator", "ledger", "read", "--limit", "1000", "--json"))["leaves"])
    arguments = [part if part != "key-1" else "   " for part in EXECUTE]
    refused = run("agent", *arguments, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["violations"][0]["field"]) == (1, "envelope.caller_key")
    assert len(documents(run("operator", "ledger", "read", "--limit", "1000", "--json"))["leaves"]) == before


@pytest.mark.xdist_group("commands")
def test_the_script_is_installed(site: Site) -> None:
    command = [
        str(Path(sys.executable).with_name("kblockctl")),
        "--socket",
        str(site.socket("agent")),
        "list",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "items" in json.loads(done.stdout)
