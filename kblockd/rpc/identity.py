"""Stage 0: who calls, and whether that principal may call the method at all.

The principal comes from the listener that the call came in by, never from the request (R010, R011, APR-08). The
policy is asked once for each principal, method and revision, however many call at once; what it answers is recorded,
then remembered (design section 5).
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
from kblockd.policy import entrypoints
from kblockd.policy.engine import Decision, PolicyEngine, PolicyFailure
from kblockd.policy.entrypoints import AUTHZ, Authz, authz
from kblockd.rpc.status import policy_unavailable
from kblockd.telemetry.recorder import Trace

MAX_REMEMBERED: Final = 4096
_NOT_ASKED: Final[dict[str, Any]] = dict.fromkeys(
    ("envelope", "action", "args", "contract", "binding", "approval", "snapshot", "read", "outcome", "finding")
)


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A Unix socket and the principal that may open it; ``mode`` such as 0o600, ``gid`` the group it is given to (None:
    the daemon's own)."""

    path: Path
    principal: Principal
    mode: int = 0o600
    gid: int | None = None


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
_Key = tuple[Principal, str, str]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, what rows it may see, and the trace of the call."""

    principal: Principal
    view: View
    trace: Trace


class OnRecord(Protocol):
    """Where stage 0 leaves its traces (``kblockd.execution.service.Executions``)."""

    async def authorized(
        self, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
    ) -> bool:
        """Records authz.decided; False when it could not."""
        ...

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        """Records call.refused."""
        ...


class Authorizer:
    """Asks ``kblock/authz/result``; deny and failure are both refusals, with different reasons."""

    def __init__(self, engine: PolicyEngine, record: OnRecord, clock: Clock) -> None:
        self._engine = engine
        self._record = record
        self._clock = clock
        self._remembered: OrderedDict[_Key, Authz] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[Authz]] = {}

    async def authorize(self, principal: Principal, method: str) -> View:
        """The filter for rows; raises ``PermissionDenied`` (recorded) or ``Unavailable`` with the policy's reason."""
        answer = await self._answer(principal, method)
        if answer.allow:
            return View(frozenset(answer.tenants), frozenset(answer.agents))
        codes = ", ".join(entrypoints.codes(answer.reasons))[:500] or "no reason given"
        error = PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"the policy does not let {principal.id} call {method} ({codes}). Nothing was executed or consumed.",
            next_step="use a principal that may, or ask the operator to change kblock.authz",
        )
        await self._record.refused(principal, method, error)
        raise error

    async def _answer(self, principal: Principal, method: str) -> Authz:
        status = self._engine.status()
        key = (principal, method, status.revision)
        if status.ready and (known := self._remembered.get(key)) is not None:
            self._remembered.move_to_end(key)
            return known
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(principal, method))
            asking.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(asking)  # a caller that goes away takes nobody's answer with it

    def _ended(self, key: _Key, ended: asyncio.Task[Authz]) -> None:
        del self._asking[key]
        if not ended.cancelled():
            ended.exception()  # whoever still waits raises it

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
