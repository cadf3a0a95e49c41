"""``kblockd`` over real files, keys, policies and stores."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from kblockd.cli.kblockd import kblockd
from kblockd.domain.ledger import fold
from kblockd.ledger.ledger import Ledger
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.database import open_writable
from kblockd.store.protocol import Append
from kblockd.store.rocks import RocksStore
from kblockd.store.schema import encode_key
from tests.records import Record, RecordType, filled

CONFIG = Path(__file__).parents[3] / "config"
Run = Callable[..., Result]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration that ships, with a data folder of its own and unpinned tools."""
    shutil.copytree(CONFIG, tmp_path / "config")
    file = tmp_path / "config" / "kblockd.yaml"
    yaml = YAML()
    document = yaml.load(file.read_text())
    (tmp_path / "data").mkdir(mode=0o700)
    document["data_dir"] = str(tmp_path / "data")
    document["development"]["unpinned_tools"] = True
    for name, folder in (("actions", "actions"), ("upstreams", "upstreams")):
        document[name] = str(tmp_path / "config" / folder)
    document["policy"]["bundle"] = str(tmp_path / "config" / "policy")
    files = (tmp_path / "config" / "upstreams").glob("*.yaml")
    document["adapters"] = sorted({yaml.load(upstream.read_text())["adapter"] for upstream in files})
    with file.open("w") as stream:
        yaml.dump(document, stream)
    return file


@pytest.fixture
def run(config: Path) -> Run:
    def command(*arguments: str) -> Result:
        environment = {"KBLOCKD_CONFIG": str(config), "COLUMNS": "200", "NO_COLOR": "1"}
        return CliRunner().invoke(kblockd, list(arguments), env=environment)

    return command


