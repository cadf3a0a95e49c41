"""What one agent can do to the others, for some seconds: ``python -m tests.soak.attacks NAME TARGET SECONDS``.

In a process of its own, over raw gRPC: a hostile client keeps to no library. It prints one JSON object: how many calls
ended with which code, and the message of one of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2

from kblockd._proto.kblock.v1 import execution_service_pb2 as executions
from kblockd._proto.kblock.v1 import types_pb2
from tests.bench.action import ENVIRONMENT, OPERATION

EXECUTE: Final = "/kblock.v1.ExecutionService/Execute"
LIST: Final = "/kblock.v1.ExecutionService/List"
WATCH: Final = "/kblock.v1.ExecutionService/Watch"
READ: Final = "/kblock.v1.LedgerService/Read"
HEALTH: Final = "/grpc.health.v1.Health/Check"
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MEMO: Final = "bench.memo"
STALLING: Final = "stall"  # an item whose effect the upstream does not answer (tests.soak.upstream)
CALL_SECONDS: Final = 60.0
_OPTIONS: Final = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


@dataclass(slots=True)
class Attack:
    """Calls over some connections until the time is over; ``ended`` counts the codes."""

    target: str
    seconds: float
    ended: Counter[str] = field(default_factory=Counter)
    words: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.asynccontextmanager
    async def connected(self, number: int) -> AsyncIterator[list[aio.Channel]]:
        """That many connections."""
        async with contextlib.AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(aio.insecure_channel(self.target, options=_OPTIONS))
                for _ in range(number)
            ]

    async def flood(self, callers: int, connections: int, method: str, request: Callable[[int], bytes]) -> None:
        """So many callers, each one call after the other."""
        async with self.connected(connections) as channels:
            ends = time.monotonic() + self.seconds

            async def caller(channel: aio.Channel) -> None:
                call = channel.unary_unary(method)
                while time.monotonic() < ends:
                    await self.one(call(request(next(self.numbers)), timeout=CALL_SECONDS))

            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.seconds + 1.0):
                    await asyncio.gather(*(caller(channels[n % connections]) for n in range(callers)))

    async def one(self, call: Awaitable[Any]) -> None:
        """Counts how it ends."""
        try:
            await call
        except aio.AioRpcError as error:
            name = error.code().name
            self.words.setdefault(name, str(error.details())[:200])
        else:
            name = "OK"
        self.ended[name] += 1


def envelope(number: int, operation: str = OPERATION, environment: str = ENVIRONMENT, **more: Any) -> bytes:
    """A call of its own; ``more`` are fields of the envelope."""
    item = str(more.pop("item", f"hostile-{time.monotonic_ns()}-{number}"))
    arguments = json.dumps({"item": item, **more.pop("arguments", {})}).encode()
    message = types_pb2.Envelope(
        schema_version="kblock.envelope/1",
        environment=environment,
        operation=operation,
        target=types_pb2.Target(id=item),
        caller_key=f"key-{item}",
        arguments_json=arguments,
        **more,
    )
    return executions.ExecutionServiceExecuteRequest(envelope=message).SerializeToString()


def _wide(size: int) -> bytes:
    """An object of one long key of wide characters over many members."""
    members = ",".join(f'"k{n}":0' for n in range(size // 16))
    key = "\U0001f600" * (size // 8)
    return f'{{"{key}":{{{members}}}}}'.encode()


async def agt_01(attack: Attack) -> None:
    """Preconditions of 400 KB with one long key of wide characters over many members."""
    junk = _wide(400_000)
    await attack.flood(4, 2, EXECUTE, lambda n: envelope(n, preconditions_json=junk))


async def agt_02(attack: Attack) -> None:
    """4 MiB of unknown fields."""
    fields = b"".join((b"\xfa\x3f\x02ab",) * (800 * 1024))  # field 1023, two bytes
    await attack.flood(4, 2, EXECUTE, lambda n: fields)


async def agt_03(attack: Attack) -> None:
    """Three connections with 2 MiB of pre- and postconditions each."""
    junk = json.dumps({f"k{n}": n for n in range(60_000)}).encode()
    await attack.flood(12, 3, EXECUTE, lambda n: envelope(n, preconditions_json=junk, postconditions_json=junk))


async def agt_04(attack: Attack) -> None:
    """800 calls in flight that the policy denies."""
    await attack.flood(800, 8, EXECUTE, lambda n: envelope(n, environment="elsewhere"))


async def agt_05(attack: Attack) -> None:
    """300 waiting requests of 4 MiB."""
    junk = b"x" * (4_000_000)
    await attack.flood(300, 8, EXECUTE, lambda n: envelope(n, arguments_sha256=junk.decode()))


async def agt_06(attack: Attack) -> None:
    """Calls that are refused at the door, in a loop."""
    await attack.flood(32, 4, "/kblock.v1.PolicyService/Evaluate", lambda n: b"")


async def agt_07(attack: Attack) -> None:
    """Lists of a state that nothing has."""
    request = executions.ExecutionServiceListRequest(states=["held"], page_size=200).SerializeToString()
    await attack.flood(64, 4, LIST, lambda n: request)


async def agt_08(attack: Attack) -> None:
    """An argument of a type that a rule fails on."""
    await attack.flood(64, 4, EXECUTE, lambda n: envelope(n, operation=MEMO, arguments={"memo": 7}))


async def allowed(attack: Attack) -> None:
    """What is allowed, as fast as it goes."""
    await attack.flood(64, 4, EXECUTE, envelope)


async def stalling(attack: Attack) -> None:
    """Effects that the upstream does not answer: they hold its connections, and places among the executions."""
    await attack.flood(200, 4, EXECUTE, lambda n: envelope(n, item=f"{STALLING}-{time.monotonic_ns()}-{n}"))


async def listing(attack: Attack) -> None:
    """All of its executions, page by page."""
    request = executions.ExecutionServiceListRequest(page_size=200).SerializeToString()
    await attack.flood(64, 4, LIST, lambda n: request)


async def watching(attack: Attack) -> None:
    """Thousands of watches of an execution that waits, opened again when they are refused."""
    item = f"{STALLING}-watched-{time.monotonic_ns()}"
    async with attack.connected(8) as channels:
        started = asyncio.ensure_future(attack.one(channels[0].unary_unary(EXECUTE)(envelope(0, item=item))))
        await asyncio.sleep(0.5)
        key = executions.ExecutionServiceGetRequest(caller_key=f"key-{item}").SerializeToString()
        got = await channels[0].unary_unary("/kblock.v1.ExecutionService/Get")(key)
        execution_id = executions.ExecutionServiceGetResponse.FromString(got).outcome.execution_id
        request = executions.ExecutionServiceWatchRequest(execution_id=execution_id).SerializeToString()
        ends = time.monotonic() + attack.seconds

        async def watch(channel: aio.Channel) -> None:
            while time.monotonic() < ends:
                await attack.one(_drained(channel.unary_stream(WATCH)(request, timeout=CALL_SECONDS)))

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(attack.seconds):
                await asyncio.gather(*(watch(channels[n % 8]) for n in range(1000)))
        started.cancel()


async def health(attack: Attack) -> None:
    """Checks of health with a megabyte of fields that nobody knows: a service of gRPC's own, which asks no policy."""
    fields = b"".join((b"\xfa\x3f\x02ab",) * (200 * 1024))  # field 1023, two bytes
    await attack.flood(32, 4, HEALTH, lambda n: fields)


