"""The account that the daemon runs as, and the groups that its sockets are given to."""

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
    """``uid`` and ``gid`` of the daemon; ``writers``: further users who may own what decides."""

    uid: int
    gid: int
    trusted: frozenset[int]

    @classmethod
    def of_process(cls) -> Account:
        """This process is the daemon."""
        return cls(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))

    @classmethod
    def of_data(cls, data_dir: Path) -> Account:
        """For a command beside the daemon, which may be another user's: the owner of ``data_dir`` is the daemon, as it
        refuses to start as anybody else. Whoever runs the command is trusted as well."""
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
        """Who alone may write what decides; a group that a socket is given to is private to nobody."""
        return Writers.of(self.trusted, shared=set(gids(model, self).values()))


def gids(model: DaemonFile, account: Account) -> dict[int, int]:
    """The group that reaches each listener, by its position; not those whose mode lets no group, or without such a
    group on this machine."""
    found: dict[int, int] = {}
    for position, listener in enumerate(model.listeners):
        gid = account.gid if listener.group is None else _gid(listener.group)
        if int(listener.mode, 8) & GROUP_BITS and gid is not None:
            found[position] = gid
    return found


def faults(daemon: Source[DaemonFile], model: DaemonFile, account: Account) -> Iterator[ConfigurationFault]:
    """Each group exists and acts, and none reaches the sockets of two owners (LOC-03)."""
    for position, listener in enumerate(model.listeners):
        at: KeyPath = ("listeners", position, "group")
        if listener.group is None:
            continue
        if _gid(listener.group) is None:
            message = f"no group {listener.group!r} on this machine"
            yield daemon.document.fault(at, message, f"groupadd --system {listener.group}, or correct the name")
        if not int(listener.mode, 8) & GROUP_BITS:
            message = f"acts only with a mode that lets a group in, not with {listener.mode}"
            yield daemon.document.fault(at, message, 'set the mode to "0660", or take the group out')
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
            f"the group {_group(gid)} reaches this socket of {listener.principal} (owner {owner}) and {other.unix} of "
            f"{other.principal} (owner {others}): its members could ask and approve"
        )
        step = "give each owner's sockets a group of their own with group:, or the mode 0600"
        yield daemon.document.fault(("listeners", position), message, step)


def warnings(model: DaemonFile, account: Account) -> Iterator[str]:
    """Users whom the user database shows in groups of different owners: they may act as both."""
    owners = {principal.id: principal.owner for principal in model.principals}
    reached: dict[str, set[str]] = {}
    everybody = pwd.getpwall()
    for position, gid in gids(model, account).items():
        for name in _members(gid, everybody):
            reached.setdefault(name, set()).add(owners[model.listeners[position].principal])
    for name, several in sorted(reached.items()):
        if len(several) > 1:
            yield f"listeners: the user {name} is in groups that reach sockets of {', '.join(sorted(several))}"


def _members(gid: int, everybody: list[pwd.struct_passwd]) -> set[str]:
    try:
        named = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        named = set()
    # Root and the daemon itself reach every socket anyway.
    mighty = {user.pw_name for user in everybody if user.pw_uid in (0, os.geteuid())}
    return (named | {user.pw_name for user in everybody if user.pw_gid == gid}) - mighty


def _gid(group: str | int) -> int | None:
    """A number needs no name on this machine."""
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
