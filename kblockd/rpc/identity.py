"""Stage 0: who calls, and whether that principal may call the method at all.

The principal comes from the listener that the call came in by, never from the request (R010, R011, APR-08). The
policy is asked once for each principal, method and revision; what it answers is remembered (design section 5).
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kblockd.domain.clock import Clock, rfc3339
from kblockd.domain.errors import KblockError, PermissionDenied, Reason
from kblockd.domain.principal import Principal, View
from kblockd.policy.engine import PolicyEngine, PolicyFailure
from kblockd.policy.entrypoints import AUTHZ, Authz, authz
from kblockd.rpc.status import policy_unavailable
from kblockd.telemetry.recorder import Trace

MAX_REMEMBERED: Final = 4096
_NOT_ASKED: Final[dict[str, Any]] = dict.fromkeys(
    ("envelope", "action", "args", "contract", "binding", "approval", "snapshot", "read", "outcome", "finding")
)


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A Unix socket and the principal that may open it; ``mode`` such as 0o600."""

    path: Path
    principal: Principal
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class LoopbackListener:
    """Development only: everybody on this machine is the principal. ``port`` 0 takes a free one."""

    principal: Principal
    host: str = "127.0.0.1"
    port: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for anything but a literal loopback address."""
        if not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError(f"development.insecure_loopback: {self.host} is not a loopback address; use 127.0.0.1")


Listener = UnixListener | LoopbackListener


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, what rows it may see, and the trace of the call."""

    principal: Principal
    view: View
    trace: Trace


class Refusals(Protocol):
    """Where a refusal is recorded (``kblockd.execution.service.Executions``)."""

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        """Records call.refused."""
        ...


class Authorizer:
    """Asks ``kblock/authz/result``; deny and failure are both refusals, with different reasons."""

    def __init__(self, engine: PolicyEngine, refusals: Refusals, clock: Clock) -> None:
        self._engine = engine
        self._refusals = refusals
        self._clock = clock
        self._remembered: OrderedDict[tuple[Principal, str, str], Authz] = OrderedDict()

    async def authorize(self, principal: Principal, method: str) -> View:
        """The filter for rows; raises ``PermissionDenied`` (recorded) or ``Unavailable`` with the policy's reason."""
        answer = await self._answer(principal, method)
        if answer.allow:
            return View(frozenset(answer.tenants), frozenset(answer.agents))
        codes = ", ".join(reason.code for reason in answer.reasons) or "no reason given"
        error = PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"the policy does not let {principal.id} call {method} ({codes}). Nothing was executed or consumed.",
            next_step="use a principal that may, or ask the operator to change kblock.authz",
        )
        await self._refusals.refused(principal, method, error)
        raise error

    async def _answer(self, principal: Principal, method: str) -> Authz:
        status = self._engine.status()
        key = (principal, method, status.revision)
        if status.ready and (known := self._remembered.get(key)) is not None:
            self._remembered.move_to_end(key)
            return known
        try:
            decision = await self._engine.evaluate(AUTHZ, self._document(principal, method))
        except PolicyFailure as failure:
            raise policy_unavailable(failure) from failure
        answer = authz(decision.result)
        self._remembered[(principal, method, decision.revision)] = answer
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return answer

    def _document(self, principal: Principal, method: str) -> dict[str, Any]:
        return {
            "v": "kblockd.policy/1",
            "now": rfc3339(self._clock.now()),
            "principal": principal.document(),
            "method": method,
            **_NOT_ASKED,
        }