async def reflection(attack: Attack) -> None:
    """Questions without an end on many streams, opened again when they are refused."""
    about = reflection_pb2.ServerReflectionRequest(file_containing_symbol="kblock.v1.ExecutionService")
    questions = itertools.repeat(about.SerializeToString())
    ends = time.monotonic() + attack.seconds

    async def talk(channel: aio.Channel) -> None:
        while time.monotonic() < ends:
            await attack.one(_drained(channel.stream_stream(REFLECTION)(questions, timeout=CALL_SECONDS)))

    async with attack.connected(4) as channels:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(attack.seconds):
                await asyncio.gather(*(talk(channels[n % 4]) for n in range(64)))


async def _drained(stream: Any) -> None:
    async for _ in stream:
        pass


ATTACKS: Final = {
    "AGT-01": agt_01,
    "AGT-02": agt_02,
    "AGT-03": agt_03,
    "AGT-04": agt_04,
    "AGT-05": agt_05,
    "AGT-06": agt_06,
    "AGT-07": agt_07,
    "AGT-08": agt_08,
    "allowed": allowed,
    "stalling": stalling,
    "listing": listing,
    "watching": watching,
    "health": health,
    "reflection": reflection,
}


def main() -> None:
    """Command line."""
    name, target, seconds = sys.argv[1:]
    attack = Attack(target, float(seconds))
    uvloop.run(ATTACKS[name](attack))
    print(json.dumps({"ended": attack.ended, "words": attack.words}))


if __name__ == "__main__":
    main()
