"""Every status and every JSON-RPC code through the real adapters: the tables of ``proofs``, answer by answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from kblockd_mcp import classify
from kblockd_mcp.wire import CallNotes
from mcp_types import ErrorData

from kblockd.domain.contract import ActionContract, parse
from kblockd.domain.contract.errors import ToolErrors, faults
from kblockd.domain.states import BEFORE_EFFECT, ResultClass
from kblockd.execution.classify import classify_outcome
from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from kblockd.upstream.catalog import Upstream, load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from tests.harness import refund_contract
from tests.integration.hostile import proofs
from tests.integration.hostile.proofs import BODIES, CODES, STATUSES, SWITCHES, TEXTS, Words, of_http, of_mcp, of_rpc
from tests.upstreams.raw_mcp import DONE, TOOL

pytestmark = pytest.mark.timeout(300)
PROBLEM = "application/problem+json"
SHAPES: dict[str, dict[str, Any]] = {
    "http": {"in": "body", "media_type": PROBLEM, "has": "/code"},
    "mcp": {"in": "rpc_error", "has": "/data/code"},
}
CLASSES = {
    ResultClass.FAILED_BEFORE_SIDE_EFFECT: "before",
    ResultClass.UNKNOWN_OUTCOME: "unknown",
    ResultClass.COMPLETED_UNVERIFIED: "answered",
}
Answer = tuple[int, str, bytes]  # status, media type, body


@cache
def base(adapter: str, effect_free: bool) -> ActionContract:
    """Parsed once: the schema of the arguments takes most of it."""
    return parse(refund_contract({"tool": {"errors": SHAPES[adapter], "errors_are_effect_free": effect_free}}))


@cache
def contract(adapter: str, switch: str, code: int) -> ActionContract | None:
    """None where it does not load."""
    found = base(adapter, switch == "effect free")
    if switch not in ("listed", "in progress"):
        return found
    key = "rejected_before_work" if switch == "listed" else "in_progress"
    errors = ToolErrors.model_validate({**SHAPES[adapter], key: [code]}, strict=True)
    tool = found.tool.model_copy(update={"errors": errors})
    if list(faults(tool, stored=False)):
        return None
    return found.model_copy(update={"tool": tool})


def proved(outcome: Outcome, adapter: str, code: int) -> Words:
    """The row of the table; ``code`` is what the contract lists."""

    def word(switch: str) -> str:
        found = contract(adapter, switch, code)
        return "refused" if found is None else CLASSES[classify_outcome(outcome, found)]

    nothing, free, listed, progress = map(word, SWITCHES)
    return nothing, free, listed, progress


def check_effects(outcome: Outcome, adapter: str, code: int, *, own: bool) -> None:
    """With one attempt and with three: what answers in the tool's place lets it act each time. Where no absence was
    proved there is one call, and where one was, and the tool's own contract is true, no effect at all."""
    for switch, attempts in itertools.product(SWITCHES, (1, 3)):
        found = contract(adapter, switch, code)
        if found is None:
            continue
        calls, result = 0, ResultClass.FAILED_BEFORE_SIDE_EFFECT
        while calls < attempts and result in BEFORE_EFFECT:
            calls, result = calls + 1, classify_outcome(outcome, found)
        if not own:
            assert (calls, result in BEFORE_EFFECT) == (1, False), (switch, outcome)
        assert result in BEFORE_EFFECT or calls == 1


class Loopback:
    """Answers whatever is asked with ``answer``; a request that is not ``tools/call`` is answered well."""

    def __init__(self) -> None:
        self.answer: Callable[[Any], Answer] = lambda asked: (200, "application/json", b"{}")
        self.port = 0
        self.calls = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                ]
                asked = json.loads(await reader.readexactly(sum(lengths)) or b"{}")
                writer.write(_raw(*self._told(asked)))
                await writer.drain()
        writer.close()

    def _told(self, asked: Any) -> Answer:
        if asked.get("method") == "tools/list":
            result = {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            return 200, "application/json", _rpc(asked, result=result)
        self.calls += 1
        return self.answer(asked)


def _rpc(asked: Any, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **members}).encode()


def _raw(status: int, kind: str, body: bytes) -> bytes:
    bodiless = status < 200 or status in (204, 304)
    lines = f"HTTP/1.1 {status} Some\r\n" + (f"content-type: {kind}\r\n" if kind else "")
    length = "" if bodiless else f"content-length: {len(body)}\r\n"
    # An interim answer that nothing follows: the connection ends.
    end = b"HTTP/0.0\r\n\r\n" if status < 200 else b""
    return f"{lines}{length}\r\n".encode() + (b"" if bodiless else body) + end


@contextlib.asynccontextmanager
async def opened(adapter: str) -> AsyncIterator[tuple[Loopback, Upstream]]:
    """The installed plugin behind the wrapper, in front of the server."""
    made = Loopback()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    settings = {"tools": {"act": {"path": "/act"}}} if adapter == "http" else {"protocol": "2026-07-28"}
    config = UpstreamConfig.model_validate(
        {
            "adapter": adapter,
            "url": f"http://127.0.0.1:{made.port}/mcp",
            "allow_addresses": ["127.0.0.0/8"],
            "settings": settings,
        }
    )
    async with open_upstreams({"u": config}, load_plugins([adapter]), max_response_bytes=1 << 20) as upstreams:
        yield made, upstreams["u"]
    server.close()


