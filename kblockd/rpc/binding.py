"""The methods of the proto files onto the services: a method of the file without one in the class is a defect."""

from __future__ import annotations

import inspect
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor

from kblockd.rpc.interceptors import Calls


def handler(service: object, descriptor: ServiceDescriptor, calls: Calls) -> grpc.GenericRpcHandler:
    """Every RPC of the service, surrounded by ``calls``; raises AttributeError when one is not implemented.

    Requests are parsed by ``calls``, not by gRPC, so that bytes that do not parse are the caller's fault. They are
    read by it as well: on the wire a method with one request is the same as one with a stream of them, and only the
    latter's handler runs before the request has been received.
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
    """A service of gRPC's own, such as health, in the same surroundings but for the policy."""
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in descriptor.methods:
        request_type = message_factory.GetMessageClass(method.input_type)
        act = getattr(service, method.name)
        if method.client_streaming:
            methods[method.name] = grpc.stream_stream_rpc_method_handler(calls.talk(request_type, act))
        elif method.server_streaming:
            serialize = message_factory.GetMessageClass(method.output_type).SerializeToString
            watch = calls.watch(request_type, act)
            methods[method.name] = grpc.stream_stream_rpc_method_handler(watch, response_serializer=serialize)
        elif inspect.iscoroutinefunction(act):  # else the library does not offer it
            methods[method.name] = grpc.stream_unary_rpc_method_handler(calls.check(request_type, act))
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)
