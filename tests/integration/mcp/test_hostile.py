"""Every row of the SDK's misbehaviour, and more, against raw sockets: the class, and how often the call was sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kblockd.domain import canonical
from kblockd.upstream.adapter import AdapterFault, Facts, Outcome, Sent
from tests.integration.mcp.rig import HANDSHAKE, MODERN, adapter, call
from tests.upstreams.raw_mcp import DONE, TOOL, Behaviour, Peer, RawMcp


@pytest.fixture(params=[MODERN, HANDSHAKE])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server(protocol: str) -> AsyncIterator[RawMcp]:
    async with RawMcp.serve(modern=protocol == MODERN) as running:
        yield running


async def outcome_of(server: RawMcp, behaviour: Behaviour, protocol: str, **how: Any) -> Outcome:
    server.on["tools/call"] = behaviour
    return await adapter(server.url, protocol).invoke(call(**how))


async def drop_after_effect(peer: Peer) -> None:
    peer.act()
    peer.drop()


async def half_a_body(peer: Peer) -> None:
    peer.act()
    await peer.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n{"jsonrpc":')
    peer.drop()


async def broken_stream(peer: Peer) -> None:
    peer.act()
    await peer.open_stream()
    peer.drop()


async def ended_stream(peer: Peer) -> None:
    peer.act()
    await peer.open_stream()
    await peer.raw(b"0\r\n\r\n")


async def http_500(peer: Peer) -> None:
    peer.act()
    await peer.http(500, b"oops", "text/plain")


async def http_500_json_rpc(peer: Peer) -> None:
    peer.act()
    await peer.error(-32603, "internal", 500)


async def http_404(peer: Peer) -> None:
    peer.act()
    await peer.http(404, b"no such route", "text/plain")


async def http_202(peer: Peer) -> None:
    peer.act()
    await peer.http(202, b"", "")


async def five_megabytes(peer: Peer) -> None:
    peer.act()
    await peer.result({"content": [{"type": "text", "text": "x" * 5_000_000}]})


async def endless_stream(peer: Peer) -> None:
    peer.act()
    await peer.open_stream()
    while True:
        await peer.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 50_000}})


async def redirect_here(peer: Peer) -> None:
    peer.act()
    await peer.http(307, b"", "", Location="/mcp")


async def redirect_elsewhere(peer: Peer) -> None:
    peer.act()
    await peer.http(307, b"", "", Location="http://127.0.0.2:9/mcp")


async def other_type(peer: Peer) -> None:
    peer.act()
    await peer.http(200, b"<html>login</html>", "text/html")


async def no_json(peer: Peer) -> None:
    peer.act()
    await peer.http(200, b"{nonsense")


async def stray_id(peer: Peer) -> None:
    peer.act()
    await peer.json({"jsonrpc": "2.0", "id": 4711, "result": DONE})


async def no_answer_in_json(peer: Peer) -> None:
    peer.act()
    await peer.json({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})


async def internal_error(peer: Peer) -> None:
    peer.act()
    await peer.error(-32603, "internal")


async def task(peer: Peer) -> None:
    peer.act()
    await peer.result({"resultType": "task", "taskId": "t-77", "status": "working"})


async def task_of_another_shape(peer: Peer) -> None:
    peer.act()
    await peer.result({"task": "t-77"})


async def unknown_type(peer: Peer) -> None:
    peer.act()
    await peer.result({"resultType": "surprise", "content": []})


async def empty_result(peer: Peer) -> None:
    peer.act()
    await peer.result({})


LOST: list[tuple[Behaviour, str]] = [
    (drop_after_effect, "CONNECTION_LOST"),
    (half_a_body, "CONNECTION_LOST"),
    (broken_stream, "CONNECTION_LOST"),
    (ended_stream, "RPC_ERROR_32000"),
    (http_500, "HTTP_500"),
    (http_500_json_rpc, "HTTP_500"),
    (http_404, "HTTP_404"),
    (http_202, "HTTP_202"),
    (five_megabytes, "RESPONSE_TOO_LARGE"),
    (endless_stream, "RESPONSE_TOO_LARGE"),
    (redirect_here, "REDIRECT_REFUSED"),
    (redirect_elsewhere, "REDIRECT_REFUSED"),
    (other_type, "CONTENT_TYPE"),
    (no_json, "RPC_ERROR_32700"),
    (stray_id, "RPC_ERROR_32000"),
    (no_answer_in_json, "NO_ANSWER"),
    (internal_error, "RPC_ERROR_32603"),
    (task, "TASK_UNSUPPORTED"),
    (task_of_another_shape, "TASK_UNSUPPORTED"),
    (unknown_type, "RESULT_TYPE_UNKNOWN"),
    (empty_result, "RESULT_MALFORMED"),
]


@pytest.mark.parametrize(("behaviour", "code"), LOST, ids=[behaviour.__name__ for behaviour, _ in LOST])
async def test_out_05_b_an_end_that_proves_nothing_is_lost(
    server: RawMcp, protocol: str, behaviour: Behaviour, code: str
) -> None:
    """R176, R182, R183, R187, R201: one POST, class LOST, whatever the server does after the effect."""
    outcome = await outcome_of(server, behaviour, protocol)
    assert (outcome.sent, outcome.code) == (Sent.LOST, code)
    assert (len(server.calls), server.effects) == (1, 1)


async def test_out_05_a_refused_connection_is_not_sent(server: RawMcp, protocol: str) -> None:
    """R211, R216: nobody listens, so nothing was sent; nothing raises and nobody is cancelled."""
    await server.stop()
    outcome = await adapter(server.url, protocol).invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "CONNECT_FAILED")


async def test_out_05_a_refused_after_the_session_was_opened(server: RawMcp, protocol: str) -> None:
    """Bytes of the handshake are no bytes of the call: only the call itself was refused a connection."""
    opened = adapter(server.url, protocol)
    await opened.describe("act")
    if protocol == MODERN:
        await server.stop()
    else:

        async def last_words(peer: Peer) -> None:
            server.stop_listening()
            await peer.http(202, b"", "", Connection="close")
            peer.hang_up()

        server.on["notifications/initialized"] = last_words
    outcome = await opened.invoke(call())
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "CONNECT_FAILED")
    assert not server.calls


BEFORE = [
    ("auto", True, "server/discover"),
    ("auto", False, "initialize"),
    (HANDSHAKE, False, "initialize"),
    (HANDSHAKE, False, "tools/list"),
    (MODERN, True, "tools/list"),
]


@pytest.mark.parametrize(("setting", "modern", "method"), BEFORE)
@pytest.mark.parametrize("behaviour", [http_500, broken_stream, drop_after_effect], ids=lambda b: b.__name__)
async def test_out_05_a_failure_before_the_call_is_not_sent(
    setting: str, modern: bool, method: str, behaviour: Behaviour
) -> None:
    """Whatever fails before the POST of the call leaves it unsent; the code says what failed."""
    async with RawMcp.serve(modern=modern) as server:
        server.on[method] = behaviour
        outcome = await adapter(server.url, setting).invoke(call())
        code = "PROTOCOL_REFUSED" if behaviour is http_500 else "CONNECTION_LOST"
        assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, code)
        assert not server.calls


async def test_out_05_a_dropped_notification_sends_no_call() -> None:
    """The handshake that breaks at ``notifications/initialized`` is no session, so no call goes out."""
    async with RawMcp.serve(modern=False) as server:
        server.on["notifications/initialized"] = drop_after_effect
        opened = adapter(server.url, HANDSHAKE)
        outcome = await opened.invoke(call())
        assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "CONNECTION_LOST")
        del server.on["notifications/initialized"]
        assert (await opened.describe("act")).name == "act"
        server.on["notifications/initialized"] = drop_after_effect
        assert (await opened.invoke(call())).sent is Sent.NOT_SENT
        assert not server.calls


async def test_r180_no_answer_ends_at_the_deadline(server: RawMcp, protocol: str) -> None:
    """R179, R182, R186, R198: one deadline for everything; the class is LOST with UPSTREAM_TIMEOUT."""

    async def silent(peer: Peer) -> None:
        peer.act()
        await asyncio.sleep(60)

    begun = time.monotonic()
    outcome = await outcome_of(server, silent, protocol, seconds=1.0)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    assert time.monotonic() - begun < 5
    assert (len(server.calls), server.effects) == (1, 1)


async def test_a_deadline_before_the_call_is_not_sent(server: RawMcp, protocol: str) -> None:
    """R179: the session's opening spends the same deadline."""

    async def silent(peer: Peer) -> None:
        await asyncio.sleep(60)

    server.on["tools/list"] = silent
    outcome = await adapter(server.url, protocol).invoke(call(seconds=0.7))
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "UPSTREAM_TIMEOUT")
    assert not server.calls


