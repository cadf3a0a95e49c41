"""A second, a third and a fourth Unix user, for real: each reaches its own socket, and nothing of anybody else.

What config/README.md says about callers of other users, held by processes with other uids (LOC-01 to LOC-04).
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.users.accounts import interpreter
from tests.integration.users.deployment import AGENTS, DAEMON, GROUPS, STRANGER, USERS, Deployment
from tests.upstreams.payments import PaymentsServer

REACH = """
import os, socket, sys
for path in sys.argv[1:]:
    try:
        if path.endswith(".sock"):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(path)
        elif os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
        print("reached")
    except OSError as error:
        print(error.strerror)
"""
WRITE = """
import os, sys
for path in sys.argv[1:]:
    try:
        if os.path.isdir(path):
            open(os.path.join(path, "planted"), "x").close()
        else:
            os.close(os.open(path, os.O_WRONLY))
        print("written")
    except OSError as error:
        print(error.strerror)
"""
REFUND = """
import sys
from kblockd.client import ApprovalPending, Call, Client
arguments = {"order_id": "A-1", "amount": "100.00", "currency": "EUR"}
with Client("unix:" + sys.argv[1]) as client:
    call = Call.of("payment.refund.create", "production", target="A-1", arguments=arguments, key="once")
    answer = client.execute(call)
    print(type(answer).__name__, getattr(answer, "approval_id", ""))
"""
APPROVE = """
import sys
from kblockd.client import Client
with Client("unix:" + sys.argv[1]) as client:
    shown = client.approval(sys.argv[2])
    client.decide(sys.argv[2], action_sha256=shown.action_sha256, presented_sha256=shown.presented_sha256,
                  verdict="approve", reason="as agreed")
print("approved")
"""
DENIED = "Permission denied"


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """That every user may run; without one the tests skip with the reason."""
    folder = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        program, why_not = interpreter(folder, DAEMON)
        if program is None:
            pytest.skip(why_not)
        yield program
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def deployment(payments: PaymentsServer, python: Path) -> Iterator[Deployment]:
    with Deployment.make() as made:
        made.interpreter = python
        made.lay_out(payments.url)
        yield made


def test_loc_03_each_user_reaches_its_own_socket_and_nothing_of_the_others(deployment: Deployment) -> None:
    """Sockets, keys, store, configuration: to read, to list, to write."""
    deployment.serve()
    sockets = {name: str(deployment.socket(name)) for name in ("agent", "lead", "operator", "other", "auditor")}
    for name, gid in GROUPS.items():
        found = os.stat(sockets[name])
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (DAEMON.uid, gid, 0o660)
    run, etc, data = deployment.folder / "run", deployment.config.parent, deployment.data
    private = [run, etc, etc / "kblockd.yaml", etc / "policy", data, data / "keys", data / "keys" / "result.pem"]
    private += [data / "store", data / "head", data / "lock"]
    for name, user in USERS.items():
        done = deployment.script(user, REACH, *sockets.values())
        expected = ["reached" if name == each else DENIED for each in sockets]
        assert (done.stdout.splitlines(), done.stderr) == (expected, ""), name
        for script in (REACH, WRITE):
            done = deployment.script(user, script, *map(str, private))
            assert (done.stdout.splitlines(), done.stderr) == ([DENIED] * len(private), ""), name
    assert deployment.stop() == 0


def test_loc_03_an_agent_asks_and_a_lead_approves_each_as_its_own_user(deployment: Deployment) -> None:
    """The whole story of the documented deployment; nobody else can play a part of it."""
    deployment.serve()
    agent, lead = str(deployment.socket("agent")), str(deployment.socket("lead"))
    asked = deployment.script(USERS["agent"], REFUND, agent)
    kind, approval = asked.stdout.split()
    assert kind == "ApprovalPending", asked.stderr
    for user, socket in (("agent", lead), ("stranger", lead), ("stranger", agent)):
        tried = deployment.script(USERS[user], APPROVE, socket, approval)
        assert "approved" not in tried.stdout
        assert "Permission denied" in tried.stderr, tried.stderr[-500:]
    assert "approved" not in deployment.script(USERS["agent"], APPROVE, agent, approval).stdout
    done = deployment.script(USERS["lead"], APPROVE, lead, approval)
    assert done.stdout == "approved\n", done.stderr
    done = deployment.script(USERS["agent"], REFUND, agent)
    assert done.stdout.split()[0] == "Completed", done.stderr
    assert deployment.stop() == 0


def test_loc_03_the_deployment_that_was_documented_before_is_refused(deployment: Deployment) -> None:
    """All sockets 0660 with the daemon's own group: whoever has that group asks and approves."""
    deployment.listen(dict.fromkeys(("agent", "lead", "operator"), ("0660", None)))
    said = deployment.refused()
    assert f"the group {DAEMON.gid} can open this socket of local:lead (owner person:lead)" in said
    assert "its members could request and approve" in said
    deployment.listen({"agent": ("0660", AGENTS), "lead": ("0660", AGENTS)})
    assert f"the group {AGENTS} can open this socket of local:lead" in deployment.refused()


