"""A request that the kernel still holds when nobody waits for its answer any more never arrives.

It was handed over in time and never acknowledged: the kernel would send it whenever the network is back, long after the
call was called lost and its absence was proved.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import uvloop

from kblockd.upstream.adapter import Outcome, Reply, Sent, ToolCall
from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.connection import IdleConnections
from kblockd.upstream.exchange import Guard, HttpOrigin
from kblockd.upstream.meter import Meter
from kblockd.upstream.tls import make_context
from kblockd.upstream.wire import connect
from tests.security.upstream.certificates import Certificate
from tests.unit.upstream.descriptors import descriptors_left
from tests.unit.upstream.network import DistantPeer
from tests.unit.upstream.plugin import call, guarded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_ATTACH_FILTER and /proc/net/tcp are Linux's")
Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS: Final[dict[str, Run]] = {"asyncio": asyncio.run, "uvloop": uvloop.run}
_TOO_MUCH: Final = 16 << 20  # bytes: more than a socket takes


class Upstream:
    """A peer that has served one call, and the guard that keeps the connection to it."""

    def __init__(self, peer: DistantPeer, guard: Guard) -> None:
        self.peer = peer
        self.guard = guard

    async def effect(self, given: ToolCall) -> Outcome:
        """How the plugin behaves: one marked request."""
        exchange = self.guard.exchange(given.deadline)
        exchange.mark()
        try:
            reply = await exchange.send("POST", b"/effect", [], b"{}")
            return Outcome(Sent.ANSWERED, {"status": reply.status})
        finally:
            await exchange.close()

    async def ask(self, content: bytes) -> Reply:
        """One exchange, closed afterwards."""
        exchange = self.guard.exchange(time.monotonic() + 20.0)
        try:
            return await exchange.send("POST", b"/effect", [], content)
        finally:
            await exchange.close()


@contextlib.asynccontextmanager
async def upstream(scheme: str, folder: Path) -> AsyncIterator[Upstream]:
    """Its connection does not grow old, and the clock of its exchanges stands still: a slow machine spends the seconds
    where they are meant."""
    shown = Certificate(folder, "localhost")
    began = time.monotonic()

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with DistantPeer.serve(shown.context if scheme == "https" else None) as peer, asyncio.timeout(60):
        connect = AddressGuard([ipaddress.ip_network("127.0.0.0/8")], resolve=here).connect
        origin, context = HttpOrigin(scheme, "localhost", peer.port), make_context(str(shown.ca_file))
        guard = Guard(origin, connect, context, 1 << 20, clock=lambda: began, idle=IdleConnections(lambda: began))
        made = Upstream(peer, guard)
        assert (await made.ask(b"")).status == 200
        yield made
        assert peer.connected == 1, "the request went over another connection than the one whose network was away"
        guard.close()


async def deadline_passes(made: Upstream) -> None:
    """The call is lost at its deadline; its plugin may wait on for a late answer."""
    outcome = await guarded(made.effect).invoke(call(1.0))
    assert outcome.sent is Sent.LOST


async def waiter_goes(made: Upstream) -> None:
    """Whoever called is cancelled, as at a shutdown."""
    waiter = asyncio.create_task(guarded(made.effect).invoke(call()))
    await made.peer.until_held()
    await _cancelled(waiter)


async def exchange_is_closed(made: Upstream) -> None:
    """Whoever made the request gives it up, without a wrapper around it."""
    asking = asyncio.create_task(made.ask(b"{}"))
    await made.peer.until_held()
    await _cancelled(asking)


async def write_is_late(made: Upstream) -> None:
    """The kernel has taken a part of it, and whoever wrote it does nothing more."""
    connection = made.guard.idle.take()
    assert connection is not None
    meter = Meter(time.monotonic() + 0.5, 0.0, 0)
    headers = [(b"Host", b"localhost"), (b"Content-Length", b"%d" % _TOO_MUCH)]
    with pytest.raises(httpx2.WriteTimeout):
        await connection.ask(meter, "POST", b"/effect", headers, b"x" * _TOO_MUCH)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", [deadline_passes, waiter_goes, exchange_is_closed, write_is_late])
def test_r462_what_the_kernel_still_holds_at_the_end_never_arrives(
    tmp_path: Path, end: Callable[[Upstream], Awaitable[None]], scheme: str, run: Run
) -> None:
    """R462, C2: however the wait for it ended, not a byte of the request arrives once the network is back."""

    async def story() -> None:
        async with upstream(scheme, tmp_path) as made:
            made.peer.away()
            await end(made)
            made.peer.back()
            await made.peer.until_settled()
            assert bytes(made.peer.received[:64]) == b""

    run(story())


_KILLED: Final = """
import asyncio, sys
from kblockd.upstream.connection import Connection
from kblockd.upstream.meter import Meter
from kblockd.upstream.wire import connect
async def main():
    connection = Connection(await connect("127.0.0.1", int(sys.argv[1]), 20.0))
    for method in (b"GET", b"POST"):
        await connection.ask(Meter(1e12, 1e12, 1000), method, b"/effect", [(b"Host", b"localhost")], b"")
        async for _ in connection.body(Meter(1e12, 1e12, 1000)): pass
        connection.renew()
        print(flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""


async def test_r462_what_the_kernel_still_holds_dies_with_the_process() -> None:
    """R462, C2: killed while its request was on the way; the next life looks for its effect, and nothing of the life
    before may come behind that."""
    async with DistantPeer.serve(None) as peer, asyncio.timeout(60):
        command = (sys.executable, "-c", _KILLED, str(peer.port))
        child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        await child.stdout.readline()
        peer.away()
        child.stdin.write(b"\n")
        await peer.until_held()
        child.kill()
        await child.wait()
        peer.back()
        await peer.until_settled()
        assert bytes(peer.received[:64]) == b""


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_rpc_09_what_was_acknowledged_still_gets_its_late_answer(tmp_path: Path, scheme: str, run: Run) -> None:
    """RPC-09: the request has arrived, so its connection stays: an answer after the end is evidence."""

    async def story() -> None:
        late: asyncio.Queue[Outcome] = asyncio.Queue()
        async with upstream(scheme, tmp_path) as made:
            adapter = guarded(made.effect, late_seconds=30.0)
            waiter = asyncio.create_task(adapter.invoke(call(), on_late=late.put_nowait))
            while not made.peer.received:
                await asyncio.sleep(0.01)
            await made.peer.until_held(False)
            await _cancelled(waiter)
            made.peer.answer()
            evidence = await asyncio.wait_for(late.get(), 10)
            assert (evidence.sent, evidence.output) == (Sent.ANSWERED, {"status": 200})

    run(story())


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_r462_nor_what_left_on_the_last_descriptor(run: Run) -> None:
    """R462, C2: that the end of a connection is a reset costs no descriptor: it may have taken the last one itself."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            (await connect("127.0.0.1", port, 10)).close()  # whatever the loop needs for its first one is there
            server.accept()[0].close()
            await asyncio.sleep(0.1)
            with descriptors_left(1):
                wire = await connect("127.0.0.1", port, 10)
            with server.accept()[0] as peer:
                with pytest.raises(httpx2.WriteTimeout):
                    await wire.write(b"x" * _TOO_MUCH, 0.3)
                peer.settimeout(30)
                with pytest.raises(ConnectionResetError):
                    await asyncio.to_thread(_read_to_the_end, peer)

    run(story())


def _read_to_the_end(peer: socket.socket) -> None:
    while peer.recv(1 << 20):
        pass