async def test_output_that_breaks_its_schema_is_kept(server: RawMcp, protocol: str) -> None:
    """R214, R223: after the fact; never an exception, and no second tools/list."""

    async def wrong(peer: Peer) -> None:
        peer.act()
        await peer.result({"content": [], "structuredContent": {"done": "yes"}})

    outcome = await outcome_of(server, wrong, protocol)
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.ANSWERED, False, "OUTPUT_SCHEMA_MISMATCH")
    assert outcome.output == {"done": "yes"}
    assert (len(server.calls), server.count("tools/list")) == (1, 1)


async def test_input_required_is_never_driven(server: RawMcp, protocol: str) -> None:
    """The SDK would POST the call 11 times; here it is one answer that proves nothing."""

    async def asks(peer: Peer) -> None:
        await peer.result({"resultType": "input_required", "requestState": "opaque"})

    outcome = await outcome_of(server, asks, protocol)
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.ANSWERED, True, "INPUT_REQUIRED")
    assert len(server.calls) == 1


async def test_a_task_keeps_its_handle_in_the_request_ids(server: RawMcp, protocol: str) -> None:
    """R202: unclaimed work may go on, so its handle is evidence."""
    outcome = await outcome_of(server, task, protocol)
    assert outcome.request_ids["task"] == "t-77"


