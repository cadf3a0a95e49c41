"""The floors: what the disk, gRPC and the upstream do without kblockd, in the same run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import httpx2
import uvloop
from grpc import aio

from tests.bench import load, rpc
from tests.bench.action import NOTE
from tests.bench.figures import Figures, Meters
from tests.bench.servers import Server

_BODY: Final = b"n" * 1500


def fdatasyncs(folder: Path, seconds: float) -> float:
    """Raw fdatasyncs of 2 KB per second on the file system of the ledger."""
    path = folder / "floor"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            os.write(descriptor, b"x" * 2048)
            os.fdatasync(descriptor)
            done += 1
    finally:
        os.close(descriptor)
        path.unlink()
    return done / seconds


def echoes(server: Server, callers: int, seconds: float) -> Figures:
    """1.5 KB there and back through grpc.aio."""

    async def run() -> load.Seen:
        async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            method: Any = channel.unary_unary(rpc.ECHO)

            async def once(_: str) -> str:
                await method(_BODY)
                return ""

            return await load.callers(callers, seconds, "echo", once)

    figures = Figures(callers)
    with Meters(upstream=[server.pid], load=[os.getpid()]).measuring(figures):
        figures.seen = uvloop.run(run())
    return figures


def bare(server: Server, callers: int, seconds: float) -> Figures:
    """Effects at the upstream without kblockd, by the HTTP client that kblockd uses, connections kept."""

    async def run() -> load.Seen:
        async with httpx2.AsyncClient(trust_env=False) as client:

            async def once(item: str) -> str:
                answer = await client.post(f"{server.url}/effects", json={"item": item, "note": NOTE})
                return "" if answer.status_code == 200 else str(answer.status_code)

            return await load.callers(callers, seconds, f"bare{callers}", once)

    figures = Figures(callers)
    with Meters(upstream=[server.pid], load=[os.getpid()]).measuring(figures):
        figures.seen = uvloop.run(run())
    return figures
