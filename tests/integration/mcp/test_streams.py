"""Answers that come as event streams: what ends them, what brings their rest, and what a server asks beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from kblockd.upstream.adapter import Outcome, Sent
from tests.integration.mcp.rig import HANDSHAKE, MODERN, adapter, call
from tests.upstreams.raw_mcp import DONE, Behaviour, Peer, RawMcp

SAMPLING: Final = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}


@pytest.fixture(params=[MODERN, HANDSHAKE])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RawMcp]:
    """In both revisions."""
    async with RawMcp.serve(modern=request.param == MODERN) as running:
        yield running


@pytest.fixture
async def resumable() -> AsyncIterator[RawMcp]:
    """In the revision whose streams can be resumed and whose servers may ask."""
    async with RawMcp.serve(modern=False) as running:
        yield running


async def outcome_of(server: RawMcp, behaviour: Behaviour, seconds: float = 10.0) -> Outcome:
    server.on["tools/call"] = behaviour
    return await adapter(server.url, MODERN if server.modern else HANDSHAKE).invoke(call(seconds=seconds))


async def answer(peer: Peer, request_id: Any) -> None:
    await peer.event({"jsonrpc": "2.0", "id": request_id, "result": {**DONE, "resultType": "complete"}})


async def ended(peer: Peer) -> None:
    await peer.raw(b"0\r\n\r\n")


async def broken_off(peer: Peer) -> Any:
    """Acts, gives the stream a token and drops it; the id of the request."""
    peer.act()
    await peer.open_stream()
    await peer.event(None, event_id="e-1", retry=1)
    peer.drop()
    return peer.id


def tokens(server: RawMcp) -> list[str | None]:
    """Of the resumptions, in their order."""
    return [seen.headers.get("last-event-id") for seen in server.seen if seen.verb == "GET"]


async def test_mcp_12_a_stream_that_the_server_ends_is_resumed_with_the_latest_token(resumable: RawMcp) -> None:
    """C28: ended in good order after a token, broken after another one, then answered; one POST."""

    async def told_to_come_back(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        await peer.event(None, event_id="e-1", retry=1)
        await ended(peer)

        async def once_more(again: Peer) -> None:
            await again.open_stream()
            if again.seen.headers["last-event-id"] == "e-2":
                await answer(again, peer.id)
            else:
                await again.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, event_id="e-2")
                again.drop()

        resumable.on["GET"] = once_more

    outcome = await outcome_of(resumable, told_to_come_back)
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.ANSWERED, "", {"done": True})
    assert tokens(resumable) == ["e-1", "e-2"]
    assert (len(resumable.calls), resumable.effects) == (1, 1)


async def test_mcp_12_a_second_drop_before_any_event_keeps_the_token(resumable: RawMcp) -> None:
    """The first resumption brings nothing and breaks; the second one asks for the same place."""

    async def begun(peer: Peer) -> None:
        request_id = await broken_off(peer)

        async def once_more(again: Peer) -> None:
            await again.open_stream()
            if len(tokens(resumable)) == 1:
                again.drop()
            else:
                await answer(again, request_id)

        resumable.on["GET"] = once_more

    assert (await outcome_of(resumable, begun)).sent is Sent.ANSWERED
    assert tokens(resumable) == ["e-1", "e-1"]
    assert len(resumable.calls) == 1


@pytest.mark.parametrize("retry", [0, -1])
async def test_mcp_12_a_server_that_says_at_once_is_not_asked_without_a_pause(resumable: RawMcp, retry: int) -> None:
    """Every stream ends in good order without an answer: until the deadline, some times a second."""

    async def come_back(peer: Peer) -> None:
        await peer.open_stream()
        await peer.event(None, event_id="e-1", retry=retry)
        await ended(peer)

    resumable.on["GET"] = come_back
    assert (await outcome_of(resumable, come_back, seconds=1.0)).sent is Sent.LOST
    assert 1 <= len(tokens(resumable)) <= 10


@pytest.mark.parametrize("token", ["é", "e\x01"])
async def test_a_token_that_no_header_can_carry_resumes_nothing(resumable: RawMcp, token: str) -> None:
    """What broke is told, not what could not be asked."""

    async def begun(peer: Peer) -> None:
        await peer.open_stream()
        text = f"id: {token}\ndata:\n\n".encode()
        await peer.raw(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        peer.drop()

    outcome = await outcome_of(resumable, begun)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "CONNECTION_LOST")
    assert tokens(resumable) == []


@pytest.mark.parametrize("status", [404, 200])
async def test_mcp_12_a_resumption_that_is_refused_twice_is_lost(resumable: RawMcp, status: int) -> None:
    """A status, or an answer that is no stream: neither is the call's answer, and what broke first is told."""

    async def begun(peer: Peer) -> None:
        request_id = await broken_off(peer)

        async def refused(again: Peer) -> None:
            await again.json({"jsonrpc": "2.0", "id": request_id, "result": DONE}, status)

        resumable.on["GET"] = refused

    outcome = await outcome_of(resumable, begun)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "CONNECTION_LOST")
    assert tokens(resumable) == ["e-1", "e-1"]
    assert len(resumable.calls) == 1


