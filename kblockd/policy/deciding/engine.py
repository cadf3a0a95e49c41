"""The PolicyEngine protocol: one question, one decision, and an error for everything that is not one.

Fail closed: undefined, error, time-out and wrong type all raise ``PolicyFailure`` with a reason that says which; a
caller that gets no ``Decision`` must deny (R109; kblockd/policy/README.md#the-protocol). POLICY_ERROR, POLICY_TYPE and
POLICY_UNDEFINED are what the policy in force makes of this input; POLICY_DOWN and POLICY_TIMEOUT are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kblockd.domain.errors import Reason
from kblockd.domain.values import value_type


@value_type(frozen=True, slots=True)
class Decision:
    """What an engine answered. ``result`` is the value of the entry point's ``result`` rule, already type-checked."""

    entrypoint: str
    result: Mapping[str, Any]
    engine: str
    revision: str
    decision_id: str
    input_sha256: str
    microseconds: int


@value_type(frozen=True, slots=True)
class PolicyStatus:
    """``ready`` is False until a revision is loaded; ``last_error`` names why the newest one was refused."""

    engine: str
    revision: str
    ready: bool
    last_error: str = ""


class PolicyFailure(Exception):
    """No decision, which means deny. ``reason`` is POLICY_UNDEFINED, POLICY_TYPE, POLICY_ERROR, POLICY_TIMEOUT or
    POLICY_DOWN; ``revision`` is empty where nothing was in force, or nothing was asked."""

    def __init__(self, reason: Reason, message: str, *, entrypoint: str = "", revision: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.entrypoint = entrypoint
        self.revision = revision

    @property
    def passing(self) -> bool:
        """Whether the identical question may be answered another time: the engine failed, or nothing is in force yet.

        What a policy makes of an input stays the same until one of them changes (AGT-08).
        """
        if self.reason is Reason.POLICY_UNDEFINED:
            return not self.revision
        return self.reason in (Reason.POLICY_DOWN, Reason.POLICY_TIMEOUT)


class PolicyEngine(Protocol):
    """An engine evaluates; loading belongs to the engines that load."""

    def status(self) -> PolicyStatus:
        """Never blocks."""
        ...

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """Asks ``entrypoint`` (such as ``kblock/decision/result``); raises ``PolicyFailure``, nothing else."""
        ...

    async def close(self) -> None:
        """Ends children and connections. Idempotent."""
        ...
