"""The upstream of the measurements, but for effects that are never answered: items that begin with ``stall``.

``python -m tests.soak.upstream PORT_FILE``
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench import servers
from tests.bench.upstream import Connection


class Stalling(Connection):
    """Keeps silent over some effects."""

    def _answer(self, verb: bytes, path: str, body: bytes) -> Any:
        answer = super()._answer(verb, path, body)
        return None if verb == b"POST" and b'"stall' in body else answer

    def _send(self, answer: Any) -> None:
        if answer is not None:
            super()._send(answer)


async def start() -> int:
    """Listens; answers the port."""
    server = await asyncio.get_running_loop().create_server(Stalling, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    servers.serve(start)
