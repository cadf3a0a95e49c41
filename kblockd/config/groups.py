"""The account that the daemon runs as, and the groups of its sockets."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile
from kblockd.config.sources import Source
from kblockd.domain.contract import Path as KeyPath
from kblockd.paths import Writers

GROUP_BITS = 0o070


@dataclass(frozen=True, slots=True)
class Account:
    """``uid`` and ``gid`` of the daemon; ``trusted``: users besides root who may own files that affect decisions."""

    uid: int
    gid: int
    trusted: frozenset[int]

    @classmethod
    def of_process(cls) -> Account:
        """This process is the daemon."""
        return cls(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))

    @classmethod
    def of_data(cls, data_dir: Path) -> Account:
        """For a command, which another user may run: the daemon's user owns ``data_dir``, because it refuses to start
        as anybody else. The user who runs the command is trusted as well."""
        try:
            uid = data_dir.stat().st_uid
        except OSError:
            uid = os.geteuid()
        if uid == os.geteuid():
            return cls.of_process()
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            gid = os.getegid()
        return cls(uid, gid, frozenset({uid, os.geteuid()}))

    def writers(self, model: DaemonFile) -> Writers:
        """The only users who may write files that affect decisions; a socket's group never counts as private."""
        return Writers.of(self.trusted, shared=set(gids(model, self).values()))


def gids(model: DaemonFile, account: Account) -> dict[int, int]:
    """The gid that can open each listener, by position; omits listeners whose mode allows no group or whose group does
    not exist on this machine."""
    reaching: dict[int, int] = {}
    for position, listener in enumerate(model.listeners):
        gid = account.gid if listener.group is None else _gid(listener.group)
        if int(listener.mode, 8) & GROUP_BITS and gid is not None:
            reaching[position] = gid
    return reaching


def faults(daemon: Source[DaemonFile], model: DaemonFile, account: Account) -> Iterator[ConfigurationFault]:
    """Each group exists and has an effect, and none can open the sockets of two owners (LOC-03)."""
    for position, listener in enumerate(model.listeners):
        at: KeyPath = ("listeners", position, "group")
        if listener.group is None:
            continue
        if _gid(listener.group) is None:
            message = f"group {listener.group!r} does not exist on this machine"
            yield daemon.document.fault(at, message, f"groupadd --system {listener.group}, or correct the name")
        if not int(listener.mode, 8) & GROUP_BITS:
            message = f"has no effect: the mode {listener.mode} gives the group no access"
            yield daemon.document.fault(at, message, 'set the mode to "0660", or remove the group')
    yield from _shared(daemon, model, account)


def _shared(daemon: Source[DaemonFile], model: DaemonFile, account: Account) -> Iterator[ConfigurationFault]:
    owners = {principal.id: principal.owner for principal in model.principals}
    first: dict[int, int] = {}
    for position, gid in gids(model, account).items():
        listener, other = model.listeners[position], model.listeners[first.setdefault(gid, position)]
        owner, others = owners.get(listener.principal), owners.get(other.principal)
        if owner == others:
            continue
        message = (
            f"the group {_group(gid)} can open this socket of {listener.principal} (owner {owner}) and {other.unix} of "
            f"{other.principal} (owner {others}): its members could request and approve"
        )
        step = "give each owner's sockets their own group with group:, or the mode 0600"
        yield daemon.document.fault(("listeners", position), message, step)


def warnings(model: DaemonFile, account: Account) -> Iterator[str]:
    """Users who, by the user database, are in the groups of several owners and could act as all of them."""
    owners = {principal.id: principal.owner for principal in model.principals}
    reached: dict[str, set[str]] = {}
    everybody = pwd.getpwall()
    for position, gid in gids(model, account).items():
        for name in _members(gid, everybody):
            reached.setdefault(name, set()).add(owners[model.listeners[position].principal])
    for name, several in sorted(reached.items()):
        if len(several) > 1:
            yield f"listeners: the user {name} is in groups that can open sockets of {', '.join(sorted(several))}"


def _members(gid: int, everybody: list[pwd.struct_passwd]) -> set[str]:
    try:
        named = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        named = set()
    # Root and the daemon itself can open every socket anyway.
    privileged = {user.pw_name for user in everybody if user.pw_uid in (0, os.geteuid())}
    return (named | {user.pw_name for user in everybody if user.pw_gid == gid}) - privileged


def _gid(group: str | int) -> int | None:
    """A numeric gid need not have a name on this machine."""
    if isinstance(group, int):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _group(gid: int) -> str:
    try:
        return f"{grp.getgrgid(gid).gr_name} ({gid})"
    except KeyError:
        return str(gid)
