"""A fast upstream for measurements: one asyncio process, JSON over HTTP/1.1 with keep-alive, effects in memory.

    POST /effects          acts, answers {"id": …}
    GET  /effects/{item}   what a verification reads
    GET  /count            how many effects there are in all

``python -m tests.bench.upstream PORT_FILE``
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import uvloop


class Effects(asyncio.Protocol):
    """One connection; requests may come in pieces."""

    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # uvloop's is no subclass of asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(head.split(b" ", 2), body)

    def _answer(self, line: list[bytes], body: bytes) -> None:
        path = line[1].decode()
        if line[0] == b"POST":
            item = json.loads(body)["item"]
            self.done[item] += 1
            answer = {"id": f"e-{item}", "done": self.done[item]}
        elif path == "/count":
            answer = {"count": sum(self.done.values()), "most": max(self.done.values(), default=0)}
        else:
            answer = {"done": self.done[path.rpartition("/")[2]]}
        data = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self._transport.write(head.encode() + data)


async def main(port_file: Path) -> None:
    """Serves until it is killed."""
    server = await asyncio.get_running_loop().create_server(Effects, "127.0.0.1", 0)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
