"""RpcServer: one grpc.aio server per listener, because a server does not reveal which of its sockets a call used.

Start it only while the store's lock is held: a second server would bind a live socket without an error
(kblockd/rpc/README.md#who-calls).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio
from grpc_health.v1 import health, health_pb2  # type: ignore[import-untyped]  # ships no types
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]  # ships no types

from kblockd._proto.kblock.v1 import (
    approval_service_pb2,
    execution_service_pb2,
    ledger_service_pb2,
    policy_service_pb2,
)
from kblockd.admission import Admission
from kblockd.domain import canonical
from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy.deciding import PolicyEngine
from kblockd.rpc.answers import MAX_ANSWER
from kblockd.rpc.binding import handler, plain_handler
from kblockd.rpc.identity import Authorizer, Listener, UnixListener
from kblockd.rpc.interceptors import Calls, InFlight
from kblockd.rpc.services.approvals import ApprovalService
from kblockd.rpc.services.executions import ExecutionService
from kblockd.rpc.services.facades import ApprovalsApi, CandidatesApi, ExecutionsApi, PoliciesApi
from kblockd.rpc.services.ledger import LedgerReader, LedgerService
from kblockd.rpc.services.policy import PolicyService
from kblockd.rpc.sockets import PrivateSocket, stage
from kblockd.telemetry.tracing import Tracing

MAX_REQUEST: Final = 4 << 20
MAX_CONCURRENT: Final = 2048  # calls per listener, including waiting ones; gRPC answers others RESOURCE_EXHAUSTED
MAX_CONNECTIONS: Final = 256  # per listener, so that one client cannot use up all file descriptors
UNREAD: Final = 65_536  # bytes of a request that gRPC buffers before the call is admitted
END_SECONDS: Final = 2.0  # time for calls to end after they were told to, before gRPC cuts them off
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", MAX_ANSWER),
    ("grpc.so_reuseport", 0),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    # gRPC would otherwise buffer megabytes of unread data per call from a fast sender, and every Unix socket is fast.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", UNREAD),
)
_log = logging.getLogger(__name__)


def _service(file: object, name: str) -> ServiceDescriptor:
    descriptor: ServiceDescriptor = file.DESCRIPTOR.services_by_name[name]  # type: ignore[attr-defined]  # a pb2 module
    return descriptor


EXECUTION: Final = _service(execution_service_pb2, "ExecutionService")
APPROVAL: Final = _service(approval_service_pb2, "ApprovalService")
LEDGER: Final = _service(ledger_service_pb2, "LedgerService")
POLICY: Final = _service(policy_service_pb2, "PolicyService")
HEALTH: Final = _service(health_pb2, "Health")
REFLECTION: Final = _service(reflection_pb2, "ServerReflection")
SERVICES: Final = (EXECUTION, APPROVAL, LEDGER, POLICY)


@dataclass(slots=True)
class _ServingListener:
    """A listener with its server."""

    server: aio.Server
    target: str
    socket: PrivateSocket | None


class RpcServer:
    """The daemon's gRPC server. ``start`` once, ``stop`` once; ``targets`` are the addresses for clients."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        executions: ExecutionsApi,
        approvals: ApprovalsApi,
        ledger: LedgerReader,
        engine: PolicyEngine,
        clock: Clock,
        ids: Ids,
        tracing: Tracing,
        *,
        policies: PoliciesApi,
        candidates: CandidatesApi,
        admission: Admission,
        max_arguments: int = canonical.MAX_BYTES,
    ) -> None:
        self._listeners = tuple(listeners)
        self._services = (
            (ExecutionService(executions, max_arguments=max_arguments), EXECUTION),
            (ApprovalService(approvals), APPROVAL),
            (LedgerService(ledger, executions, admission), LEDGER),
            (PolicyService(policies, candidates), POLICY),
        )
        self._authorizer = Authorizer(engine, executions, clock)
        self._ids = ids
        self._tracing = tracing
        self._in_flight = InFlight()
        self._admission = admission
        self._health = health.aio.HealthServicer()
        self._open: list[_ServingListener] = []

    @property
    def targets(self) -> tuple[str, ...]:
        """``unix:/path`` or ``host:port``, in the order of the listeners; empty before the start."""
        return tuple(serving.target for serving in self._open)

    async def start(self) -> None:
        """Opens all listeners or none; raises ``UnsafeSocket``, or RuntimeError if a port is in use.

        Answers NOT_SERVING until ``set_serving(True)``.
        """
        await self.set_serving(False)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._close, 0)
            for listener in self._listeners:
                self._open.append(await self._listen(listener))
            undo.pop_all()

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of grpc.health.v1 for every service and overall."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *(descriptor.full_name for descriptor in SERVICES)):
            await self._health.set(name, status)

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls; ends streams at once and other calls within the grace, each with a status (LED-13, RPC-03,
        RPC-04).

        Returns when no handler is running. Idempotent; a second call with a shorter grace shortens the first.
        """
        self._in_flight.stopping = True
        await self._health.enter_graceful_shutdown()
        self._in_flight.end(streams_only=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._in_flight.idle()
        self._in_flight.end(streams_only=False)
        await self._close(END_SECONDS)

    async def _close(self, grace_seconds: float) -> None:
        closing, self._open = self._open, []
        for listener in closing:
            if listener.socket is not None:
                listener.socket.remove()
        await asyncio.gather(*(listener.server.stop(grace_seconds) for listener in closing))
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._in_flight.idle()

    async def _listen(self, listener: Listener) -> _ServingListener:
        server = self._server(listener)
        if isinstance(listener, UnixListener):
            return await self._listen_unix(server, listener)
        _log.warning(
            "DEVELOPMENT ONLY: development.insecure_loopback is on: every user of this machine is %r on %s. "
            "Never run it where an effect matters.",
            listener.principal.id,
            listener.host,
        )
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        port = server.add_insecure_port(f"{host}:{listener.port}")
        await _started(server)
        return _ServingListener(server, f"{host}:{port}", None)

    async def _listen_unix(self, server: aio.Server, listener: UnixListener) -> _ServingListener:
        socket = stage(listener.path, listener.mode, listener.gid)
        try:
            server.add_insecure_port(f"unix:{socket.staged}")
            socket.publish()
            await _started(server)
        except BaseException:
            socket.remove()
            raise
        return _ServingListener(server, f"unix:{listener.path}", socket)

    def _server(self, listener: Listener) -> aio.Server:
        server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CONCURRENT)
        calls = Calls(listener.principal, self._authorizer, self._tracing, self._ids, self._in_flight, self._admission)
        server.add_generic_rpc_handlers(tuple(handler(service, file, calls) for service, file in self._services))
        names = [*(descriptor.full_name for descriptor in SERVICES), HEALTH.full_name, REFLECTION.full_name]
        plain = ((self._health, HEALTH), (reflection.aio.ReflectionServicer(names), REFLECTION))
        server.add_generic_rpc_handlers(tuple(plain_handler(service, file, calls) for service, file in plain))
        return server


async def _started(server: aio.Server) -> None:
    """Starts the server. An interrupted start of gRPC cannot be undone and would block the process's exit for ever, so
    a cancelled caller waits for the start and then stops the server."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except BaseException:
        await asyncio.gather(starting, return_exceptions=True)
        await server.stop(0)
        raise
