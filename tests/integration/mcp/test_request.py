"""What goes out: arguments, effect key, trace context, headers, revisions; and what never does."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx2
import pytest
from kblockd_mcp import request
from kblockd_mcp.session import Session
from kblockd_mcp.wire import SessionWire
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

from kblockd.upstream.adapter import AdapterFault, Sent
from tests.integration.mcp.rig import HANDSHAKE, MODERN, adapter, call
from tests.upstreams.raw_mcp import DONE, TOOL, Peer, RawMcp

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}


@pytest.fixture(params=[MODERN, HANDSHAKE])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server(protocol: str) -> AsyncIterator[RawMcp]:
    async with RawMcp.serve(modern=protocol == MODERN) as running:
        yield running


async def test_arguments_go_out_as_given(server: RawMcp) -> None:
    """R199: nulls, floats, nesting and key order are the caller's; no key is added."""
    arguments: dict[str, Any] = {"n": 1, "z": None, "a": [None, {"b": None, "f": 1.5}], "ü": "\u2028", "big": 2**53 - 1}
    assert (await adapter(server.url).invoke(call(arguments=arguments))).sent is Sent.ANSWERED
    params = server.calls[0].message["params"]
    assert params["arguments"] == arguments
    assert list(params["arguments"]) == list(arguments)
    assert "traceparent" not in params.get("_meta", {})


async def test_exactly_one_trace_context_and_it_is_the_calls(server: RawMcp) -> None:
    """The process has a span and baggage of its own: neither goes on."""
    token = context.attach(baggage.set_baggage("tenant", "secret"))
    span = TracerProvider().get_tracer("test").start_span("own")
    try:
        with trace.use_span(span):
            await adapter(server.url).invoke(call(trace={**TRACE, "baggage": "tenant=secret"}))
    finally:
        context.detach(token)
    meta = server.calls[0].message["params"]["_meta"]
    assert {name: meta[name] for name in TRACE} == TRACE
    for seen in server.seen:
        sent = (seen.message or {}).get("params", {}).get("_meta", {})
        assert "baggage" not in sent
        assert sent.get("traceparent", TRACE["traceparent"]) == TRACE["traceparent"]
        assert "traceparent" not in seen.headers
        assert "baggage" not in seen.headers


@pytest.mark.parametrize("place", ["argument", "meta", "header", "none"])
async def test_effect_key_goes_where_the_contract_says(
    server: RawMcp, place: Literal["argument", "meta", "header", "none"]
) -> None:
    """R190, R206, R207: in one place, and nowhere else."""
    keyed = call(effect_key="k-77", effect_key_in=place, effect_key_name="x-operation")
    assert (await adapter(server.url).invoke(keyed)).sent is Sent.ANSWERED
    seen = server.calls[0]
    params = seen.message["params"]
    found = {
        "argument": params["arguments"].get("x-operation"),
        "meta": params.get("_meta", {}).get("x-operation"),
        "header": seen.headers.get("x-operation"),
    }
    assert {where for where, value in found.items() if value == "k-77"} == ({place} - {"none"})
    assert not any("x-operation" in other.headers for other in server.seen if other is not seen)


@pytest.mark.parametrize(
    ("place", "name", "code"),
    [
        ("meta", "traceparent", "EFFECT_KEY_NAME"),
        ("meta", "progressToken", "EFFECT_KEY_NAME"),
        ("meta", "io.modelcontextprotocol/key", "EFFECT_KEY_NAME"),
        ("meta", "", "EFFECT_KEY_NAME"),
        ("header", "Authorization", "EFFECT_KEY_NAME"),
        ("header", "Mcp-Name", "EFFECT_KEY_NAME"),
        ("header", "x y", "EFFECT_KEY_NAME"),
        ("argument", "n", "EFFECT_KEY_CONFLICT"),
    ],
)
async def test_effect_key_without_a_place_sends_nothing(
    server: RawMcp, place: Literal["argument", "meta", "header"], name: str, code: str
) -> None:
    """A key that would be lost or would override something is refused before a byte is sent."""
    outcome = await adapter(server.url).invoke(call(effect_key="k", effect_key_in=place, effect_key_name=name))
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, code)
    assert not server.seen