async def test_mcp_12_a_resumption_of_the_listing_lets_the_call_go_on(resumable: RawMcp) -> None:
    """A read that came in two pieces is whole."""

    async def listing(peer: Peer) -> None:
        request_id = await broken_off(peer)

        async def rest(again: Peer) -> None:
            await again.open_stream()
            await again.event({"jsonrpc": "2.0", "id": request_id, "result": {"tools": resumable.tools}})

        resumable.on["GET"] = rest

    resumable.on["tools/list"] = listing
    outcome = await adapter(resumable.url, HANDSHAKE).invoke(call())
    assert (outcome.sent, len(resumable.calls)) == (Sent.ANSWERED, 1)


async def test_a_stream_answers_the_call_by_its_id(server: RawMcp) -> None:
    """As in a JSON answer: what belongs to another request proves nothing."""

    async def other(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        await answer(peer, 4711)

    outcome = await outcome_of(server, other)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RPC_ERROR_32000")
    assert (len(server.calls), server.effects) == (1, 1)


@pytest.mark.parametrize("charset", ["utf-16", "punycode", "bz2"])
async def test_a_stream_is_utf_8_whatever_it_says_of_itself(server: RawMcp, charset: str) -> None:
    """R201: some codecs take the square of the length, in the loop."""

    async def otherwise(peer: Peer) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset={charset}\r\n"
        await peer.raw(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        await answer(peer, peer.id)

    assert (await outcome_of(server, otherwise)).sent is Sent.ANSWERED


async def test_an_event_that_is_no_message_proves_nothing(server: RawMcp) -> None:
    """Nor does what looks like an answer under another type of event."""

    async def nonsense(peer: Peer) -> None:
        peer.act()
        await peer.open_stream()
        text = f'event: other\ndata: {{"jsonrpc":"2.0","id":{peer.id},"result":{{"content":[]}}}}\n\ndata: {{no\n\n'
        await peer.raw(f"{len(text):x}\r\n{text}\r\n".encode())

    outcome = await outcome_of(server, nonsense)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RPC_ERROR_32700")


async def test_a_ping_is_answered(resumable: RawMcp) -> None:
    """The one request of a server that needs no capability."""
    answered = asyncio.Event()

    async def pinging(peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "id": "p-1", "method": "ping"})
        await answered.wait()
        await answer(peer, peer.id)

    async def noted(peer: Peer) -> None:
        await peer.http(202, b"", "")
        answered.set()

    resumable.on["POST"] = noted
    assert (await outcome_of(resumable, pinging)).sent is Sent.ANSWERED
    (said,) = [seen.message for seen in resumable.seen if (seen.message or {}).get("id") == "p-1"]
    assert said == {"jsonrpc": "2.0", "id": "p-1", "result": {}}


async def test_a_refusal_that_nobody_takes_delays_no_answer(resumable: RawMcp) -> None:
    """The server asks, does not listen, and answers the call: beside it, and ended with it."""

    async def asking(peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "id": "s-1", **SAMPLING})
        await taken.wait()
        await answer(peer, peer.id)

    async def silent(peer: Peer) -> None:
        taken.set()
        await asyncio.sleep(60)

    taken = asyncio.Event()
    resumable.on["POST"] = silent
    begun = time.monotonic()
    assert (await outcome_of(resumable, asking, seconds=30.0)).sent is Sent.ANSWERED
    assert time.monotonic() - begun < 15


async def test_a_flood_of_requests_is_refused_within_bounds(resumable: RawMcp) -> None:
    """R201: what a server asks makes no more work than a call is worth."""

    async def flooding(peer: Peer) -> None:
        await peer.open_stream()
        for number in range(500):
            await peer.event({"jsonrpc": "2.0", "id": f"s-{number}", **SAMPLING})
        while sum("error" in (seen.message or {}) for seen in resumable.seen) < 64:
            await asyncio.sleep(0.01)
        await answer(peer, peer.id)

    assert (await outcome_of(resumable, flooding, seconds=30.0)).sent is Sent.ANSWERED
    assert sum("error" in (seen.message or {}) for seen in resumable.seen) == 64


async def test_a_stateless_server_may_ask_nothing() -> None:
    """2026-07-28 has no requests of the server: nothing is said to one."""
    async with RawMcp.serve(modern=True) as server:

        async def asking(peer: Peer) -> None:
            await peer.open_stream()
            await peer.event({"jsonrpc": "2.0", "id": "s-1", **SAMPLING})
            await asyncio.sleep(0.2)  # in which something could be said
            await answer(peer, peer.id)

        assert (await outcome_of(server, asking)).sent is Sent.ANSWERED
        assert [seen.method for seen in server.seen] == ["tools/list", "tools/call"]


@pytest.mark.parametrize("behaviour", ["drops", "is silent"])
async def test_nothing_is_said_after_a_call_without_an_answer(server: RawMcp, behaviour: str) -> None:
    """No DELETE, no repetition: bytes after the call would count against what is known of it."""
    reached = asyncio.Event()

    async def acting(peer: Peer) -> None:
        peer.act()
        reached.set()
        if behaviour == "drops":
            peer.drop()
        else:
            await asyncio.sleep(60)

    running = asyncio.create_task(outcome_of(server, acting, seconds=30.0))
    await reached.wait()
    if behaviour == "drops":
        assert (await running).sent is Sent.LOST
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert server.seen[-1].method == "tools/call"
    assert len(server.calls) == 1
