"""The demo's payment provider: a real MCP server (official Python SDK) over Streamable HTTP, with faults on request.

Run it as a program::

    python tests/upstreams/payments.py --port 0 --state FILE --port-file FILE

Tools: ``refund``, ``get_order``, ``list_refunds``, ``find_refund``. It does not deduplicate by itself, so that a
double send shows as a second effect. Every effect is one fsynced line of FILE: an outside checker counts effects there,
and they survive a restart. ``/control`` on the same port takes the switches of ``Switches`` as JSON by POST and shows
them by GET. In tests, ``PaymentsServer.start`` runs it as a child process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import decimal
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

EFFECT_KEY = "dev.kblockd/effect-key"
REFUND_TEXT = "Refunds part or all of an order to the customer. Money moves at once."


@dataclass
class Switches:
    """Faults that can be asked for; seconds are seconds, ``*_once`` resets itself after use."""

    lose_answer_once: bool = False  # acts, then drops the connection without a byte of an answer
    stall_before_seconds: float = 0.0  # waits, then acts, even when the caller has gone
    stall_seconds: float = 0.0  # acts, then waits before it answers
    error_after_effect: bool = False  # acts, then answers HTTP 500
    is_error_after_effect: bool = False  # acts, then answers isError
    exit_after_effect: bool = False  # acts, then the whole process ends inside the tool
    refuse: bool = False  # answers isError and does not act
    swap_definition: str = ""  # appended to the description of refund
    list_lag_seconds: float = 0.0  # list_refunds shows a refund only when it is this old
    reject_authorization: str = ""  # when set, any other Authorization header is answered with 401


class Book:
    """Orders and refunds in one append-only JSON lines file. Every order exists, but those named ``NONE…``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refunds: list[dict[str, Any]] = read_effects(path)

    def add(self, refund: dict[str, Any]) -> None:
        """Durable when it returns."""
        line = json.dumps(refund, sort_keys=True).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.refunds.append(refund)

    def of(self, order_id: str) -> list[dict[str, Any]]:
        """Refunds of one order, oldest first."""
        return [refund for refund in self.refunds if refund["order_id"] == order_id]

    def order(self, order_id: str) -> dict[str, Any]:
        """An order of 100.00 EUR; its version grows with every refund."""
        refunds = self.of(order_id)
        total = sum((decimal.Decimal(refund["amount"]) for refund in refunds), decimal.Decimal("0.00"))
        status = "paid" if not refunds else "refunded" if total >= 100 else "partially_refunded"
        exists = not order_id.startswith("NONE")
        return {
            "order_id": order_id,
            "exists": exists,
            "version": 1 + len(refunds),
            "status": status if exists else "unknown",
            "amount": "100.00" if exists else "0.00",
            "currency": "EUR",
            "refunded": f"{total:.2f}",
        }


def read_effects(state: Path) -> list[dict[str, Any]]:
    """The refunds that a state file holds, oldest first; a torn last line is no refund."""
    if not state.exists():
        return []
    whole = state.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


class PaymentsServer:
    """The server as a child process, for tests; ``start`` is a context manager that ends it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.state = folder / f"{name}.jsonl"
        self._port_file = folder / f"{name}.port"
        self._log = folder / f"{name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, name: str = "payments") -> Iterator[PaymentsServer]:
        """Runs it on a free port of 127.0.0.1; the state stays in ``folder``."""
        server = cls(folder, name)
        server.run()
        try:
            yield server
        finally:
            server.kill()

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def run(self) -> None:
        """Starts the process (again, on the port it had) and waits until it listens; raises RuntimeError."""
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, __file__, "--port", str(self.port)]
        command += ["--state", str(self.state), "--port-file", str(self._port_file)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while not self._port_file.exists():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"the payments server did not start, see {self._log}")
            time.sleep(0.02)
        self.port = int(self._port_file.read_text())

    def kill(self) -> None:
        """SIGKILL; what was acknowledged is in the state file."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def control(self, **switches: Any) -> dict[str, Any]:
        """Sets switches and answers all of them; see ``Switches``."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/control",
            data=json.dumps(switches).encode() if switches else None,
            headers={"content-type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def effects(self) -> list[dict[str, Any]]:
        """Refunds that really happened, read from the state file and not from the server."""
        return read_effects(self.state)


def build(book: Book, switches: Switches) -> Any:
    """The MCP server with its four tools, and the control path, as an ASGI application."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("payments", version="3.2.0", log_level="WARNING", warn_on_duplicate_tools=False)
    add_refund(server, book, switches)
    add_reads(server, book, switches)
    add_control(server, book, switches)
    return Faults(server.streamable_http_app(), switches)


def add_refund(server: Any, book: Book, switches: Switches) -> None:
    """The one tool that acts. Adding it again replaces it: the description follows ``swap_definition``."""
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
    from pydantic import BaseModel

    class Refund(BaseModel):
        refund_id: str
        order_id: str
        amount: str
        currency: str
        status: str

    def act(order_id: str, amount: str, currency: str, effect_key: str) -> Refund:
        refund_id = f"rf_{len(book.refunds) + 1:06d}"
        row = {"refund_id": refund_id, "order_id": order_id, "amount": amount, "currency": currency}
        book.add({**row, "effect_key": effect_key, "at": time.time()})
        return Refund(**row, status="succeeded")

    async def refund(order_id: str, amount: str, currency: str, ctx: Context) -> Refund:
        if switches.refuse:
            raise ToolError("the order cannot be refunded")
        effect_key = str((ctx.request_context.meta or {}).get(EFFECT_KEY, ""))

        async def later() -> Refund:
            await asyncio.sleep(switches.stall_before_seconds)
            return act(order_id, amount, currency, effect_key)

        done = await asyncio.shield(asyncio.ensure_future(later()))
        if switches.exit_after_effect:
            os._exit(3)
        if switches.is_error_after_effect:
            raise ToolError("the ledger of the bank did not answer")
        await asyncio.sleep(switches.stall_seconds)
        return done

    refund.__annotations__ |= {"ctx": Context, "return": Refund}
    server.add_tool(
        refund,
        title="Refund an order",
        description=(REFUND_TEXT + " " + switches.swap_definition).strip(),
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False),
        structured_output=True,
    )


