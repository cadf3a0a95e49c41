"""HTTP/1.1 as bytes: what came, and what goes out exactly as written."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """Its body as JSON; an empty object without one."""
        return json.loads(self.body) if self.body else {}


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; Content-Length is added."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    body: bytes = b""


def said(status: int, document: Any, **headers: str) -> Reply:
    """JSON; an underscore in a header's name is a dash."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {**JSON, **named}, json.dumps(document).encode())


def read(reader: io.BufferedIOBase) -> Request | None:
    """The next request, or None at the end; raises ValueError for what is no HTTP, EOFError for half a request."""
    line = reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (row := _line(reader)) != "":
        name, _, value = row.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding", "") == "chunked":
        body = b""
        while size := int(_line(reader), 16):
            body += _whole(reader, size)
            _line(reader)
        _line(reader)
        return Request(method, target, headers, body)
    return Request(method, target, headers, _whole(reader, int(headers.get("content-length", "0"))))


def waiting(stream: socket.socket) -> Request | None:
    """The request that lies unread in the socket, left there; None at the end of the connection."""
    while True:
        data = stream.recv(1 << 20, socket.MSG_PEEK)
        with contextlib.suppress(EOFError, ValueError):
            return read(io.BytesIO(data))
        time.sleep(0.001)


def head(reply: Reply) -> bytes:
    """Status line and headers."""
    rows = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    length = "" if reply.status in (204, 304) else f"content-length: {len(reply.body)}\r\n"
    return f"HTTP/1.1 {reply.status} X\r\n{rows}{length}\r\n".encode("latin-1")


def whole(reply: Reply) -> bytes:
    """The answer as it should be."""
    return head(reply) + reply.body


def chunk(data: bytes) -> bytes:
    """One piece of a body of unknown length."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(document: Any) -> bytes:
    """One server-sent event as a chunk."""
    return chunk(f"data: {json.dumps(document)}\n\n".encode())


def reset(connection: socket.socket) -> None:
    """Ends with RST instead of FIN, at once, although somebody may still read from it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.close(connection.detach())


def echo(request: Request) -> str:
    """The Authorization header in every form in which a careless server might repeat it."""
    value = request.headers.get("authorization", "")
    token = value.rpartition(" ")[2]
    with contextlib.suppress(ValueError):
        token += " " + base64.b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
    return " | ".join(
        (value, token, quote(value, safe=""), base64.b64encode(value.encode()).decode(), json.dumps({"a": value}))
    )


def _line(reader: io.BufferedIOBase) -> str:
    line = reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode("latin-1").rstrip("\r\n")


def _whole(reader: io.BufferedIOBase, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise EOFError
    return data
