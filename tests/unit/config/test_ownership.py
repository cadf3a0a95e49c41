"""Who may write what decides: each path that the configuration names, each refused with the path and the command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kblockd.config import Account, ConfigurationError, load
from tests.contract.policy.bundles import KeyPair
from tests.unit.config.conftest import CONTRACT, DAEMON, UPSTREAM, Folder

Change = Callable[[str, str, Any], None]


@pytest.fixture
def site(folder: Folder) -> Folder:
    """With everything that a configuration can name, in a folder of its own below the one that is judged."""
    top = folder.path = folder.path / "site" / "etc"
    for path in ("policy/k", "data", "run", "upstreams/tls", "secrets"):
        (top / path).mkdir(parents=True)
    (top / "policy" / "a.rego").write_text("package a\n")
    (top / "policy" / "k" / "data.json").write_text("{}")
    (top / "upstreams" / "tls" / "ca.pem").write_text("")
    for name in ("write", "read"):
        (top / "secrets" / name).touch(mode=0o600)
    (top / "release.pem").write_bytes(KeyPair().public_pem)
    files = folder.files
    files[UPSTREAM].update(
        url="https://pay.example/mcp",
        tls={"ca_file": "tls/ca.pem"},
        credentials={"write": "file:../secrets/write", "read": "file:../secrets/read"},
    )
    files[CONTRACT]["execution"]["credential_source"] = "static"
    verification = {"keys": [{"id": "release", "algorithm": "ES256", "file": "release.pem"}]}
    files[DAEMON]["policy"]["verification"] = {"allow_unsigned": False, "scope": "", **verification}
    for listener in files[DAEMON]["listeners"]:
        listener["unix"] = f"run/{Path(listener['unix']).name}"
    folder.load()
    return folder


def refusals(site: Folder) -> list[tuple[str, str]]:
    """The key of each fault, and its path below the site, with what is said of the path checked."""
    found = []
    for fault in site.faults():
        path = Path(fault.message.split(" ", 1)[0])
        assert str(path) in fault.next_step, fault
        found.append((fault.key, str(path.relative_to(site.path))))
    return found


def test_a_site_of_root_and_the_daemon_alone_loads(site: Folder) -> None:
    assert site.load().writers.uids == {0, os.geteuid()}


NAMED = {
    ".": "the document",
    DAEMON: "the document",
    "actions": "actions",
    CONTRACT: "the document",
    UPSTREAM: "the document",
    "upstreams/tls": "tls.ca_file",
    "upstreams/tls/ca.pem": "tls.ca_file",
    "secrets": "credentials.write",
    "data": "data_dir",
    "run": "listeners[0].unix",
    "release.pem": "policy.verification.keys[0].file",
    "policy": "policy.bundle",
    "policy/k": "policy.bundle",
    "policy/a.rego": "policy.bundle",
    "policy/k/data.json": "policy.bundle",
}


@pytest.mark.parametrize("mode", [0o777, 0o702])
@pytest.mark.parametrize("name", NAMED)
def test_loc_02_what_others_may_write_refuses_the_start_with_the_path(site: Folder, name: str, mode: int) -> None:
    (site.path / name).chmod(mode)
    assert refusals(site) == [(NAMED[name], name)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", [*NAMED, "secrets/write", "secrets/read"])
def test_loc_02_what_belongs_to_somebody_else_refuses_the_start_of_the_daemon(site: Folder, name: str) -> None:
    os.chown(site.path / name, 12_345, -1)
    with pytest.raises(ConfigurationError) as refused:
        load(site.path / DAEMON, account=Account.of_process())
    (fault,) = refused.value.faults
    assert f"{site.path / name} belongs to uid 12345, not to uid 0" in fault.message
    assert fault.next_step == f"chown 0 {site.path / name}"


def test_loc_02_several_are_told_at_once(site: Folder) -> None:
    """kblockd.yaml 0666, policy 0777, actions 0777."""
    for name, mode in ((DAEMON, 0o666), ("policy", 0o777), ("actions", 0o777)):
        (site.path / name).chmod(mode)
    assert sorted(path for _, path in refusals(site)) == ["actions", DAEMON, "policy"]


def test_a_folder_above_is_told_once_however_much_lies_below(site: Folder) -> None:
    (site.path.parent).chmod(0o777)
    (fault,) = site.faults()
    assert fault.next_step == f"chmod go-w {site.path.parent}"


def test_the_target_of_a_link_is_judged_and_its_folder(site: Folder, tmp_path: Path) -> None:
    """policy -> /srv/policies/current."""
    srv = tmp_path / "srv"
    srv.mkdir()
    shutil.move(site.path / "policy", srv / "current")
    (site.path / "policy").symlink_to(srv / "current")
    site.load()
    srv.chmod(0o777)
    (fault,) = site.faults()
    assert (fault.key, fault.next_step) == ("policy.bundle", f"chmod go-w {srv}")


def test_a_folder_in_tmp_passes_and_a_sticky_folder_of_actions_does_not(site: Folder) -> None:
    site.path.parent.chmod(0o1777)
    site.load()
    (site.path / "actions").chmod(0o1777)
    assert refusals(site) == [("actions", "actions")]


def test_an_archive_of_policies_is_judged(site: Folder, change: Change) -> None:
    change(DAEMON, "policy.bundle", "bundle.tar.gz")
    (site.path / "bundle.tar.gz").write_bytes(b"not opened: who may write it is asked first")
    (site.path / "bundle.tar.gz").chmod(0o666)
    assert refusals(site) == [("policy.bundle", "bundle.tar.gz")]


def test_what_is_not_there_is_for_others_to_say(site: Folder) -> None:
    """A policy that is missing at the start denies every call, and a credential may come with the next rotation."""
    shutil.rmtree(site.path / "policy")
    shutil.rmtree(site.path / "secrets")
    shutil.rmtree(site.path / "data")
    site.load()


OPA_FILES = ("revisions.jsonl", "token", "ca.pem", "client.pem", "client.key", "opa")


@pytest.mark.parametrize("name", OPA_FILES)
def test_loc_02_the_files_of_a_remote_opa_are_judged(site: Folder, change: Change, name: str) -> None:
    for file in OPA_FILES:
        (site.path / file).touch(mode=0o700)
    opa = {
        "url": "https://opa.example:8181",
        "revisions": "revisions.jsonl",
        "token_file": "token",
        "ca_file": "ca.pem",
        "client_cert_file": "client.pem",
        "client_key_file": "client.key",
        "command": "opa",
    }
    change(DAEMON, "policy.engine", "opa")
    change(DAEMON, "policy.opa", opa)
    site.load()
    (site.path / name).chmod(0o722)
    assert [path for _, path in refusals(site)] == [name]


def test_loc_02_the_program_and_the_folder_of_a_supervised_opa_are_judged(site: Folder, change: Change) -> None:
    (site.path / "opa").touch(mode=0o777)
    (site.path / "opa").chmod(0o777)
    (site.path / "opa-run").mkdir()
    (site.path / "opa-run").chmod(0o777)
    change(DAEMON, "policy.engine", "opa")
    change(DAEMON, "policy.opa", {"command": "opa", "run_dir": str(site.path / "opa-run")})
    said = [str(fault) for fault in site.faults() if "others may write" in fault.message]
    assert [name for name in ("opa", "opa-run") for one in said if one.endswith(f"chmod go-w {site.path / name}")] == [
        "opa",
        "opa-run",
    ]


def test_loc_01_a_contract_that_is_a_link_out_of_its_folder_is_refused(site: Folder, tmp_path: Path) -> None:
    """A mounted ConfigMap's links work."""
    outside = tmp_path / "outside.yaml"
    actions = site.path / "actions"
    version = actions / "..2026"
    version.mkdir()
    name = Path(CONTRACT).name
    (actions / name).rename(version / name)
    (actions / "..data").symlink_to("..2026")
    (actions / name).symlink_to(f"..data/{name}")
    assert ("payment.refund.create", "production") in load(site.path / DAEMON).contracts
    (version / name).rename(outside)
    (actions / name).unlink()
    (actions / name).symlink_to(outside)
    with pytest.raises(ConfigurationError, match="leads out of its folder"):
        load(site.path / DAEMON)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_command_of_root_takes_the_owner_of_data_dir_for_the_daemon(site: Folder) -> None:
    """The daemon itself refuses to start as anybody but that owner."""
    for path in (site.path / "data", site.path / DAEMON):
        os.chown(path, 12_345, -1)
    assert load(site.path / DAEMON).writers.uids == {0, 12_345}
    with pytest.raises(ConfigurationError, match="belongs to uid 12345"):
        load(site.path / DAEMON, account=Account.of_process())
