"""Failpoints as a parameter: named places where a test kills, fails or stalls the daemon.

A point is ``STAGE:before``, ``STAGE:after``, or inside a commit ``STAGE:written|flushed|headed``
(kblockd/execution/README.md#failpoints). Outside development no point does anything.
"""

from __future__ import annotations

from typing import Protocol


class Failpoints(Protocol):
    """What stages and the committer call."""

    async def reach(self, point: str) -> None:
        """On the loop; may kill the process, raise ``FailpointError`` or never return."""
        ...

    def reach_blocking(self, point: str) -> None:
        """In the committer thread; the same."""
        ...


class FailpointError(Exception):
    """What ``=error`` raises."""


class NoFailpoints:
    """The production implementation."""

    async def reach(self, point: str) -> None:
        """Nothing."""

    def reach_blocking(self, point: str) -> None:
        """Nothing."""
