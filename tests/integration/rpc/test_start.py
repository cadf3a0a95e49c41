"""A start that is cut short, at whatever it waits for, leaves neither a server nor a socket behind."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from tests.unit.rpc.fakes import Daemon

MANY_TURNS = 100


async def test_rpc_03_a_start_that_is_cancelled_stops_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC waits for the end of a server that nobody stopped when it is collected: for ever."""
    made: list[aio.Server] = []
    server = aio.server

    def remembered(**options: Any) -> aio.Server:
        made.append(server(**options))
        return made[-1]

    monkeypatch.setattr(aio, "server", remembered)
    try:
        for turns in range(MANY_TURNS):
            if await started(Daemon(tmp_path), turns):
                break
            timed_out = [await one.wait_for_termination(5) for one in made]
            assert not any(timed_out), f"a server still runs after {turns} turns"
            assert not list(tmp_path.iterdir())
        assert len(made) > turns > 1
    finally:
        for one in made:
            await one.stop(0)


async def started(daemon: Daemon, turns: int) -> bool:
    """Whether it serves after so many turns of the loop; if not, its start is cancelled there."""
    starting = asyncio.create_task(daemon.server.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    if starting.done():
        await daemon.server.stop(0)
        return True
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    return False
