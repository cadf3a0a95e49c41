"""Maps the methods of the proto files to the services; a method missing from the class is a defect."""

from __future__ import annotations

import inspect
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor

from kblockd.rpc.interceptors import Calls


def handler(service: object, descriptor: ServiceDescriptor, calls: Calls) -> grpc.GenericRpcHandler:
    """Every RPC of the service, wrapped by ``calls``; raises AttributeError if one is not implemented.

    ``calls`` parses requests, not gRPC, so that bytes that do not parse are reported as the caller's error. It also
    reads them: on the wire a unary request equals a stream of one, and only a streaming handler runs before the request
    has been received.
    """
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
    for method in descriptor.methods:
        request_type = message_factory.GetMessageClass(method.input_type)
        act = getattr(service, method.name)
        path = f"/{descriptor.full_name}/{method.name}"
        if method.server_streaming:
            methods[method.name] = grpc.stream_stream_rpc_method_handler(calls.stream(path, request_type, act))
        else:
            methods[method.name] = grpc.stream_unary_rpc_method_handler(calls.unary(path, request_type, act))
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def plain_handler(service: object, descriptor: ServiceDescriptor, calls: Calls) -> grpc.GenericRpcHandler:
    """A service that gRPC provides, such as health, wrapped the same way but without asking the policy."""
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in descriptor.methods:
        request_type = message_factory.GetMessageClass(method.input_type)
        act = getattr(service, method.name)
        if method.client_streaming:
            methods[method.name] = grpc.stream_stream_rpc_method_handler(calls.bidirectional(request_type, act))
        elif method.server_streaming:
            serialize = message_factory.GetMessageClass(method.output_type).SerializeToString
            watch = calls.watch(request_type, act)
            methods[method.name] = grpc.stream_stream_rpc_method_handler(watch, response_serializer=serialize)
        elif inspect.iscoroutinefunction(act):  # otherwise the library does not implement it
            methods[method.name] = grpc.stream_unary_rpc_method_handler(calls.check(request_type, act))
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)