async def test_siblings_do_not_share_a_session(server: RawMcp, protocol: str) -> None:
    """One of two concurrent calls is dropped: the other one succeeds."""

    async def behaviour(peer: Peer) -> None:
        peer.act()
        if peer.seen.message["params"]["arguments"]["n"] == 1:
            peer.drop()
        else:
            await asyncio.sleep(0.1)
            await peer.result(DONE)

    server.on["tools/call"] = behaviour
    opened = adapter(server.url, protocol)
    first, second = await asyncio.gather(opened.invoke(call()), opened.invoke(call(arguments={"n": 2})))
    assert (first.sent, second.sent) == (Sent.LOST, Sent.ANSWERED)
    assert len(server.calls) == 2


async def test_error_answers(server: RawMcp, protocol: str) -> None:
    """R221, R238, UPS-01: an error answer is an answer with its facts; no text and no code says that nothing ran."""

    async def answer(code: int, message: str, status: int = 200) -> str:
        async def error(peer: Peer) -> None:
            await peer.error(code, message, status)

        outcome = await outcome_of(server, error, protocol)
        assert (outcome.sent, outcome.is_error) == (Sent.ANSWERED, True)
        assert outcome.facts == Facts(True, "rpc_error", status, "application/json", code)
        assert outcome.output == {"code": code, "message": message}
        return outcome.code

    assert await answer(-32602, "Unknown tool: act") == "RPC_ERROR_32602"
    assert await answer(-32602, "amount must be positive") == "RPC_ERROR_32602"
    assert await answer(-32050, "limit") == "RPC_ERROR_32050"
    assert await answer(-32020, "header mismatch", 400) == "HTTP_400"
    assert await answer(-32020, "header mismatch") == "RPC_ERROR_32020"
    assert await answer(-32022, "version", 400) == "HTTP_400"
    assert await answer(-32600, "expired token", 401) == "HTTP_401"


