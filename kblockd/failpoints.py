"""Real failpoints, for ``development.failpoints: true`` only.

``KBLOCKD_FAILPOINT=consume:before=kill@2;classify:after=error`` kills the process the second time it reaches the
consumption and fails the classification once. Actions: kill (SIGKILL of this process), error (``FailpointError``),
stall (blocks for ever). ``@n`` selects the n-th time the point is reached, independently of other rules; default 1.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from dataclasses import dataclass

from kblockd.domain.failpoints import FailpointError
from kblockd.domain.stages import Stage

_MOMENT = "before|after|written|flushed|headed"
_STAGE = "|".join(stage.label for stage in Stage)  # a mistyped name would be a test that tests nothing
_RULE = re.compile(rf"(?P<point>(?:{_STAGE}):(?:{_MOMENT}))=(?P<action>kill|error|stall)(?:@(?P<nth>[1-9][0-9]*))?")


@dataclass(slots=True)
class _Rule:
    point: str
    action: str
    remaining: int


class EnvironmentFailpoints:
    """Rules from ``KBLOCKD_FAILPOINT``; raises ValueError naming a rule that does not parse."""

    def __init__(self, text: str) -> None:
        self._rules = [self._parse(rule) for rule in text.split(";") if rule]

    @staticmethod
    def _parse(rule: str) -> _Rule:
        match = _RULE.fullmatch(rule)
        if not match:
            raise ValueError(
                f"KBLOCKD_FAILPOINT: {rule!r} is not STAGE:{_MOMENT}=kill|error|stall[@n]; stages: {_STAGE}"
            )
        return _Rule(match["point"], match["action"], int(match["nth"] or 1))

    async def reach(self, point: str) -> None:
        """On the loop: a stall awaits for ever, so the rest of the daemon keeps running."""
        if self._due(point) == "stall":
            await asyncio.Event().wait()

    def reach_blocking(self, point: str) -> None:
        """In a thread: a stall blocks it."""
        if self._due(point) == "stall":
            while True:
                time.sleep(3600)

    def _due(self, point: str) -> str:
        for action in self._actions(point):
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if action == "error":
                raise FailpointError(point)
            return action
        return ""

    def _actions(self, point: str) -> list[str]:
        rules = [rule for rule in self._rules if rule.point == point]
        for rule in rules:
            rule.remaining -= 1
        return [rule.action for rule in rules if rule.remaining == 0]