async def test_auto_learns_the_revision_and_forgets_it_after_doubt(server: RawMcp) -> None:
    """One probe an adapter; a server that changed its revision is met with a new probe after one refusal."""
    opened = adapter(server.url)
    for _ in range(3):
        assert (await opened.invoke(call())).sent is Sent.ANSWERED
    assert server.count("server/discover") == 1
    versions = {seen.headers.get("mcp-protocol-version") for seen in server.calls}
    assert versions == ({MODERN} if server.modern else {HANDSHAKE})
    server.modern = not server.modern
    if server.modern:
        assert (await opened.invoke(call())).sent is Sent.NOT_SENT
    else:
        server.on["tools/call"] = refuse_version
        assert (await opened.invoke(call())).code == "HTTP_400"
        del server.on["tools/call"]
    assert (await opened.invoke(call())).sent is Sent.ANSWERED
    assert server.count("server/discover") == 2


async def refuse_version(peer: Peer) -> None:
    await peer.error(-32022, "unsupported protocol version", 400)


async def test_a_discovery_that_does_not_offer_the_revision_means_the_handshake() -> None:
    """Whatever else it says: no list of versions, or other ones."""
    for supported in ("2026-07-28", ["2031-01-01"], None):
        async with RawMcp.serve(modern=False) as server:

            async def discovered(peer: Peer, supported: Any = supported) -> None:
                await peer.result({"supportedVersions": supported})

            server.on["server/discover"] = discovered
            assert (await adapter(server.url).invoke(call())).sent is Sent.ANSWERED
            assert server.count("initialize") == 1


async def test_a_handshake_in_another_revision_is_none() -> None:
    """R187: the server answers a version that the handshake never had, and no call goes out."""
    async with RawMcp.serve(modern=False) as server:

        async def other(peer: Peer) -> None:
            information = {"name": "raw", "version": "1"}
            await peer.result({"protocolVersion": MODERN, "capabilities": {}, "serverInfo": information})

        server.on["initialize"] = other
        outcome = await adapter(server.url, HANDSHAKE).invoke(call())
        assert (outcome.sent, outcome.code, server.calls) == (Sent.NOT_SENT, "PROTOCOL_MISMATCH", [])


async def test_the_listing_itself_says_whose_it_is() -> None:
    """R018: 2026-07-28 servers sign each result; one that does not is asked, and neither is remembered."""
    async with RawMcp.serve(modern=True) as server:
        opened = adapter(server.url, MODERN)

        def signing(server_info: Any) -> None:
            async def behaviour(peer: Peer) -> None:
                meta = {"io.modelcontextprotocol/serverInfo": server_info}
                await peer.result({"tools": server.tools, "ttlMs": 0, "cacheScope": "public", "_meta": meta})

            server.on["tools/list"] = behaviour

        versions, asked = [], []
        for server_info in ({"name": "a", "version": "2"}, {"name": "a", "version": "3"}, {"name": "a"}, None):
            signing(server_info)
            versions.append((await opened.describe("act")).server_version)
            asked.append(server.count("server/discover"))
        assert (versions, asked) == (["2", "3", "0.7.1", "0.7.1"], [0, 0, 1, 2])


async def test_a_cookie_leads_one_session_and_no_other(server: RawMcp) -> None:
    """A balancer's cookie keeps a session where it was opened; the next session begins without it."""

    async def balanced(peer: Peer) -> None:
        information = {"name": "raw", "version": "1"}
        result = {"protocolVersion": HANDSHAKE, "capabilities": {}, "serverInfo": information}
        await peer.result(result, Mcp_Session_Id="session-1", Set_Cookie="route=7; Path=/; HttpOnly")

    async def listed(peer: Peer) -> None:
        result = {"tools": server.tools, "ttlMs": 0, "cacheScope": "public"}
        await peer.result(result, Set_Cookie="route=7; Path=/")

    server.on.update({"tools/list": listed} if server.modern else {"initialize": balanced})
    for _ in range(2):
        assert (await adapter(server.url, MODERN if server.modern else HANDSHAKE).invoke(call())).sent is Sent.ANSWERED
    cookies = [seen.headers.get("cookie", "") for seen in server.seen]
    half = len(cookies) // 2
    assert cookies == ["", *["route=7"] * (half - 1)] * 2


