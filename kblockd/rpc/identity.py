"""Stage 0: the calling principal, and whether it may call the method.

The listener determines the principal, never the request (R010, R011, APR-08). The policy is asked once per principal,
method and revision, even for concurrent calls; its answer is recorded, then cached
(kblockd/policy/README.md#the-five-questions).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kblockd.domain.clock import Clock, rfc3339
from kblockd.domain.errors import KblockError, PermissionDenied, Reason
from kblockd.domain.principal import Principal, View
from kblockd.policy.deciding import Decision, PolicyEngine, PolicyFailure, entrypoints
from kblockd.policy.deciding.entrypoints import AUTHZ, Authz, authz
from kblockd.rpc.status import policy_unavailable
from kblockd.telemetry.recorder import Trace

MAX_CACHED: Final = 4096
_ABSENT_INPUTS: Final[dict[str, Any]] = dict.fromkeys(
    ("envelope", "action", "args", "contract", "binding", "approval", "snapshot", "read", "outcome", "finding")
)


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A Unix socket and its principal; ``mode`` such as 0o600, ``gid`` the socket's group (None: the daemon's own)."""

    path: Path
    principal: Principal
    mode: int = 0o600
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class LoopbackListener:
    """Development only: everybody on this machine acts as the principal. ``port`` 0 selects a free one."""

    principal: Principal
    host: str = "127.0.0.1"
    port: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for anything but a literal loopback address."""
        if not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError(f"development.insecure_loopback: {self.host} is not a loopback address; use 127.0.0.1")


Listener = UnixListener | LoopbackListener
_Key = tuple[Principal, str, str]


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling principal, the rows it may see, and the trace of the call."""

    principal: Principal
    view: View
    trace: Trace


class AuthorizationRecorder(Protocol):
    """Records the results of stage 0; implemented by ``kblockd.execution.service.Executions``."""

    async def authorized(
        self, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
    ) -> bool:
        """Records authz.decided; False if it could not."""
        ...

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        """Records call.refused."""
        ...


class Authorizer:
    """Asks ``kblock/authz/result``; denials and failures are both refusals, with different reasons."""

    def __init__(self, engine: PolicyEngine, record: AuthorizationRecorder, clock: Clock) -> None:
        self._engine = engine
        self._record = record
        self._clock = clock
        self._cached: OrderedDict[_Key, Authz] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[Authz]] = {}

    async def authorize(self, principal: Principal, method: str) -> View:
        """The row filter; raises ``PermissionDenied`` (recorded) or ``Unavailable`` with the policy's reason."""
        answer = await self._answer(principal, method)
        if answer.allow:
            return View(frozenset(answer.tenants), frozenset(answer.agents))
        codes = ", ".join(entrypoints.codes(answer.reasons))[:500] or "no reason given"
        error = PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"the policy does not allow {principal.id} to call {method} ({codes}). Nothing was executed or consumed.",
            next_step="use a principal that is allowed to, or ask the operator to change kblock.authz",
        )
        await self._record.refused(principal, method, error)
        raise error

    async def _answer(self, principal: Principal, method: str) -> Authz:
        status = self._engine.status()
        key = (principal, method, status.revision)
        if status.ready and (known := self._cached.get(key)) is not None:
            self._cached.move_to_end(key)
            return known
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(principal, method))
            asking.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(asking)  # a cancelled caller must not cancel the others' query

    def _ended(self, key: _Key, ended: asyncio.Task[Authz]) -> None:
        del self._asking[key]
        if not ended.cancelled():
            ended.exception()  # marks it as retrieved; callers that still wait raise it

    async def _ask(self, principal: Principal, method: str) -> Authz:
        document = self._document(principal, method)
        try:
            decision = await self._engine.evaluate(AUTHZ, document)
        except PolicyFailure as failure:
            raise policy_unavailable(failure) from failure
        on_record = await self._record.authorized(principal, method, document, decision)
        answer = authz(decision.result)
        if not on_record:
            return answer
        self._cached[(principal, method, decision.revision)] = answer
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return answer

    def _document(self, principal: Principal, method: str) -> dict[str, Any]:
        return {
            "v": "kblockd.policy/1",
            "now": rfc3339(self._clock.now()),
            "principal": principal.document(),
            "method": method,
            **_ABSENT_INPUTS,
        }
