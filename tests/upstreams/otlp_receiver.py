"""A collector: a real OTLP gRPC server on loopback that keeps the bytes as they came."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass(frozen=True, slots=True)
class Received:
    """One span: ids in lowercase hex, times in nanoseconds, attributes as Python values."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    client: bool
    remote_parent: bool
    error: bool
    attributes: dict[str, object]
    resource: dict[str, object]


class OtlpReceiver:
    """``with OtlpReceiver() as receiver``; ``endpoint`` is for ``telemetry.otlp``. Port 0 unless one is given."""

    def __init__(self, port: int = 0) -> None:
        self._raw: list[bytes] = []
        self._arrived = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2), options=(("grpc.so_reuseport", 0),))
        handler: grpc.RpcMethodHandler[bytes, ExportTraceServiceResponse] = grpc.unary_unary_rpc_method_handler(
            self._export, response_serializer=ExportTraceServiceResponse.SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": handler}),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> OtlpReceiver:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    def _export(self, raw: bytes, _: grpc.ServicerContext) -> ExportTraceServiceResponse:
        with self._arrived:
            self._raw.append(raw)
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    def raw(self) -> bytes:
        """Every byte of every request so far."""
        with self._arrived:
            return b"\n".join(self._raw)

    def spans(self) -> list[Received]:
        """Every span so far, in the order of arrival."""
        with self._arrived:
            requests = [ExportTraceServiceRequest.FromString(raw) for raw in self._raw]
        found = []
        for request in requests:
            for group in request.resource_spans:
                resource = _values(group.resource.attributes)
                found += [_received(span, resource) for scope in group.scope_spans for span in scope.spans]
        return found

    def wait_for(self, count: int, timeout_seconds: float = 30) -> list[Received]:
        """Waits until ``count`` spans are here; raises AssertionError with what came instead."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.spans()) >= count, timeout_seconds)
        spans = self.spans()
        assert len(spans) >= count, f"{len(spans)} of {count} spans came: {[span.name for span in spans]}"
        return spans


def _received(span: Span, resource: dict[str, object]) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        client=span.kind == Span.SPAN_KIND_CLIENT,
        remote_parent=bool(span.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK),
        error=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(pairs: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for pair in pairs:  # type: ignore[attr-defined]
        assert isinstance(pair, KeyValue)
        found[pair.key] = getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
    return found