async def test_a_pinned_revision_is_not_negotiated(server: RawMcp) -> None:
    """A server of the other revision has no definition to show, and no handshake means no call."""
    if server.modern:
        outcome = await adapter(server.url, HANDSHAKE).invoke(call())
        assert (outcome.sent, outcome.code, server.calls) == (Sent.NOT_SENT, "PROTOCOL_REFUSED", [])
    with pytest.raises(AdapterFault) as caught:
        await adapter(server.url, HANDSHAKE if server.modern else MODERN).describe("act")
    assert caught.value.code.startswith("PROTOCOL_")


async def test_mirrored_arguments_and_invalid_annotations() -> None:
    """2026-07-28: ``x-mcp-header`` arguments go out as headers at once; a tool with an invalid one is refused."""
    async with RawMcp.serve(modern=True) as server:
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        server.tools = [{**TOOL, "inputSchema": schema}]
        await adapter(server.url).invoke(call(arguments={"region": "eu"}))
        assert server.calls[0].headers["mcp-param-region"] == "eu"
        assert server.calls[0].headers["mcp-name"] == "act"
        schema["properties"]["region"]["x-mcp-header"] = "no token"  # type: ignore[index]
        with pytest.raises(AdapterFault) as caught:
            await adapter(server.url).describe("act")
        assert caught.value.code == "TOOL_HEADERS_INVALID"


async def test_session_ids_are_kept_as_digests_only(server: RawMcp) -> None:
    """R202, R632: JSON-RPC id and server request id as they are; a session id opens a session, so only its digest."""

    async def identified(peer: Peer) -> None:
        await peer.result(DONE, X_Request_Id="req-9")

    server.on["tools/call"] = identified
    outcome = await adapter(server.url).invoke(call())
    assert outcome.request_ids["http"] == "req-9"
    assert outcome.request_ids["jsonrpc"] == str(server.calls[0].message["id"])
    assert ("session_sha256" in outcome.request_ids) is not server.modern
    assert "session-1" not in repr(outcome)
    assert server.modern or any(seen.verb == "DELETE" for seen in server.seen)


async def test_the_requests_of_an_exchange_are_numbered_from_anywhere(server: RawMcp) -> None:
    """R202: one number names one request, whatever session it belongs to; small enough for any server."""
    await adapter(server.url).invoke(call())
    ids = [seen.message["id"] for seen in server.seen if isinstance(seen.message, dict) and "id" in seen.message]
    assert len(ids) == (3 if server.modern else 4)
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert 0 < ids[0] < ids[-1] < 2**31


async def test_an_answer_of_another_exchange_is_not_believed(server: RawMcp) -> None:
    """What a balancer or a store of events confuses proves nothing, though it answers the same request."""
    said: list[dict[str, Any]] = []

    async def first(peer: Peer) -> None:
        peer.act()
        said[:] = said or [{"jsonrpc": "2.0", "id": peer.id, "result": {**DONE, "resultType": "complete"}}]
        await peer.json(said[0])

    server.on["tools/call"] = first
    outcomes = [await adapter(server.url).invoke(call()) for _ in range(2)]
    assert [outcome.sent for outcome in outcomes] == [Sent.ANSWERED, Sent.LOST]
    assert outcomes[1].code == "RPC_ERROR_32000"
    assert len(server.calls) == server.effects == 2


async def test_the_digest_is_over_the_bytes_as_they_came(server: RawMcp) -> None:
    """R202: a whole answer, and as much as came of one that broke."""
    half = b'{"jsonrpc": "2.0", '

    async def spaced(peer: Peer) -> None:
        bodies.append(json.dumps({"jsonrpc": "2.0", "id": peer.id, "result": DONE}, indent=3).encode())
        await peer.http(200, bodies[0])

    async def broken(peer: Peer) -> None:
        await peer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n" + half)
        peer.hang_up()

    bodies: list[bytes] = []
    opened = adapter(server.url)
    server.on["tools/call"] = spaced
    whole = await opened.invoke(call())
    assert (whole.sent, whole.raw_sha256) == (Sent.ANSWERED, hashlib.sha256(bodies[0]).hexdigest())
    server.on["tools/call"] = broken
    lost = await opened.invoke(call())
    assert (lost.sent, lost.raw_sha256) == (Sent.LOST, hashlib.sha256(half).hexdigest())