def test_keys_init_then_show(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    made = run("keys", "init", "--root", str(root), "--json")
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert sorted(key["role"] for key in document["keys"]) == ["approval", "log", "result"]
    assert stat.S_IMODE(os.stat(root).st_mode) == 0o600
    shown = json.loads(run("keys", "show", "--json").stdout)
    assert shown["keys"] == document["keys"]
    assert "active" in run("keys", "show").stdout
    again = run("keys", "init", "--root", str(tmp_path / "other.pem"))
    assert again.exit_code == 1
    assert not (tmp_path / "other.pem").exists()


@pytest.mark.parametrize("option", ["--passphrase-file", "--root-passphrase-file"])
def test_an_empty_passphrase_is_named_and_makes_no_key(run: Run, tmp_path: Path, option: str) -> None:
    """What a failed command before it left behind."""
    (tmp_path / "nothing").write_text("\n")
    refused = run("keys", "init", "--root", str(tmp_path / "root.pem"), option, str(tmp_path / "nothing"))
    assert (refused.exit_code, f"{option}: {tmp_path}/nothing is empty" in refused.stderr) == (2, True)
    assert not (tmp_path / "root.pem").exists()
    assert not (tmp_path / "data" / "keys").exists()


def test_root_reads_the_keys_of_the_daemons_user(run: Run, tmp_path: Path) -> None:
    """An operator with sudo must not be told to take the keys away from the service; a file of a third is refused."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    assert run("keys", "init", "--root", str(tmp_path / "root.pem")).exit_code == 0
    keys = tmp_path / "data" / "keys"
    for path in (keys, *keys.iterdir()):
        os.chown(path, 12345, -1)
    assert run("keys", "show").exit_code == 0
    os.chown(keys / "root.pub.pem", 54321, -1)
    refused = run("keys", "show")
    assert (refused.exit_code, "belongs to uid 54321, not to uid 12345" in refused.stderr) == (1, True)


def test_keys_show_without_keys_says_so(run: Run) -> None:
    shown = run("keys", "show")
    assert (shown.exit_code, "keys" in shown.stderr) == (1, True)


def test_check_shows_what_would_start(run: Run) -> None:
    shown = run("check", "--json")
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert {"payments", "orchestrator"} <= set(document["upstreams"])
    assert {"payment.refund.create in production", "record.delete in production"} <= set(document["contracts"])
    assert any("unpinned_tools" in warning for warning in document["warnings"])
    assert "WARNING: development.unpinned_tools" in run("check").stderr


def test_a_tool_that_nobody_reviewed_is_named_with_what_to_do(run: Run, config: Path) -> None:
    """The shipped configuration as it stands: every tool that lacks its pin, at once, each with the next step."""
    config.write_text(config.read_text().replace("unpinned_tools: true", "unpinned_tools: false"))
    shown = run("check")
    assert shown.exit_code == 1
    faults = [line for line in shown.stderr.splitlines() if "has no reviewed definition" in line]
    assert len(faults) == 4
    assert all("kblockd upstream pin payments" in fault and ".yaml:" in fault for fault in faults)


def test_an_upstream_that_does_not_answer_says_where_to_look(run: Run, config: Path) -> None:
    """What could not be described is a comment in the block, so that pasting it stays safe."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mcp"
        file = config.parent / "upstreams" / "payments.yaml"
        file.write_text(file.read_text().replace("http://127.0.0.1:9301/mcp", url))
        shown = run("upstream", "pin", "payments")
    assert (shown.exit_code, f"next: check that {url} is serving" in shown.stderr) == (1, True)
    assert all(line.startswith("  # ") for line in shown.stdout.splitlines()[1:])


def test_a_fault_of_the_configuration_names_file_and_line(run: Run, config: Path) -> None:
    config.write_text(config.read_text() + "\nno_such_key: 1\n")
    shown = run("check")
    assert shown.exit_code == 1
    assert f"{config}:" in shown.stderr
    assert "no_such_key" in shown.stderr
    assert json.loads(run("check", "--json").stdout)["error"] == "ConfigurationError"


def test_a_missing_configuration_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(kblockd, ["check", "-c", str(tmp_path / "none.yaml")])
    assert (result.exit_code, "none.yaml" in result.stderr) == (1, True)


def test_policy_check_and_status(run: Run, config: Path) -> None:
    checked = run("policy", "check", "--json")
    assert checked.exit_code == 0, checked.output
    document = json.loads(checked.stdout)
    assert (len(document["revision"]), document["tests"] > 0) == (64, True)
    status = run("policy", "status")
    assert (status.exit_code, "none was ever activated" in status.stdout) == (1, True)
    (config.parent / "policy" / "broken.rego").write_text("package kblock.decision\nthis is no rego")
    broken = run("policy", "check")
    assert (broken.exit_code, "broken.rego" in broken.stderr) == (1, True)
    assert json.loads(run("policy", "status", "--json").stdout)["folder"]["fault"]


def test_upstream_pin_of_an_unknown_name(run: Run) -> None:
    shown = run("upstream", "pin", "nowhere")
    assert (shown.exit_code, "payments" in shown.stderr) == (2, True)


async def _fill(data_dir: Path, records: int) -> str:
    tree = MerkleTree()
    store = await RocksStore.open(data_dir, fold=fold, tree=tree, ballast_bytes=0)
    try:
        for number in range(records):
            body = filled(RecordType.DAEMON_STARTED, instance=f"kblockd-{number}")
            record = Record(RecordType.DAEMON_STARTED, "2026-11-29T12:00:00.000000Z", body=body)
            await (await store.commit((), [Append(record.leaf())])).durable()
        return (await Ledger(store, "kblockd.example/test/1", lambda: []).root(store.size())).hex()
    finally:
        await store.close()


async def test_ledger_verify_of_a_good_and_of_a_changed_store(run: Run, tmp_path: Path) -> None:
    """The records are the truth; a row that does not follow from them is found."""
    root = await _fill(tmp_path / "data", 3)
    good = run("ledger", "verify", "--json")
    assert good.exit_code == 0, good.output
    document = json.loads(good.stdout)
    assert (document["ok"], document["size"], document["root"]) == (True, 3, root)
    assert run("ledger", "verify").stdout.splitlines()[-1] == "verified"
    database = open_writable(tmp_path / "data" / "store")
    key = encode_key(("daemon",))
    database[key] = database[key].replace(b"kblockd-2", b"kblockd-7")
    database.close()
    bad = run("ledger", "verify")
    assert (bad.exit_code, "NOT VERIFIED" in bad.stdout) == (1, True)
    assert json.loads(run("ledger", "verify", "--json").stdout)["faults"] == 1


def test_ledger_verify_without_a_store_says_so(run: Run) -> None:
    assert run("ledger", "verify").exit_code == 1


def test_serve_runs_the_daemon_with_the_file(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Path] = []
    fake = types.ModuleType("kblockd.daemon")
    fake.run = lambda file: given.append(file) or 75
    monkeypatch.setitem(sys.modules, "kblockd.daemon", fake)
    assert run("serve").exit_code == 75
    assert given == [config]


def test_the_module_is_the_command() -> None:
    from kblockd.__main__ import main
    from kblockd.cli.kblockd import main as command

    assert main is command