@pytest.mark.parametrize("status", [400, 404, 502])
async def test_a_result_under_a_status_that_denies_it_is_none(server: RawMcp, protocol: str, status: int) -> None:
    """R183: whose word it is, nobody knows: the server's, or that of something before it; never a success."""

    async def contradicting(peer: Peer) -> None:
        peer.act()
        await peer.json({"jsonrpc": "2.0", "id": peer.id, "result": {**DONE, "resultType": "complete"}}, status)

    outcome = await outcome_of(server, contradicting, protocol)
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.LOST, False, f"HTTP_{status}")
    assert len(server.calls) == 1


async def test_a_long_error_is_not_searched_for_long(server: RawMcp, protocol: str) -> None:
    """R201: nothing is looked for in the server's text."""

    async def talkative(peer: Peer) -> None:
        await peer.error(-32602, "act " + "tool " * 20_000)

    begun = time.monotonic()
    outcome = await outcome_of(server, talkative, protocol, seconds=30.0)
    assert (outcome.sent, outcome.code) == (Sent.ANSWERED, "RPC_ERROR_32602")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("code", [-32050, -32020])
async def test_ups_03_an_error_without_id_ends_the_call_and_is_no_answer_to_it(
    server: RawMcp, protocol: str, code: int, status: int
) -> None:
    """JSON-RPC allows id null in an error; the SDK alone would wait for ever."""

    async def nameless(peer: Peer) -> None:
        peer.act()
        await peer.json({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no"}}, status)

    outcome = await outcome_of(server, nameless, protocol)
    expected = f"RPC_ERROR_{-code}" if status == 200 else "HTTP_400"
    assert (outcome.sent, outcome.code, outcome.facts) == (Sent.LOST, expected, Facts())


@pytest.mark.parametrize("streamed", [False, True])
async def test_ups_03_a_result_and_an_error_at_once_are_neither(server: RawMcp, protocol: str, streamed: bool) -> None:
    """Lost, whichever member comes first; null is how some servers leave one out."""

    async def said(**members: Any) -> Outcome:
        async def both(peer: Peer) -> None:
            peer.act()
            message = {"jsonrpc": "2.0", "id": peer.id, **members}
            if not streamed:
                await peer.json(message)
                return
            await peer.open_stream()
            await peer.event(message)
            await peer.raw(b"0\r\n\r\n")

        return await outcome_of(server, both, protocol)

    result = {**DONE, "resultType": "complete"}
    error = {"code": -32602, "message": "Unknown tool: act"}
    for members in ({"result": result, "error": error}, {"error": error, "result": result}):
        assert (await said(**members)).sent is Sent.LOST
    assert (await said(result=result, error=None)).is_error is False
    assert (await said(result=None, error=error)).code == "RPC_ERROR_32602"


@pytest.mark.parametrize("status", [400, 401, 403, 409, 413, 429, 451])
async def test_ups_06_an_http_error_without_a_message_of_the_protocol_is_lost(
    server: RawMcp, protocol: str, status: int
) -> None:
    """A page, or JSON that a gateway made."""
    for body, kind in ((b"<html>", "text/html"), (b'{"error":{"code":-32602,"message":"x"}}', "application/json")):

        async def gateway(peer: Peer, body: bytes = body, kind: str = kind) -> None:
            peer.act()
            await peer.http(status, body, kind)

        outcome = await outcome_of(server, gateway, protocol)
        assert (outcome.sent, outcome.code, outcome.facts) == (Sent.LOST, f"HTTP_{status}", Facts())


async def test_mcp_02_session_errors_after_the_effect_are_lost(server: RawMcp, protocol: str) -> None:
    """A stream that ends with a session error, and a 404 made by a proxy: unknown, one effect, and the next works."""

    async def session_error(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        error = {"code": -32001, "message": "Session expired, please re-initialize"}
        await peer.event({"jsonrpc": "2.0", "id": peer.id, "error": error})

    async def session_404(peer: Peer) -> None:
        peer.act()
        await peer.error(-32001, "Session not found", 404)

    for count, behaviour in enumerate((session_error, http_404, session_404), start=1):
        outcome = await outcome_of(server, behaviour, protocol)
        assert outcome.sent is Sent.LOST
        assert (len(server.calls), server.effects) == (count, count)
    del server.on["tools/call"]
    assert (await adapter(server.url, protocol).invoke(call())).sent is Sent.ANSWERED


async def test_mcp_06_is_error_is_an_error_answer(server: RawMcp, protocol: str) -> None:
    """isError after a partial effect: never a success, never a proof of absence."""

    async def partly(peer: Peer) -> None:
        peer.act()
        await peer.result({"content": [{"type": "text", "text": "half of it"}], "isError": True})

    outcome = await outcome_of(server, partly, protocol)
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.ANSWERED, True, "TOOL_ERROR")
    assert outcome.output == {"content": [{"type": "text", "text": "half of it"}]}
    assert outcome.detail == "half of it"
    assert len(server.calls) == 1


async def test_mcp_09_unknown_session_at_the_call(server: RawMcp, protocol: str) -> None:
    """A 404 for the session does not say when it was made, so it is LOST; the next one opens a new session."""
    opened = adapter(server.url, protocol)
    server.on["tools/call"] = http_404
    assert (await opened.invoke(call())).sent is Sent.LOST
    del server.on["tools/call"]
    assert (await opened.invoke(call())).sent is Sent.ANSWERED
    if protocol == HANDSHAKE:
        assert server.count("initialize") == 2
        assert {seen.headers["mcp-session-id"] for seen in server.calls} == {"session-1", "session-2"}


async def test_mcp_10_progress_never_extends_the_deadline(server: RawMcp, protocol: str) -> None:
    """R196, R197: progress for ever ends at the deadline; a slow tool with progress succeeds within it."""

    def progress(times: int | None) -> Behaviour:
        async def behaviour(peer: Peer) -> None:
            peer.act()
            await peer.open_stream()
            step = 0
            while times is None or step < times:
                step += 1
                params = {"progressToken": peer.id, "progress": step}
                await peer.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                await asyncio.sleep(0.05)
            result = {**DONE, "resultType": "complete"}
            await peer.event({"jsonrpc": "2.0", "id": peer.id, "result": result})

        return behaviour

    begun = time.monotonic()
    outcome = await outcome_of(server, progress(None), protocol, seconds=1.0)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    assert time.monotonic() - begun < 6
    assert (await outcome_of(server, progress(10), protocol, seconds=10.0)).sent is Sent.ANSWERED


async def test_mcp_11_no_hidden_read_timeout(server: RawMcp, protocol: str) -> None:
    """R180, R198: longer silence than the HTTP client's default of 5 s is fine within the action's deadline."""

    async def quiet(peer: Peer) -> None:
        await asyncio.sleep(5.5)
        await peer.result(DONE)

    outcome = await outcome_of(server, quiet, protocol, seconds=30.0)
    assert outcome.sent is Sent.ANSWERED


async def test_mcp_12_dropped_streams_are_resumed_or_lost_and_never_posted_again(server: RawMcp, protocol: str) -> None:
    """C28: two drops before any event are LOST; one after an event may be resumed by GET; one POST each."""
    for _ in range(2):
        assert (await outcome_of(server, broken_stream, protocol)).sent is Sent.LOST
    assert len(server.calls) == 2

    async def one_event(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        await peer.event(None, event_id="e-1", retry=1)
        server.on["GET"] = resumed(peer.id)
        peer.drop()

    outcome = await outcome_of(server, one_event, protocol)
    assert len(server.calls) == 3
    resumptions = [seen.headers.get("last-event-id") for seen in server.seen if seen.verb == "GET"]
    expected = (Sent.LOST, []) if protocol == MODERN else (Sent.ANSWERED, ["e-1"])
    assert (outcome.sent, resumptions) == expected


def resumed(request_id: Any) -> Behaviour:
    async def behaviour(peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "id": request_id, "result": {**DONE, "resultType": "complete"}})

    return behaviour


async def test_mcp_12_a_server_cannot_stretch_the_wait_for_a_resumption(server: RawMcp, protocol: str) -> None:
    """``retry`` of eleven days: LOST at the deadline."""

    async def come_back_later(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        await peer.event(None, event_id="e-1", retry=1_000_000_000)
        peer.drop()

    begun = time.monotonic()
    outcome = await outcome_of(server, come_back_later, protocol, seconds=1.0)
    assert outcome.sent is Sent.LOST
    assert time.monotonic() - begun < 6
    assert len(server.calls) == 1


async def test_mcp_13_the_definition_as_the_server_sends_it(server: RawMcp, protocol: str) -> None:
    """R018, R032: unknown members are part of it; order of keys is not; description and schema are."""
    opened = adapter(server.url, protocol)
    first = await opened.describe("act")
    assert first.definition == TOOL
    assert first.server_version == "0.7.1"
    server.tools = [json.loads(json.dumps(dict(reversed(list(TOOL.items())))))]
    assert canonical.digest((await opened.describe("act")).definition) == canonical.digest(first.definition)
    for change in ({"description": "Acts twice."}, {"inputSchema": {"type": "object"}}, {"x-vendor": 1}):
        server.tools = [{**TOOL, **change}]
        assert canonical.digest((await opened.describe("act")).definition) != canonical.digest(first.definition)
    assert server.count("tools/list") == 5


async def test_mcp_15_hints_of_the_server_repeat_nothing(server: RawMcp, protocol: str) -> None:
    """The tool says idempotentHint true and drops after the effect: one POST, LOST."""
    assert TOOL["annotations"]["idempotentHint"] is True
    opened = adapter(server.url, protocol)
    await opened.describe("act")
    server.on["tools/call"] = drop_after_effect
    assert (await opened.invoke(call())).sent is Sent.LOST
    assert (len(server.calls), server.effects) == (1, 1)


async def test_listing_is_followed_and_bounded(server: RawMcp, protocol: str) -> None:
    """Pages are followed; a repeated cursor, a repeated name and no list at all are refused."""
    opened = adapter(server.url, protocol)
    extra = {"ttlMs": 0, "cacheScope": "public"} if protocol == MODERN else {}

    def pages(*answers: dict[str, Any]) -> None:
        remaining = list(answers)

        async def behaviour(peer: Peer) -> None:
            await peer.result({**(remaining.pop(0) if len(remaining) > 1 else remaining[0]), **extra})

        server.on["tools/list"] = behaviour

    pages({"tools": [{**TOOL, "name": "other"}], "nextCursor": "2"}, {"tools": [TOOL]})
    assert (await opened.describe("act")).definition == TOOL
    for code, answers in {
        "LISTING_ENDLESS": [{"tools": [], "nextCursor": "2"}],
        "TOOL_LISTED_TWICE": [{"tools": [TOOL], "nextCursor": "2"}, {"tools": [TOOL]}],
        "LISTING_MALFORMED": [{"tools": {"act": TOOL}}],
        "TOOL_UNKNOWN": [{"tools": [{**TOOL, "name": "Act"}]}],
    }.items():
        pages(*answers)
        with pytest.raises(AdapterFault) as caught:
            await opened.describe("act")
        assert caught.value.code == code


async def test_describe_raises_only_adapter_fault(server: RawMcp, protocol: str) -> None:
    """Whatever goes wrong, with a code and within its own bound."""

    async def silent(peer: Peer) -> None:
        await asyncio.sleep(60)

    opened = adapter(server.url, protocol, describe_seconds=0.5)
    for behaviour in (http_500, drop_after_effect, five_megabytes, silent, broken_stream):
        server.on["tools/list"] = behaviour
        with pytest.raises(AdapterFault):
            await opened.describe("act")
    await server.stop()
    with pytest.raises(AdapterFault) as caught:
        await opened.describe("act")
    assert caught.value.code == "CONNECT_FAILED"
