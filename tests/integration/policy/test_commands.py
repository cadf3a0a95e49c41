"""``kblockd policy check|test|eval|schema`` as people and pipelines use them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kblockd.cli.kblockd import kblockd
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.opa.tarball import build
from tests.contract.policy.bundles import KeyPair
from tests.contract.policy.support import ALLOW, ALLOW_REFUND, deciding, document, opa_binary, package, write
from tests.harness import ROOT, merged, shipped

Run = Callable[..., Result]
RELEASE = KeyPair("release-2026")
TEST = """package kblock.decision_test

import data.kblock.decision
import rego.v1

test_refund if decision.result.effect == "allow" with input as {"action": {"type": "refund"}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Without a configuration: on the machine of whoever writes policies."""

    def command(*arguments: Any, given: Any = None) -> Result:
        environment = {"KBLOCKD_CONFIG": None, "COLUMNS": "200", "NO_COLOR": "1"}
        text = None if given is None else json.dumps(given)
        return CliRunner().invoke(kblockd, ["policy", *map(str, arguments)], env=environment, input=text)

    return command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "policies", {**deciding(ALLOW_REFUND), "decision_test.rego": TEST})


def test_check_says_what_would_be_refused_and_what_to_look_at(run: Run, folder: Path) -> None:
    good = run("check", folder)
    assert (good.exit_code, "1 tests passed" in good.stdout, good.stderr) == (0, True, "")
    (folder / "extra.rego").write_text("package extra\n\nimport rego.v1\n\nallow if 1 == 1\n")
    warned = run("check", folder)
    assert warned.exit_code == 0
    assert "extra.rego:1:1: warning: package extra is neither asked by kblockd nor used" in warned.stderr
    assert "extra.rego:5:1: warning: allow allows whatever is asked" in warned.stderr
    assert "2 warnings" in warned.stdout
    assert run("check", folder, "--strict").exit_code == 1
    (folder / "extra.rego").write_text("package kblock.decision\n\nimport rego.v1\n\na if input.principle.id\n")
    wrong = run("check", folder)
    assert wrong.exit_code == 1
    assert (
        "extra.rego:5:12: error: input never has a key principle [input-path]; did you mean principal?" in wrong.stderr
    )


def test_check_as_json_holds_faults_and_findings_with_their_places(run: Run, folder: Path) -> None:
    (folder / "decision.rego").write_text(package("decision", "a if input.principle.id", 'b if http.send({"a": 1})'))
    shown = run("check", folder, "--json")
    found = json.loads(shown.stdout)
    assert (shown.exit_code, found["accepted"]) == (1, False)
    assert [(row["file"], row["line"], row["column"]) for row in found["faults"]] == [("decision.rego", 9, 15)]
    assert [(row["level"], row["code"], row["line"]) for row in found["findings"]] == [("error", "input-path", 7)]
    assert all(row["next_step"] for row in found["faults"] + found["findings"])


def test_a_bundle_of_opa_is_taken_wherever_a_folder_is(run: Run, folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "bundle.tar.gz"
    texts = {file.name: file.read_text() for file in folder.iterdir()}
    archive.write_bytes(build(Bundle.of(texts)))  # without the tests: they never decide
    refused = run("check", archive)  # the embedded engine wants tests, and this archive is for an OPA elsewhere
    assert (refused.exit_code, "the bundle has no test" in refused.stderr) == (1, True)
    assert run("check", archive, "--engine", "opa", "--opa", opa_binary()).exit_code == 0
    assert json.loads(run("eval", archive, "--json", given=document()).stdout)["result"]["effect"] == "allow"
    nothing = run("test", archive)
    assert (nothing.exit_code, "no test ran" in nothing.stderr) == (1, True)


@pytest.mark.parametrize("engine", ["embedded", "opa"])
def test_eval_shows_the_decision_and_the_rules(run: Run, folder: Path, engine: str) -> None:
    options = ("--engine", engine, "--opa", opa_binary()) if engine == "opa" else ("--engine", engine)
    shown = run("eval", folder, *options, "--json", given=document())
    found = json.loads(shown.stdout)
    assert (shown.exit_code, found["engine"], found["result"]["effect"]) == (0, engine, "allow")
    (rule,) = found["rules"]
    assert (rule["file"], rule["line"], rule["kind"]) == ("decision.rego", 7, "rule")
    plain = run("eval", folder, *options, given=document("other"))
    assert (plain.exit_code, '"effect": "deny"' in plain.stdout) == (0, True)
    assert "decision.rego:5:1: kblock.decision.result (default)" in plain.stdout


def test_pol_01_eval_without_a_decision_says_that_the_daemon_denies(run: Run, folder: Path) -> None:
    (folder / "decision.rego").write_text(
        f"package kblock.decision\nimport rego.v1\nresult := {ALLOW} if input.args.a\n"
    )
    shown = run("eval", folder, given=document())
    assert (shown.exit_code, "POLICY_UNDEFINED" in shown.stderr, "the daemon denies" in shown.stderr) == (1, True, True)


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1, "a": 2}', '{"a": 9007199254740993}'])
def test_pol_08_an_input_that_the_daemon_would_not_send_is_not_guessed(run: Run, folder: Path, text: str) -> None:
    file = folder.parent / "input.json"
    file.write_text(text)
    shown = run("eval", folder, "--input", file)
    assert (shown.exit_code, f"{file}: not an input" in shown.stderr) == (1, True)


def test_eval_of_another_entry_point(run: Run, folder: Path) -> None:
    shown = run("eval", folder, "-e", "authz", "--json", given=document())
    assert json.loads(shown.stdout)["result"]["allow"] is False


def test_test_counts_and_names_what_never_fires(run: Run, folder: Path) -> None:
    shown = run("test", folder)
    assert shown.exit_code == 0
    assert "decision.rego:5:1: kblock.decision.result (default): never fires in a test" in shown.stdout
    assert "1 passed, 0 failed" in shown.stdout
    none = run("test", folder, "--run", "no such test", "--min-coverage", "90")
    assert (none.exit_code, none.stdout) == (1, "0 passed, 0 failed\n")
    assert none.stderr.startswith("no test ran")
    low = run("test", folder, "--min-coverage", "90")
    assert (low.exit_code, "below 90 % of the rules" in low.stderr) == (1, True)
    (folder / "decision_test.rego").write_text(TEST.replace('"allow"', '"deny"'))
    failing = run("test", folder, "--json")
    found = json.loads(failing.stdout)
    assert (failing.exit_code, found["failed"], found["tests"][0]["line"]) == (1, 1, 6)
    assert "decision_test.rego:6:1: kblock.decision_test.test_refund fails" in run("test", folder).stderr
    assert run("test", folder, "--run", "nothing").exit_code == 1


def test_an_engine_that_is_not_there_is_wrong_usage(run: Run, folder: Path) -> None:
    shown = run("test", folder, "--engine", "opa")
    assert (shown.exit_code, "--opa PROGRAM" in shown.stderr) == (2, True)


def test_a_program_that_is_no_opa_is_named(run: Run, folder: Path, tmp_path: Path) -> None:
    """What the launcher says reaches the operator: a sentence and what to look at, no traceback."""
    program = tmp_path / "opa"
    program.write_text("no program")
    program.chmod(0o600)
    refused = run("check", str(folder), "--engine", "opa", "--opa", str(program))
    assert refused.exit_code == 1
    assert f"{program} cannot be run: Permission denied; see that policy.opa.command (or --opa)" in refused.stderr
    assert "Traceback" not in refused.output


def test_without_path_and_configuration_the_missing_file_is_named(run: Run) -> None:
    shown = run("check")
    assert (shown.exit_code, "kblockd.yaml" in shown.stderr) == (1, True)


def test_pol_05_a_draft_is_looked_at_and_comes_into_force_nowhere(run: Run, folder: Path, tmp_path: Path) -> None:
    """Where signatures are asked for: check refuses it, unless it is told, and then neither writes nor notes."""
    _, public = RELEASE.write(tmp_path)
    key = {"id": RELEASE.id, "algorithm": RELEASE.algorithm, "file": str(public)}
    noted, served = tmp_path / "revisions.jsonl", tmp_path / "served.tar.gz"
    policy = {
        "engine": "opa",
        "opa": {"url": "http://127.0.0.1:9", "revisions": str(noted)},
        "bundle": str(folder),
        "verification": {"allow_unsigned": False, "scope": "", "keys": [key]},
    }
    places = {name: str(ROOT / "config" / name) for name in ("actions", "upstreams")}
    config = tmp_path / "kblockd.yaml"
    config.write_text(json.dumps(merged(shipped("kblockd.yaml"), {**places, "policy": policy})))
    options = ("--config", config)
    refused = run("check", folder, *options)
    assert (refused.exit_code, "nobody signed this bundle" in refused.stderr) == (1, True)
    assert "check an unsigned bundle with --draft" in refused.stderr
    for command in (("check", "--draft"), ("test",)):
        assert run(command[0], folder, *command[1:], *options).exit_code == 0
    both = run("check", folder, "--draft", "--bundle", served, *options)
    assert (both.exit_code, "sign it first" in both.stderr) == (2, True)
    assert not noted.exists()
    assert not served.exists()


def test_schema_is_what_opa_checks_with(run: Run, folder: Path, tmp_path: Path) -> None:
    """The next step that `schema` prints works as it stands."""
    written = run("schema", tmp_path / "schemas")
    assert (written.exit_code, "opa check --schema" in written.stdout) == (0, True)
    text = package("decision", "# METADATA\n# schemas:\n# - input: schema.input\na if input.principal.id")
    (folder / "decision.rego").write_text(text)
    (folder / "decision_test.rego").write_text("package kblock.decision_test\nimport rego.v1\ntest_a if true\n")
    command = [opa_binary(), "check", "--schema", str(tmp_path / "schemas"), str(folder)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert run("check", folder, "--strict").exit_code == 0
    (folder / "decision.rego").write_text(text.replace("principal", "principle"))
    assert b"undefined ref: input.principle" in subprocess.run(command, capture_output=True).stderr
    assert json.loads(run("schema").stdout)["title"] == "input"
