"""The gRPC counterparts: an echo, which is a floor, and a collector that takes traces and forgets them.

``python -m tests.bench.rpc PORT_FILE``
"""

from __future__ import annotations

from typing import Any, Final

from grpc import aio, method_handlers_generic_handler, unary_unary_rpc_method_handler

from tests.bench import servers

ECHO: Final = "/bench.Echo/Echo"
_COLLECT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_KEPT: Final[list[aio.Server]] = []  # a server that nobody refers to stops


async def _echo(request: bytes, _: Any) -> bytes:
    return request


async def _collect(_: bytes, __: Any) -> bytes:
    return b""  # an empty ExportTraceServiceResponse


async def start() -> int:
    """Listens; answers the port."""
    server = aio.server()
    for path, function in ((ECHO, _echo), (_COLLECT, _collect)):
        _, service, method = path.split("/")
        handlers: dict[str, Any] = {method: unary_unary_rpc_method_handler(function)}
        server.add_generic_rpc_handlers((method_handlers_generic_handler(service, handlers),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _KEPT.append(server)
    return port


if __name__ == "__main__":
    servers.serve(start)