def add_reads(server: Any, book: Book, switches: Switches) -> None:
    """The authoritative reads."""
    from mcp_types import ToolAnnotations
    from pydantic import BaseModel

    class Order(BaseModel):
        order_id: str
        exists: bool
        version: int
        status: str
        amount: str
        currency: str
        refunded: str

    class Row(BaseModel):
        refund_id: str
        amount: str
        currency: str
        effect_key: str

    class Refunds(BaseModel):
        refunds: list[Row]

    class Found(BaseModel):
        found: bool
        refund_id: str | None = None
        order_id: str | None = None
        amount: str | None = None
        currency: str | None = None

    def get_order(order_id: str) -> Order:
        """Reads an order."""
        return Order(**book.order(order_id))

    def list_refunds(order_id: str) -> Refunds:
        """Lists the refunds of an order, oldest first."""
        visible = time.time() - switches.list_lag_seconds
        return Refunds(refunds=[Row(**row) for row in book.of(order_id) if row["at"] <= visible])

    def find_refund(key: str) -> Found:
        """Finds the refund that was made under an effect key; strongly consistent."""
        for row in book.refunds:
            if key and row["effect_key"] == key:
                return Found(
                    found=True, **{name: row[name] for name in ("refund_id", "order_id", "amount", "currency")}
                )
        return Found(found=False)

    for function, kind in ((get_order, Order), (list_refunds, Refunds), (find_refund, Found)):
        function.__annotations__["return"] = kind
        server.add_tool(function, annotations=ToolAnnotations(read_only_hint=True), structured_output=True)


def add_control(server: Any, book: Book, switches: Switches) -> None:
    """``/control``: POST merges switches, GET shows them."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    known = {field.name for field in fields(Switches)}

    async def control(request: Request) -> JSONResponse:
        if request.method == "POST":
            asked = await request.json()
            unknown = sorted(set(asked) - known)
            if unknown:
                return JSONResponse({"error": f"no such switch: {', '.join(unknown)}"}, status_code=400)
            for name, value in asked.items():
                setattr(switches, name, value)
            if "swap_definition" in asked:
                server.remove_tool("refund")
                add_refund(server, book, switches)
        return JSONResponse(asdict(switches))

    server.custom_route("/control", methods=["GET", "POST"])(control)


class Faults:
    """Around the MCP application: swallows an answer and drops the connection, or turns it into HTTP 500."""

    def __init__(self, app: Any, switches: Switches) -> None:
        self._app = app
        self._switches = switches

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/mcp" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        wanted = self._switches.reject_authorization.encode()
        if wanted and dict(scope["headers"]).get(b"authorization") != wanted:
            await answer(send, 401)
            return
        first = await receive()
        fault = self._fault(first)
        await self._app(scope, replayed(first, receive), swallow if fault else send)
        if fault == "500":
            await answer(send, 500)
        elif fault:
            LIVE[scope["client"]].abort()

    def _fault(self, message: Any) -> str:
        """Decided before the tool runs; only a whole body is looked at, which is all that the adapter sends."""
        try:
            body = json.loads(message.get("body") or b"null")
        except ValueError:
            return ""
        if not isinstance(body, dict) or body.get("method") != "tools/call" or body["params"]["name"] != "refund":
            return ""
        if self._switches.lose_answer_once:
            self._switches.lose_answer_once = False
            return "drop"
        return "500" if self._switches.error_after_effect else ""


LIVE: dict[tuple[str, int], asyncio.Transport] = {}


async def swallow(_: Any) -> None:
    """An ASGI ``send`` that sends nothing."""


async def answer(send: Any, status: int) -> None:
    """A plain answer without MCP in it."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"upstream fault"})


def replayed(first: Any, receive: Any) -> Any:
    """``receive`` with one message put back."""
    waiting = [first]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again


def serve(port: int, state: Path, port_file: Path) -> None:
    """Listens on 127.0.0.1, writes the port, and runs until killed."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Tracked(H11Protocol):
        """Remembers its transport, so that a fault can drop the connection under an application."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            LIVE[transport.get_extra_info("peername")] = transport

        def connection_lost(self, exc: Exception | None) -> None:
            LIVE.pop(self.client, None)  # type: ignore[arg-type]  # a connection that was made has a peer
            super().connection_lost(exc)

    switches = Switches()
    config = uvicorn.Config(build(Book(state), switches), http=Tracked, log_level="warning", lifespan="on")
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    fresh = port_file.with_suffix(".tmp")
    fresh.write_text(str(listener.getsockname()[1]))
    fresh.replace(port_file)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="The demo's payment provider: an MCP server with faults on request.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--state", type=Path, required=True, help="append-only file of effects")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written once it listens")
    asked = parser.parse_args()
    serve(asked.port, asked.state, asked.port_file)


if __name__ == "__main__":
    main()
