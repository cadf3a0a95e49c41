"""Who may write a file that decides: root and the daemon's user, nobody else.

A folder counts as much as the file in it, and so does every folder above: whoever may rename one of them can put
another file in place. Source: issue "Who may write what decides"; cases LOC-01, LOC-02.
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
    """Somebody else may write what decides; the text names the path, its owner or mode, and the command to mend it."""

    def __init__(self, path: Path, message: str, next_step: str) -> None:
        super().__init__(f"{path}: {message}; {next_step}")
        self.path = path
        self.message = message
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Writers:
    """Users who may own what decides, and groups with nobody else in them.

    Write access for a group is refused unless the group is known to hold nobody but the owner (the private group that
    many systems give each user, with a umask of 002). ``read_only_passes``: on a read-only mount neither owner nor mode
    matters.
    """

    uids: frozenset[int]
    gids: frozenset[int] = frozenset()
    read_only_passes: bool = True

    @classmethod
    def of(
        cls, users: Iterable[int], *, shared: Collection[int] = (), environment: Mapping[str, str] = os.environ
    ) -> Writers:
        """Root and ``users`` (uids). ``shared``: gids that are handed out to callers, so private to nobody.

        A systemd unit makes the whole system read-only for its own process (ProtectSystem=strict) while others go on
        writing, so that under one (``INVOCATION_ID`` is set) a read-only mount proves nothing. Blocks.
        """
        uids = frozenset({0, *users})
        return cls(uids, _private_groups(uids) - frozenset(shared), "INVOCATION_ID" not in environment)

    def judge(self, steps: Sequence[Step], *, whole: bool = True) -> None:
        """Raises ``Unsafe`` for the first step that somebody else may write.

        A sticky folder (/tmp) on the way passes, because nobody can replace another's files in it; as the last step it
        does not, because anybody can add some. ``whole`` is False when the rest of the path does not exist yet.
        """
        for position, step in enumerate(steps, 1):
            self._judge(step, on_the_way=position < len(steps) or not whole)

    def judge_path(self, path: Path) -> None:
        """The same of what stands there now, or will; raises ``Unsafe`` or ``OSError``. Blocks."""
        steps, whole = steps_to(path)
        self.judge(steps, whole=whole)

    def _judge(self, step: Step, *, on_the_way: bool) -> None:
        if step.read_only and self.read_only_passes:
            return
        if step.uid not in self.uids:
            who = " or ".join(f"uid {uid}" for uid in sorted(self.uids))
            mend = f"chown {_option(step)}{max(self.uids)} {step.path}"
            raise Unsafe(step.path, f"belongs to uid {step.uid}, not to {who}", mend)
        if stat.S_ISLNK(step.mode) or (on_the_way and stat.S_ISDIR(step.mode) and step.mode & stat.S_ISVTX):
            return
        writable = step.mode & _OTHERS
        if step.gid in self.gids and not step.acl:
            writable &= ~stat.S_IWGRP
        if writable:
            mode = f"mode {stat.S_IMODE(step.mode):04o}, uid {step.uid}, gid {step.gid}"
            raise Unsafe(step.path, f"others may write to it ({mode})", f"chmod go-w {step.path}")


def _option(step: Step) -> str:
    return "-h " if stat.S_ISLNK(step.mode) else ""


def _private_groups(uids: frozenset[int]) -> frozenset[int]:
    """The primary groups of these users that the user database shows nobody else in."""
    everybody = pwd.getpwall()
    found = set()
    for uid in uids:
        try:
            user = pwd.getpwuid(uid)
            group = grp.getgrgid(user.pw_gid)
        except KeyError:
            continue
        others = any(one.pw_gid == user.pw_gid and one.pw_uid != uid for one in everybody)
        if not others and set(group.gr_mem) <= {user.pw_name}:
            found.add(user.pw_gid)
    return frozenset(found)