async def test_a_second_call_in_a_session_never_leaves(server: RawMcp) -> None:
    """R176, C28: whatever asks for it, a defect here included, the wire carries one ``tools/call`` a session."""
    opened = adapter(server.url)
    exchange = opened._context.exchange(time.monotonic() + 10)
    one = Session(
        SessionWire(exchange, httpx2.URL(server.url), {}, lambda: 10.0, itertools.count(1)), modern=server.modern
    )
    if not server.modern:
        await one.handshake()
    params = request.build(call()).params
    assert (await one.call(params, {})).result is not None
    before = exchange.bytes_written
    with pytest.raises(RuntimeError):
        await one.call(params, {})
    assert exchange.bytes_written == before
    await exchange.close()
    assert len(server.calls) == 1


async def test_nothing_of_a_call_reaches_a_log(server: RawMcp, caplog: pytest.LogCaptureFixture) -> None:
    """R632: at DEBUG the SDK would log messages, session ids and answers; here arguments, outputs and ids stay out."""

    async def nonsense(peer: Peer) -> None:
        await peer.http(200, b'{"secret-output": tru')

    with caplog.at_level(logging.DEBUG):
        opened = adapter(server.url)
        await opened.invoke(call(arguments={"note": "secret-argument"}, credential=b"Bearer secret-credential"))
        server.on["tools/call"] = nonsense
        await opened.invoke(call(arguments={"note": "secret-argument"}))
    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert not [word for word in ("secret-", "session-1") if word in logged]


async def test_requests_of_the_server_are_declined() -> None:
    """No capability is declared; a server that asks for sampling anyway gets an error, and the call goes on."""

    async with RawMcp.serve(modern=False) as server:

        async def asking(peer: Peer) -> None:
            await peer.open_stream()
            request = {"messages": [], "maxTokens": 1}
            await peer.event({"jsonrpc": "2.0", "id": "s-1", "method": "sampling/createMessage", "params": request})
            await replied.wait()
            await peer.event({"jsonrpc": "2.0", "id": peer.id, "result": DONE})

        async def reply(peer: Peer) -> None:
            await peer.http(202, b"", "")
            replied.set()

        replied = asyncio.Event()
        server.on["tools/call"] = asking
        server.on["POST"] = reply
        assert (await adapter(server.url).invoke(call())).sent is Sent.ANSWERED
        (initialize,) = [seen.message for seen in server.seen if seen.method == "initialize"]
        assert not {"sampling", "elicitation", "roots", "tasks"} & set(initialize["params"]["capabilities"])
        (declined,) = [seen.message for seen in server.seen if (seen.message or {}).get("id") == "s-1"]
        assert "error" in declined


async def test_outputs_without_structure(server: RawMcp) -> None:
    """A single text that is a JSON object is the output; any other text stays content."""
    server.tools = [{name: value for name, value in TOOL.items() if name != "outputSchema"}]
    opened = adapter(server.url)
    for text, output in {'{"a": 1}': {"a": 1}, "{}": {}, "plain": None, '{"a": 1,': None, "[1]": None}.items():

        async def texts(peer: Peer, text: str = text) -> None:
            await peer.result({"content": [{"type": "text", "text": text}]})

        server.on["tools/call"] = texts
        outcome = await opened.invoke(call())
        assert outcome.output == (output if output is not None else {"content": [{"type": "text", "text": text}]})


TWICE = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)}
UNUSABLE: list[dict[str, Any]] = [
    {"type": "object", "$ref": "http://127.0.0.1:9/schema"},
    {"type": "object", "$ref": "#/$defs/a0", "$defs": {**TWICE, "a40": {}}},
]


@pytest.mark.parametrize("schema", UNUSABLE, ids=["elsewhere", "without end"])
async def test_an_unusable_output_schema_undoes_nothing(server: RawMcp, schema: dict[str, Any]) -> None:
    """A reference to elsewhere is never fetched, one that would take years is not followed; the output is kept."""
    server.tools = [{**TOOL, "outputSchema": schema}]
    outcome = await adapter(server.url).invoke(call())
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.ANSWERED, "OUTPUT_SCHEMA_UNUSABLE", {"done": True})


async def test_tasks_are_not_spoken(server: RawMcp) -> None:
    """poll and cancel send nothing."""
    opened = adapter(server.url)
    for outcome in (await opened.poll("t", call()), await opened.cancel("t", call())):
        assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "UNSUPPORTED")
    await opened.close()
    assert not server.seen