def test_a_group_that_the_daemon_is_not_in_is_said_with_the_mend(deployment: Deployment) -> None:
    deployment.listen({"agent": ("0660", 64_399)})
    said = deployment.refused()
    assert "agent.sock: the daemon's user is not in the group 64399" in said
    assert "SupplementaryGroups= of the unit" in said


@pytest.mark.parametrize("name", ["kblockd.yaml", "policy", "policy/decision.rego", "actions", "upstreams", "."])
def test_loc_02_what_another_user_owns_or_may_write_refuses_the_start(deployment: Deployment, name: str) -> None:
    """The daemon is neither root nor the owner: what root owns passes, what a third user owns does not."""
    path = deployment.config.parent / name
    os.chown(path, STRANGER.uid, -1)
    said = deployment.refused()
    assert f"belongs to uid {STRANGER.uid}, not to uid 0 or uid {DAEMON.uid}" in said
    assert f"chown {DAEMON.uid} {path.resolve()}" in said
    os.chown(path, 0, AGENTS)
    before = path.stat().st_mode
    path.chmod(before | stat.S_IWGRP)
    assert f"chmod go-w {path.resolve()}" in deployment.refused()
    path.chmod(before)
    deployment.serve()


def test_loc_02_check_by_root_says_what_the_daemon_would_say(deployment: Deployment) -> None:
    """The owner of data_dir is taken for the daemon's user."""
    check = ("check", "--config", str(deployment.config), "--json")
    assert json.loads(deployment.command(*check))["instance"] == "kblockd-1"
    os.chown(deployment.config, DAEMON.uid, DAEMON.gid)
    deployment.command(*check)
    os.chown(deployment.config, STRANGER.uid, DAEMON.gid)
    said = json.loads(deployment.command(*check, check=False))["message"]
    assert f"{deployment.config} belongs to uid {STRANGER.uid}, not to uid 0 or uid {DAEMON.uid}" in said


def test_loc_02_a_credential_of_another_user_refuses_the_start(deployment: Deployment) -> None:
    """Mode 0600 says nothing about whose it is."""
    secret = deployment.folder / "secrets" / "write"
    secret.parent.mkdir(mode=0o700)
    secret.touch(mode=0o600)
    secret.write_text("Bearer abcdefgh\n")
    file = deployment.config.parent / "upstreams" / "payments.yaml"
    document = json.loads(file.read_text())
    document["credentials"] = {"write": f"file:{secret}", "read": "none"}
    file.write_text(json.dumps(document))
    for folder, uid in ((secret.parent, DAEMON.uid), (secret, STRANGER.uid)):
        os.chown(folder, uid, uid)
    said = deployment.refused()
    assert f"credentials.write: {secret} belongs to uid {STRANGER.uid}" in said


def test_loc_01_a_link_to_the_keys_never_comes_into_force(deployment: Deployment) -> None:
    """It is refused at the start (every call is denied) and at a reload (the revision in force stays)."""
    policy = deployment.config.parent / "policy"
    deployment.serve()
    (policy / "k").mkdir(mode=0o755)
    (policy / "k" / "data.yaml").symlink_to(deployment.data / "keys" / "result.pem")
    for _ in range(400):
        if "a link that leads out of the folder" in deployment.said():
            break
        time.sleep(0.05)
    assert "stays in force: k/data.yaml: a link that leads out of the folder" in deployment.said()
    assert deployment.stop() == 0
