"""What the MCP plugin makes of an answer that is whole and cannot be kept, or that is not whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kblockd.domain.answer import AnswerFault, Unreadable
from kblockd.upstream.adapter import Outcome, Sent
from tests.integration.mcp.rig import HANDSHAKE, MODERN, adapter, call
from tests.upstreams.raw_mcp import TOOL, Behaviour, Peer, RawMcp


@pytest.fixture(params=[MODERN, HANDSHAKE])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RawMcp]:
    async with RawMcp.serve(modern=request.param == MODERN) as running:
        running.tools = [{name: value for name, value in TOOL.items() if name != "outputSchema"}]
        yield running


def saying(result: bytes, *, more: bytes = b"", events: bool = False) -> Behaviour:
    """A JSON-RPC answer with these bytes as its result, as one body or in an event stream."""

    async def behave(peer: Peer) -> None:
        text = b'{"jsonrpc":"2.0","id":%d,%s"result":%s}' % (peer.id, more, result)
        if not events:
            await peer.http(200, text)
            return
        await peer.open_stream()
        event = b"data: " + text + b"\n\n"
        await peer.raw(b"%x\r\n%s\r\n" % (len(event), event))

    return behave


def structured(value: bytes) -> bytes:
    return b'{"resultType":"complete","content":[],"structuredContent":' + value + b"}"


def texted(value: bytes) -> bytes:
    return b'{"resultType":"complete","content":[{"type":"text","text":%s}]}' % json.dumps(value.decode()).encode()


async def said(server: RawMcp, behaviour: Behaviour, way: str = "read", **how: Any) -> Outcome:
    server.on["tools/call"] = behaviour
    outcome: Outcome = await getattr(adapter(server.url), way)(call(**how))
    return outcome


VALUES = {
    "integer": (b'{"a":[{"n":12345678901234567890}]}', Unreadable(AnswerFault.INTEGER, "/a/0/n")),
    "decimal": (b'{"a":0.12345678901234567890}', Unreadable(AnswerFault.DECIMAL, "/a")),
    "twice": (b'{"exists":true,"exists":false}', Unreadable(AnswerFault.TWICE, "/exists")),
    "nan": (b'{"a":NaN}', Unreadable(AnswerFault.CONSTANT, "/a")),
    "deep": (b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", Unreadable(AnswerFault.DEPTH, "/a" + "/0" * 31)),
}


@pytest.mark.parametrize("shape", [structured, texted])
@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize(("value", "found"), VALUES.values(), ids=VALUES.keys())
async def test_ups_10_ups_18_an_answer_that_cannot_be_kept_says_where(
    server: RawMcp, shape: Any, events: bool, value: bytes, found: Unreadable
) -> None:
    """UPS-10, UPS-18: the place is that of the output, however it travelled; nothing is rounded, guessed or dropped."""
    for way in ("read", "lookup", "invoke"):
        outcome = await said(server, saying(shape(value), events=events), way)
        assert (outcome.sent, outcome.is_error, outcome.output) == (Sent.ANSWERED, False, None)
        assert (outcome.code, outcome.unreadable) == ("RESULT_NOT_STORABLE", found)


@pytest.mark.parametrize("shape", [structured, texted])
async def test_ups_18_numbers_as_text(server: RawMcp, shape: Any) -> None:
    value = b'{"n":12345678901234567890,"d":0.12345678901234567890,"small":7}'
    outcome = await said(server, saying(shape(value)), numbers="text")
    assert outcome.output == {"n": "12345678901234567890", "d": "0.12345678901234567890", "small": 7}
    assert (outcome.sent, outcome.unreadable) == (Sent.ANSWERED, None)


async def test_ups_18_a_byte_order_mark_in_the_text(server: RawMcp) -> None:
    """UPS-18: skipped at the start; between members the text is no content that a policy could misread."""
    outcome = await said(server, saying(texted('\ufeff{"a":1}'.encode())))
    assert outcome.output == {"a": 1}
    outcome = await said(server, saying(texted('{"a":1,\ufeff"b":2}'.encode())))
    assert (outcome.output, outcome.unreadable) == (None, Unreadable(AnswerFault.BOM))
    outcome = await said(server, saying(texted("plain \ufeff words".encode())))
    assert outcome.output == {"content": [{"type": "text", "text": "plain \ufeff words"}]}


async def test_ups_18_a_byte_order_mark_in_the_frame(server: RawMcp) -> None:
    outcome = await said(server, saying(b'{"resultType":"complete",\xef\xbb\xbf"content":[]}'))
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RPC_ERROR_32700")
    assert outcome.unreadable == Unreadable(AnswerFault.BOM, "/result")


async def test_ups_13_a_text_that_only_begins_as_an_object_is_no_evidence(server: RawMcp) -> None:
    """UPS-13: a tool that cuts its own text at a length. Of an effect it is a text like any other."""
    half = saying(texted(b'{"refunds":[{"id":1},{"id'))
    for way in ("read", "lookup"):
        outcome = await said(server, half, way)
        assert (outcome.output, outcome.unreadable) == (None, Unreadable(AnswerFault.HALF))
    effect = await said(server, half, "invoke")
    assert (effect.sent, effect.unreadable) == (Sent.ANSWERED, None)
    assert effect.output == {"content": [{"type": "text", "text": '{"refunds":[{"id":1},{"id'}]}


@pytest.mark.parametrize("end", [b"[" * 200_000, b"1" * 6000], ids=["levels", "digits"])
async def test_ups_13_half_a_message_is_lost(server: RawMcp, end: bytes) -> None:
    async def behave(peer: Peer) -> None:
        await peer.http(200, b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"a":%s' % (peer.id, end))

    outcome = await said(server, behave, "invoke")
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RPC_ERROR_32700")


@pytest.mark.parametrize(
    ("result", "more"),
    [
        (b'{"isError":true,"isError":false,"content":[]}', b""),
        (b'{"resultType":"complete","content":[]}', b'"result":{"resultType":"task"},'),
        (b'{"resultType":"complete","content":[]}', b'"id":4711,'),
    ],
)
async def test_ups_10_a_message_that_says_two_things_says_nothing(server: RawMcp, result: bytes, more: bytes) -> None:
    """Which of two equal keys counts is a guess, and here it decides what became of the call."""
    outcome = await said(server, saying(result, more=more), "invoke")
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RPC_ERROR_32700")


async def test_what_nobody_reads_may_be_odd(server: RawMcp) -> None:
    """A trace id in ``_meta`` that no double holds takes no answer away."""
    result = b'{"resultType":"complete","_meta":{"t":12345678901234567890},"content":[],"structuredContent":{"a":1}}'
    outcome = await said(server, saying(result))
    assert (outcome.sent, outcome.output) == (Sent.ANSWERED, {"a": 1})


async def test_an_error_of_the_tool_stays_one(server: RawMcp) -> None:
    result = b'{"resultType":"complete","isError":true,"content":[],"structuredContent":{"a":NaN}}'
    outcome = await said(server, saying(result))
    assert (outcome.sent, outcome.is_error, outcome.code, outcome.output) == (Sent.ANSWERED, True, "TOOL_ERROR", None)
    assert outcome.unreadable is None
