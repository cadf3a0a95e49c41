"""The groups that sockets are given to: which act, which exist, and that none reaches the sockets of two owners."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from typing import Any

import pytest

from kblockd.config import Account, Configuration, load
from tests.unit.config.conftest import DAEMON, Folder

Change = Callable[[str, str, Any], None]
AGENTS, LEADS = 64_201, 64_202
_ACCOUNT = Account(os.geteuid(), 64_200, frozenset({os.geteuid()}))


def loaded(folder: Folder) -> Configuration:
    """As a daemon whose own group is 64200."""
    folder.load()
    return load(folder.path / DAEMON, account=_ACCOUNT)


def listen(folder: Folder, **listeners: tuple[str, Any]) -> None:
    """One socket a principal: its mode and its group (None: no such key)."""
    folder.files[DAEMON]["listeners"] = [
        {"unix": f"run/{name}.sock", "mode": mode, "principal": f"local:{name}"} | ({"group": group} if group else {})
        for name, (mode, group) in listeners.items()
    ]


def test_the_socket_of_each_owner_has_its_own_group(folder: Folder) -> None:
    listen(folder, agent=("0660", AGENTS), lead=("0660", LEADS), operator=("0600", None))
    assert [one.gid for one in loaded(folder).listeners] == [AGENTS, LEADS, None]


def test_a_group_may_be_named(folder: Folder) -> None:
    named = grp.getgrall()[-1]
    listen(folder, agent=("0660", named.gr_name))
    assert [one.gid for one in loaded(folder).listeners] == [named.gr_gid]


def test_without_a_group_it_is_the_daemons_own(folder: Folder) -> None:
    listen(folder, agent=("0660", None))
    assert [one.gid for one in loaded(folder).listeners] == [64_200]


@pytest.mark.parametrize(
    ("agent", "lead"),
    [(None, None), (AGENTS, AGENTS), (None, 64_200), (64_200, None)],
    ids=["documented before", "named", "own and named", "named and own"],
)
@pytest.mark.parametrize("mode", ["0660", "0620", "0640", "0610", "0670"])
def test_loc_03_one_group_that_reaches_the_sockets_of_two_owners_is_refused(
    folder: Folder, mode: str, agent: int | None, lead: int | None
) -> None:
    listen(folder, agent=(mode, agent), lead=("0660", lead), operator=("0600", None))
    if agent == lead:
        (fault,) = folder.faults()
        assert fault.key == "listeners[1]"
        for named in ("local:agent (owner team:support-bot)", "local:lead (owner person:lead)", "run/agent.sock"):
            assert named in fault.message
    with pytest.raises(Exception, match="its members could request and approve"):
        load(folder.path / DAEMON, account=_ACCOUNT) if agent == lead else loaded(folder)


def test_one_group_may_reach_several_sockets_of_one_owner(folder: Folder, change: Change) -> None:
    change(DAEMON, "principals.1.owner", "team:support-bot")
    listen(folder, agent=("0660", AGENTS), lead=("0660", AGENTS), operator=("0600", None))
    assert [one.gid for one in loaded(folder).listeners] == [AGENTS, AGENTS, None]


def test_a_group_that_does_not_act_or_does_not_exist_is_refused(folder: Folder) -> None:
    listen(folder, agent=("0600", AGENTS), lead=("0660", "no-such-group"))
    said = {fault.key: str(fault) for fault in folder.faults()}
    assert "has no effect: the mode 0600 gives the group no access" in said["listeners[0].group"]
    assert "group 'no-such-group' does not exist on this machine; groupadd" in said["listeners[1].group"]


@pytest.mark.parametrize("group", [-1, 2**32 - 1, "", "a b", "../x", True, 1.5])
def test_what_is_no_group_is_refused(folder: Folder, group: Any) -> None:
    listen(folder, agent=("0660", None))
    folder.files[DAEMON]["listeners"][0]["group"] = group
    assert {fault.key.partition(".group")[0] for fault in folder.faults()} == {"listeners[0]"}


def test_a_user_in_the_groups_of_two_owners_is_warned_of(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user database shows; a unit's SupplementaryGroups= it does not."""
    groups = {AGENTS: ("agents", "x", AGENTS, ["bot", "anna"]), LEADS: ("leads", "x", LEADS, ["anna", "root"])}
    bot = pwd.struct_passwd(("bot", "x", 64_300, 64_300, "", "/", "/bin/sh"))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(groups[gid]))
    monkeypatch.setattr(pwd, "getpwall", lambda: [bot])
    listen(folder, agent=("0660", AGENTS), lead=("0660", LEADS))
    expected = "listeners: the user anna is in groups that can open sockets of person:lead, team:support-bot"
    assert loaded(folder).warnings == (expected,)


def test_a_group_that_callers_have_is_private_to_nobody(folder: Folder) -> None:
    """What it may write, they may write, though the user database shows nobody in it."""
    listen(folder, agent=("0660", None))
    own = Account(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))
    folder.load()
    assert os.getegid() not in load(folder.path / DAEMON, account=own).writers.gids
