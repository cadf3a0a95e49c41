"""Only root and the daemon's user may write files that affect decisions.

Every folder above a file counts as much as the file: whoever may rename one of them can substitute another file.
Source: cases LOC-01, LOC-02.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kblockd.paths.walk import Step, steps_to

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Unsafe(Exception):
    """Somebody else may write a trusted path; the message names the path, its owner or mode, and the command to fix
    it."""

    def __init__(self, path: Path, message: str, next_step: str) -> None:
        super().__init__(f"{path}: {message}; {next_step}")
        self.path = path
        self.message = message
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Writers:
    """Users who may own trusted files, and their private groups.

    Group write access is refused unless the group is known to contain only the owner (the private group that many
    systems give each user, with a umask of 002). ``read_only_passes``: on a read-only mount owner and mode do not
    matter.
    """

    uids: frozenset[int]
    gids: frozenset[int] = frozenset()
    read_only_passes: bool = True

    @classmethod
    def of(
        cls, users: Iterable[int], *, shared: Collection[int] = (), environment: Mapping[str, str] = os.environ
    ) -> Writers:
        """Root and ``users`` (uids). ``shared``: gids given to callers, which are therefore not private.

        A systemd unit may make the whole system read-only for its own process (ProtectSystem=strict) while others can
        still write, so under systemd (``INVOCATION_ID`` is set) a read-only mount proves nothing. Blocks.
        """
        uids = frozenset({0, *users})
        return cls(uids, _private_groups(uids) - frozenset(shared), "INVOCATION_ID" not in environment)

    def judge(self, steps: Sequence[Step], *, whole: bool = True) -> None:
        """Raises ``Unsafe`` for the first step that somebody else may write.

        A sticky folder (/tmp) passes on the way, because nobody can replace another user's files in it, but not as the
        last step, because anybody can add files. ``whole`` is False when the rest of the path does not exist yet.
        """
        for position, step in enumerate(steps, 1):
            self._judge(step, on_the_way=position < len(steps) or not whole)

    def judge_path(self, path: Path) -> None:
        """As ``judge``, for a path that may not exist yet; raises ``Unsafe`` or ``OSError``. Blocks."""
        steps, whole = steps_to(path)
        self.judge(steps, whole=whole)

    def _judge(self, step: Step, *, on_the_way: bool) -> None:
        if step.read_only and self.read_only_passes:
            return
        if step.uid not in self.uids:
            who = " or ".join(f"uid {uid}" for uid in sorted(self.uids))
            option = "-h " if stat.S_ISLNK(step.mode) else ""
            fix = f"chown {option}{max(self.uids)} {step.path}"
            raise Unsafe(step.path, f"belongs to uid {step.uid}, not to {who}", fix)
        if stat.S_ISLNK(step.mode) or (on_the_way and stat.S_ISDIR(step.mode) and step.mode & stat.S_ISVTX):
            return
        writable = step.mode & _OTHERS
        if step.gid in self.gids and not step.acl:
            writable &= ~stat.S_IWGRP
        if writable:
            mode = f"mode {stat.S_IMODE(step.mode):04o}, uid {step.uid}, gid {step.gid}"
            raise Unsafe(step.path, f"others may write to it ({mode})", f"chmod go-w {step.path}")


def _private_groups(uids: frozenset[int]) -> frozenset[int]:
    """The primary groups of these users in which the user database shows nobody else."""
    everybody = pwd.getpwall()
    private = set()
    for uid in uids:
        try:
            user = pwd.getpwuid(uid)
            group = grp.getgrgid(user.pw_gid)
        except KeyError:
            continue
        others = any(account.pw_gid == user.pw_gid and account.pw_uid != uid for account in everybody)
        if not others and set(group.gr_mem) <= {user.pw_name}:
            private.add(user.pw_gid)
    return frozenset(private)
