"""Calls as other clients make them: metadata and bytes that ours would not send, and a proxy that gives up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from kblockd.client import Answer, Call, rpcs
from tests.harness import Site

_OPTIONS = (("grpc.default_authority", "localhost"),)


def send(
    site: Site,
    call: Call,
    *,
    metadata: Sequence[tuple[str, str]] = (),
    change: Callable[[bytes], bytes] = lambda request: request,
) -> Answer:
    """The agent's call; ``change`` has the last word on its bytes. Raises ``grpc.RpcError``."""
    exchange = rpcs.execute(call, wait=30.0, margin=30.0)
    with grpc.insecure_channel(f"unix:{site.socket('agent')}", options=_OPTIONS) as channel:
        method: Any = channel.unary_unary(exchange.path, response_deserializer=exchange.response.FromString)
        request = change(exchange.request.SerializeToString())
        return exchange.read(method(request, metadata=metadata, timeout=60.0))


class Proxy:
    """Between one client and a socket, until it ``cuts``."""

    def __init__(self, listener: socket.socket, target: Path) -> None:
        self._listener, self._target = listener, target
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    @contextlib.contextmanager
    def to(cls, target: Path, at: Path) -> Iterator[Proxy]:
        """Listens at a path of its own."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(at))
            listener.listen()
            proxy = cls(listener, target)
            yield proxy
            proxy.cut()

    def cut(self) -> None:
        """As an idle time-out does it: both connections are gone, and nobody is told why."""
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
