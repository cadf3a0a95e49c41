"""A payment provider whose treatment of each order stands in the order's name, and whose log outlives every daemon.

Plain HTTP: ``POST /refunds`` acts, ``GET /orders/ORDER`` and ``GET /lookup?key=KEY`` read. Each call is a line of the
log, and each effect another, written before anything is answered: a checker counts there. Nothing is deduplicated, so
that a second call shows as a second effect. ``python -m tests.crash.load.provider LOG PORT_FILE``
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

AMOUNT = "100.00"
EFFECT_KEY = "x-effect-key"
SLOW_SECONDS = 0.25
TARDY_SECONDS = 1.2  # longer than a caller waits for its answer
FINAL_SECONDS = 1.7  # what was asked for longer ago than this is never acted upon any more


class Fate(enum.StrEnum):
    """What becomes of the refunds of an order; a name is ``FATE-anything``."""

    OK = "ok"
    SLOW = "slow"  # acts after a while, and answers
    TARDY = "tardy"  # acts when nobody waits any more
    AFTER = "after"  # acts; the connection ends without an answer
    HALF = "half"  # acts; the connection ends within the answer
    FAULT = "fault"  # acts, and answers 500
    BEFORE = "before"  # the first call is lost before the effect
    NEVER = "never"  # every call is lost before the effect
    BUSY = "busy"  # the first call is rejected, provably without an effect
    REJECTED = "rejected"  # every call is
    WRONG = "wrong"  # acts with another amount, and answers well
    IDLE = "idle"  # answers well, and does nothing


class Book:
    """Calls and effects, in memory and in the log."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab", buffering=0)
        self._calls: Counter[str] = Counter()
        self._effects: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._keys: set[str] = set()

    def called(self, order: str, key: str) -> int:
        """How often by now, this time included."""
        self._calls[key] += 1
        self._write({"event": "call", "order_id": order, "key": key})
        return self._calls[key]

    def act(self, order: str, amount: str, key: str) -> None:
        """The effect."""
        line = {"event": "effect", "order_id": order, "amount": amount, "currency": "EUR", "key": key}
        self._write(line)
        self._effects[order].append(line)
        self._keys.add(key)

    def found(self, key: str) -> bool:
        """Whether there is an effect under the key: strongly consistent."""
        return key in self._keys

    def order(self, order: str) -> dict[str, Any]:
        """One of 100.00 EUR, with its refunds."""
        refunds = [{"amount": one["amount"], "currency": one["currency"]} for one in self._effects[order]]
        return {
            "order_id": order,
            "exists": True,
            "version": 1 + len(refunds),
            "status": "refunded" if refunds else "paid",
            "amount": AMOUNT,
            "currency": "EUR",
            "refunded": refunds[0]["amount"] if refunds else "0.00",
            "refunds": refunds,
            "done": len(refunds),
            "wrong": any(one["amount"] != AMOUNT for one in refunds),
        }

    def _write(self, line: dict[str, Any]) -> None:
        self._log.write(json.dumps({**line, "at": time.time()}).encode() + b"\n")


class Door:
    """The connections."""

    def __init__(self, book: Book) -> None:
        self._book = book

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, until a fate or the other side ends it."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = (line.partition(":") for line in head[1:])
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = head[0].split(" ", 2)
                goes_on = True
                if method == "POST":
                    answer, goes_on = await self._refund(json.loads(body), headers.get(EFFECT_KEY, ""))
                else:
                    answer = self._read(target)
                writer.write(answer)
                await writer.drain()
                if not goes_on:
                    break
        writer.transport.abort()

    def _read(self, target: str) -> bytes:
        url = urlsplit(target)
        if url.path == "/lookup":
            return reply(200, {"found": self._book.found(parse_qs(url.query)["key"][0])})
        return reply(200, self._book.order(url.path.rpartition("/")[2]))

    async def _refund(self, asked: dict[str, str], key: str) -> tuple[bytes, bool]:
        """What is answered, and whether the connection goes on."""
        order = asked["order_id"]
        fate = Fate(order.partition("-")[0])
        first = self._book.called(order, key) == 1
        if fate is Fate.REJECTED or (fate is Fate.BUSY and first):
            return reply(422, {"ok": False, "refused": "closed"}), True
        if fate is Fate.NEVER or (fate is Fate.BEFORE and first):
            return b"", False
        if fate is not Fate.IDLE and not await self._act(fate, asked, key):
            return b"", False
        answer = reply(201, {"ok": True})
        if fate is Fate.HALF:
            return answer[:-5], False
        if fate is Fate.FAULT:
            return reply(500, {"ok": False}), True
        return (b"", False) if fate is Fate.AFTER else (answer, True)

    async def _act(self, fate: Fate, asked: dict[str, str], key: str) -> bool:
        """After the fate's pause; whether it was not too late."""
        began = time.monotonic()
        pauses = {Fate.SLOW: SLOW_SECONDS, Fate.TARDY: TARDY_SECONDS}
        await asyncio.sleep(pauses.get(fate, 0.0))
        if time.monotonic() - began > FINAL_SECONDS:
            return False
        self._book.act(asked["order_id"], "1.00" if fate is Fate.WRONG else asked["amount"], key)
        return True


def reply(status: int, document: dict[str, Any]) -> bytes:
    """JSON over HTTP/1.1."""
    body = json.dumps(document).encode()
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )


class Provider:
    """The program as a child process."""

    def __init__(self, log: Path, port: int) -> None:
        self._log = log
        self.url = f"http://127.0.0.1:{port}"

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[Provider]:
        """Runs while the block does; the log stays in ``folder``."""
        log, port_file = folder / "provider.jsonl", folder / "provider.port"
        command = [sys.executable, "-m", "tests.crash.load.provider", str(log), str(port_file)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
            try:
                limit = time.monotonic() + 60
                while not port_file.exists():
                    if process.poll() is not None or time.monotonic() > limit:
                        raise RuntimeError("the provider did not start")
                    time.sleep(0.02)
                yield cls(log, int(port_file.read_text()))
            finally:
                process.kill()

    def lines(self) -> list[dict[str, Any]]:
        """The log so far, oldest first."""
        return [json.loads(line) for line in self._log.read_bytes().splitlines()]

    def amounts(self, order: str) -> list[str]:
        """Of the effects that the log has on the order."""
        return [line["amount"] for line in self.lines() if (line["event"], line["order_id"]) == ("effect", order)]


async def main(log: Path, port_file: Path) -> None:
    """Listens on a free port of 127.0.0.1 until it is killed."""
    server = await asyncio.start_server(Door(Book(log)).serve, "127.0.0.1", 0, backlog=512)
    fresh = port_file.with_suffix(".tmp")
    fresh.write_text(str(server.sockets[0].getsockname()[1]))
    fresh.replace(port_file)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