async def invoked(upstream: Upstream) -> Outcome:
    call = ToolCall("act", {"n": 1}, "", "none", "", time.monotonic() + 30, None, {})
    return await upstream.write.invoke(call)


BODY: dict[str, tuple[str, bytes]] = {
    "own": (f"{PROBLEM}; charset=utf-8", b'{"code":"no_funds"}'),
    "gateway": ("application/json", b'{"message":"Forbidden","code":403}'),
    "page": ("text/html", b"<h1>Sorry</h1>"),
    "empty": ("", b""),
}


@pytest.mark.parametrize("body", BODIES)
async def test_ups_04_ups_05_ups_06_every_status_of_http(body: str) -> None:
    """R210, HTP-08: every status from 100 to 599, every switch, one attempt and three."""
    kind, data = BODY[body]
    async with opened("http") as (server, upstream):
        for status in STATUSES:
            server.answer = lambda asked, status=status: (status, kind, data)
            outcome = await invoked(upstream)
            assert proved(outcome, "http", status) == of_http(status, body), (status, outcome)
            if "answered" not in of_http(status, body):
                check_effects(outcome, "http", status, own=body == "own" and 400 <= status < 500)
        assert server.calls == len(STATUSES)


@pytest.mark.parametrize("body", BODIES[:3])
async def test_ups_03_ups_05_ups_06_every_status_around_an_mcp_call(body: str) -> None:
    """MCP-06: the same for the other adapter; an error without this call's id and shape is never the tool's."""

    def answer(asked: Any, status: int) -> Answer:
        error = {"code": -32602, "message": "Unknown tool: act", "data": {"code": "no_funds"}}
        if body == "own":
            return status, "application/json", _rpc(asked, error=error)
        return (status, *BODY[body])

    async with opened("mcp") as (server, upstream):
        for status in STATUSES:
            server.answer = lambda asked, status=status: answer(asked, status)
            outcome = await invoked(upstream)
            assert proved(outcome, "mcp", status) == of_mcp(status, body), (status, outcome)
            check_effects(outcome, "mcp", status, own=body == "own" and status < 500)
        assert server.calls == len(STATUSES)


def told(code: int, text: str, data: Any, *, own: bool = True) -> Outcome:
    """What the plugin makes of a JSON-RPC error; that the tool has acted or not changes no byte of it."""
    notes = CallNotes(status=200, content_type="application/json")
    return classify.outcome(
        classify.CallEvidence(1, notes, error=ErrorData(code=code, message=text, data=data), own=own)
    )


def test_ups_01_ups_02_every_code_of_json_rpc_with_every_text() -> None:
    """MCP-06: no text and no code proves anything; a declared shape does, whatever the text."""
    assert len(TEXTS) == len(set(TEXTS)) == 30
    for code in CODES:
        rows = {(proved(told(code, text, {"code": "x"}), "mcp", code)) for text in TEXTS}
        assert rows == {of_rpc(code)}, code
        for text in TEXTS:
            plain = told(code, text, None)
            assert set(proved(plain, "mcp", code)) <= {"unknown", "refused"}, (code, text)
            check_effects(plain, "mcp", code, own=False)


@pytest.mark.parametrize("acted", [True, False])
async def test_ups_01_ups_02_ups_03_the_codes_that_sdks_send_over_the_wire(acted: bool) -> None:
    """The same through the whole adapter: under this call's id it is an error of its shape, under none it is lost."""
    effects = 0

    def answer(asked: Any, code: int, text: str, **members: Any) -> Answer:
        nonlocal effects
        effects += acted
        error = {"code": code, "message": text, **members}
        return 200, "application/json", _rpc(asked, error=error)

    async with opened("mcp") as (server, upstream):
        for code, text in itertools.product((-32602, -32601, -32600, -32603, -32000, -32020, -32050, 0, 1), TEXTS):
            server.answer = lambda asked, code=code, text=text: answer(asked, code, text)
            outcome = await invoked(upstream)
            assert classify_outcome(outcome, contract("mcp", "effect free", 0) or refuse()) is (
                ResultClass.UNKNOWN_OUTCOME
            )
            check_effects(outcome, "mcp", code, own=False)
        assert effects == (server.calls if acted else 0)
        server.answer = lambda asked: (200, "application/json", _rpc({"id": None}, error={"code": -1, "message": ""}))
        assert (await invoked(upstream)).sent is Sent.LOST
        server.answer = lambda asked: (200, "application/json", _rpc(asked, result={**DONE, "resultType": "complete"}))
        assert replace(await invoked(upstream), output=None).sent is Sent.ANSWERED


def refuse() -> ActionContract:
    raise AssertionError("the contract does not load")


def test_the_tables_promise_nothing_false() -> None:
    """Only the tool's own error proves anything, and only where the contract says so."""
    for of, bodies in ((of_http, BODIES), (of_mcp, BODIES[:3])):
        for status, body in itertools.product(STATUSES, bodies):
            words = of(status, body)
            assert words[0] != "before"
            assert words[3] != "before"
            assert "before" not in words or (body == "own" and status < 500 and status not in (407, 408))
    assert all("before" not in of_rpc(code) for code in proofs.UNFINISHED)
