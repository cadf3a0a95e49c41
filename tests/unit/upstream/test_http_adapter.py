"""The HTTP plugin against real servers: what it sends, and what it makes of every kind of answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kblockd_http import classify
from kblockd_http.settings import Settings
from pydantic import ValidationError

from kblockd.upstream.adapter import AdapterFault, Facts, Outcome, Sent, ToolCall
from kblockd.upstream.catalog import CatalogError, Upstream, load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from tests.unit.upstream.plugin import call
from tests.upstreams.misbehaving import MisbehavingServer, Reply, Request

JSON = {"content-type": "application/json"}


class Scripted:
    """Answers with what the test puts into ``reply``."""

    def __init__(self) -> None:
        self.reply = Reply(200, JSON, b"{}")

    def is_call(self, request: Request) -> bool:
        return True

    def act(self, request: Request) -> None:
        """Nothing to keep."""

    def answer(self, request: Request, note: str) -> Reply:
        return self.reply


@asynccontextmanager
async def opened(
    tool: Mapping[str, Any], **settings: Any
) -> AsyncIterator[tuple[Upstream, MisbehavingServer, Scripted]]:
    app = Scripted()
    with MisbehavingServer(app) as server:
        config = UpstreamConfig.model_validate(
            {
                "adapter": "http",
                "url": f"http://127.0.0.1:{server.port}/base/",
                "allow_addresses": ["127.0.0.1/32"],
                "settings": {"tools": {"refund": dict(tool)}, **settings},
            }
        )
        async with open_upstreams({"shop": config}, load_plugins(["http"]), max_response_bytes=1 << 20) as upstreams:
            yield upstreams["shop"], server, app


def _call(arguments: Mapping[str, Any] | None = None, **changes: Any) -> ToolCall:
    return replace(call(), arguments=arguments or {}, **changes)


async def _answered(tool: Mapping[str, Any], status: int, body: bytes, **settings: Any) -> tuple[Outcome, int]:
    async with opened({"path": "/r", **tool}, **settings) as (upstream, server, app):
        app.reply = Reply(status, {**JSON, "x-request-id": "req-7"}, body)
        outcome = await upstream.write.invoke(_call())
        return outcome, len(server.requests)


@pytest.mark.parametrize(
    ("status", "body", "output"),
    [(200, b'{"a":1}', {"a": 1}), (201, b'{"a":1}', {"a": 1}), (204, b"", None), (200, b"", None), (200, b"[1]", [1])],
)
async def test_htp_03_every_2xx_is_an_answer_and_is_not_repeated(status: int, body: bytes, output: Any) -> None:
    """HTP-03: 201 and 204 are answers like 200."""
    outcome, requests = await _answered({}, status, body)
    assert (outcome.sent, outcome.is_error, outcome.output, outcome.code) == (Sent.ANSWERED, False, output, "")
    assert requests == 1


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        (b'{"operation":{"id":"op-1"}}', "op-1"),
        (b'{"operation":{"id":41}}', "41"),
        (b'{"operation":{"id":true}}', None),
        (b'{"operation":{}}', None),
        (b'{"operation":{"id":""}}', None),
        (b"", None),
    ],
)
async def test_htp_03_202_is_accepted_and_needs_an_operation(body: bytes, operation: str | None) -> None:
    """HTP-03, OUT-10: accepted is not done; work that cannot be asked for is unknown."""
    outcome, requests = await _answered({"operation": "/operation/id"}, 202, body)
    lost = (Sent.LOST, "OPERATION_MISSING")
    assert (outcome.sent, outcome.code) == (lost if operation is None else (Sent.ACCEPTED, ""))
    assert outcome.operation == operation
    assert requests == 1


@pytest.mark.parametrize(
    ("body", "sent", "is_error", "code"),
    [
        (b'{"ok":true}', Sent.ANSWERED, False, ""),
        (b'{"ok":false,"message":"no"}', Sent.ANSWERED, True, "REPORTED_FAILURE"),
        (b'{"ok":1}', Sent.ANSWERED, True, "REPORTED_FAILURE"),
        (b'{"ok":"true"}', Sent.ANSWERED, True, "REPORTED_FAILURE"),
        (b'{"fine":true}', Sent.LOST, False, "ANSWER_INCOMPLETE"),
        (b"", Sent.LOST, False, "ANSWER_INCOMPLETE"),
        (b"[]", Sent.LOST, False, "ANSWER_INCOMPLETE"),
    ],
)
async def test_htp_04_a_200_that_says_no_is_no_success(body: bytes, sent: Sent, is_error: bool, code: str) -> None:
    """HTP-04: the predicate decides, and an answer that does not say is unknown."""
    outcome, _ = await _answered({"success": {"pointer": "/ok", "equals": True}}, 200, body)
    assert (outcome.sent, outcome.is_error, outcome.code) == (sent, is_error, code)


async def test_htp_04_without_a_predicate_the_body_is_left_to_verification() -> None:
    """HTP-04: answered, not judged."""
    outcome, _ = await _answered({}, 200, b'{"ok":false}')
    assert (outcome.sent, outcome.is_error, outcome.output) == (Sent.ANSWERED, False, {"ok": False})


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (400, Sent.ANSWERED),
        (404, Sent.ANSWERED),
        (409, Sent.ANSWERED),
        (429, Sent.ANSWERED),
        (499, Sent.ANSWERED),
        (407, Sent.LOST),
        (408, Sent.LOST),
        (500, Sent.LOST),
        (504, Sent.LOST),
        (520, Sent.LOST),
        (524, Sent.LOST),
        (598, Sent.LOST),
    ],
)
@pytest.mark.parametrize("body", [b'{"error":"x"}', b"<html>", b""])
async def test_htp_08_ups_04_ups_05_an_error_is_reported_and_not_judged(status: int, sent: Sent, body: bytes) -> None:
    """HTP-08, MCP-06: never success, never repeated, and no word of what it proves; a 5xx is lost, JSON or not."""
    outcome, requests = await _answered({}, status, body)
    assert (outcome.sent, outcome.is_error, outcome.code) == (sent, True, f"HTTP_{status}")
    assert outcome.facts == Facts(True, "body", status, "application/json")
    assert outcome.output == ({"error": "x"} if body.startswith(b"{") else None)
    assert requests == 1
    assert len(outcome.raw_sha256) == 64


@pytest.mark.parametrize(
    ("headers", "media_type"),
    [
        ([(b"content-type", b"Application/Problem+JSON; charset=utf-8")], "application/problem+json"),
        ([(b"content-type", b"application/json"), (b"content-type", b"text/html")], ""),
        ([(b"content-type", b"json")], ""),
        ([(b"content-type", b"a/b, c/d")], ""),
        ([], ""),
    ],
)
def test_ups_06_the_media_type_is_the_one_that_is_said(headers: Any, media_type: str) -> None:
    """Two of them are none: whose word is it?"""
    assert classify.media_type(headers) == media_type


@pytest.mark.parametrize(("body", "at_work"), [(b'{"ok":true}', True), (b"<html>", True)])
async def test_htp_03_accepted_without_an_operation_goes_on(body: bytes, at_work: bool) -> None:
    """OUT-10: no look-up can prove that nothing comes of it."""
    outcome, _ = await _answered({"operation": "/id"}, 202, body)
    assert (outcome.sent, outcome.facts.at_work) == (Sent.LOST, at_work)


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":1e400}',
        b'{"n":NaN}',
        b'{"n":9007199254740993}',
        b'{"n":' + b"1" * 5000 + b"}",
        b'{"a":1,"a":2}',
        b'{"s":"\\ud800"}',
        b"[" * 40 + b"]" * 40,
    ],
    ids=["1e400", "nan", "2^53+1", "5000 digits", "twice", "surrogate", "deep"],
)
async def test_can_05_can_07_an_answer_without_canonical_form_stays_an_answer(body: bytes) -> None:
    """C26, CAN-01, CAN-05, CAN-07: RESULT_NOT_STORABLE with the digest of what came; not failed, not lost."""
    outcome, _ = await _answered({}, 200, body)
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.ANSWERED, "RESULT_NOT_STORABLE", None)
    assert outcome.detail == str(outcome.unreadable)
    assert len(outcome.raw_sha256) == 64


KEPT_BADLY = {
    "integer": b'{"ok":false,"n":12345678901234567890}',
    "decimal": b'{"ok":false,"n":0.12345678901234567890}',
    "twice": b'{"ok":false,"ok":true}',
    "nan": b'{"ok":false,"n":NaN}',
    "deep": b'{"ok":false,"n":' + b"[" * 33 + b"]" * 33 + b"}",
    "surrogate": b'{"ok":false,"n":"\\ud800"}',
}
PLACES = {"integer": "/n", "decimal": "/n", "twice": "/ok", "nan": "/n", "deep": "/n" + "/0" * 31, "surrogate": "/n"}


@pytest.mark.parametrize("name", KEPT_BADLY)
async def test_ups_12_an_answer_that_does_not_say_whether_it_worked_is_lost(name: str) -> None:
    """UPS-12: what the predicate would look at may be the very thing that cannot be kept."""
    outcome, _ = await _answered({"success": {"pointer": "/ok", "equals": True}}, 200, KEPT_BADLY[name])
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.LOST, "RESULT_NOT_STORABLE", None)
    assert outcome.unreadable is not None
    assert outcome.unreadable.place == PLACES[name]


@pytest.mark.parametrize("name", KEPT_BADLY)
@pytest.mark.parametrize("way", ["read", "lookup"])
async def test_ups_10_ups_11_ups_18_a_read_that_cannot_be_kept_has_failed(way: str, name: str) -> None:
    """UPS-10, UPS-11, UPS-18: lost, with the place, in the wrapper: no stage can take it for an answer of null."""
    async with opened({"path": "/r", "method": "GET"}) as (upstream, _, app):
        app.reply = Reply(200, JSON, KEPT_BADLY[name])
        outcome = await getattr(upstream.read, way)(_call())
    assert (outcome.sent, outcome.code, outcome.output) == (Sent.LOST, "RESULT_NOT_STORABLE", None)
    assert outcome.detail == f"unreadable at {PLACES[name]}: {outcome.unreadable.fault}"


@pytest.mark.parametrize("way", ["read", "lookup"])
@pytest.mark.parametrize("status", [200, 204])
async def test_no_content_answers_no_question(way: str, status: int) -> None:
    """UPS-10: null would be handed to policy; a literal null is the upstream's own word."""
    async with opened({"path": "/r", "method": "GET"}) as (upstream, _, app):
        app.reply = Reply(status, JSON, b"")
        empty = await getattr(upstream.read, way)(_call())
        app.reply = Reply(200, JSON, b"null")
        null = await getattr(upstream.read, way)(_call())
    assert (empty.sent, empty.code) == (Sent.LOST, "ANSWER_EMPTY")
    assert (null.sent, null.code) == (Sent.ANSWERED, "")


async def test_ups_18_numbers_can_be_kept_as_text() -> None:
    """UPS-18: the literals of what no double holds exactly; everything else is as it was, a leading mark is skipped."""
    body = b'\xef\xbb\xbf{"n":12345678901234567890,"d":0.12345678901234567890,"small":7,"half":0.5,"big":1e400}'
    async with opened({"path": "/r", "method": "GET"}) as (upstream, _, app):
        app.reply = Reply(200, JSON, body)
        refused = await upstream.read.read(_call())
        kept = await upstream.read.read(_call(numbers="text"))
    assert refused.sent is Sent.LOST
    assert kept.output == {
        "n": "12345678901234567890",
        "d": "0.12345678901234567890",
        "small": 7,
        "half": 0.5,
        "big": "1e400",
    }


@pytest.mark.parametrize("progress", [{"pointer": "/state", "running": ["running"]}, None])
async def test_ups_10_a_poll_that_cannot_be_kept_is_no_end(progress: Any) -> None:
    """UPS-10: whether the work goes on stands in what cannot be read."""
    poll = {"method": "GET", "path": "/p/{operation}"}
    async with opened({"path": "/r", "poll": poll, "progress": progress}) as (upstream, _, app):
        app.reply = Reply(200, JSON, b'{"state":"running","n":12345678901234567890}')
        outcome = await upstream.write.poll("op-1", _call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "RESULT_NOT_STORABLE")


@pytest.mark.parametrize(("status", "sent"), [(404, Sent.ANSWERED), (500, Sent.LOST)])
async def test_an_error_answer_stays_one_whatever_is_in_its_body(status: int, sent: Sent) -> None:
    async with opened({"path": "/r", "method": "GET"}) as (upstream, _, app):
        app.reply = Reply(status, JSON, KEPT_BADLY["integer"])
        outcome = await upstream.read.read(_call())
    assert (outcome.sent, outcome.is_error, outcome.unreadable) == (sent, True, None)
    assert outcome.code == f"HTTP_{status}"


HALVES = {
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "digits": b'{"n":' + b"1" * 6000,
    "decimals": b'{"n":0.' + b"1" * 6000,
    "digits in an array": b"[" + b"1" * 6000,
    "a whole bomb": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("body", HALVES.values(), ids=HALVES.keys())
async def test_ups_13_only_what_parses_to_its_end_is_a_whole_answer(body: bytes) -> None:
    """UPS-13: levels and digits that the parser gives up at do not make half a body a whole one. So many levels are
    not read to the end, so nobody knows."""
    outcome, _ = await _answered({}, 200, body)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "ANSWER_NOT_JSON")


@pytest.mark.parametrize("body", [b"<html>ok</html>", b'{"ok":tru', b"\xff\xfe", b"ok", '{"ok":true}'.encode("utf-16")])
async def test_an_answer_that_is_no_json_is_lost(body: bytes) -> None:
    """A page in between is not the tool's answer (HTP-06), and JSON is UTF-8 (RFC 8259)."""
    outcome, _ = await _answered({}, 200, body)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "ANSWER_NOT_JSON")


async def test_r202_identifiers_of_the_upstream_are_kept() -> None:
    """R202: by the name that the configuration gives them."""
    outcome, _ = await _answered({}, 200, b"{}", request_ids={"request": "X-Request-Id", "absent": "X-None"})
    assert outcome.request_ids == {"request": "req-7"}


async def _sent(tool: Mapping[str, Any], given: ToolCall) -> Request:
    async with opened(tool) as (upstream, server, _):
        outcome = await upstream.write.invoke(given)
        assert outcome.sent is Sent.ANSWERED, outcome
        (request,) = server.requests
        return request


async def test_arguments_go_where_the_template_says() -> None:
    """R199, R207: path and query escaped, the rest as canonical JSON, nothing twice."""
    arguments = {"id": "a/b?c#d ü", "page": 2, "flag": True, "b": {"z": 1, "a": [None]}, "a": "x"}
    request = await _sent({"path": "/o/{id}/r", "query": ["page", "flag"]}, _call(arguments))
    assert request.target == "/base/o/a%2Fb%3Fc%23d%20%C3%BC/r?page=2&flag=true"
    assert request.body == b'{"a":"x","b":{"a":[null],"z":1}}'
    assert request.headers["content-type"] == "application/json"


async def test_a_get_puts_the_rest_into_the_query() -> None:
    """No body."""
    request = await _sent({"method": "GET", "path": "/o/{id}"}, _call({"id": "1", "q": "a&b=c"}))
    assert (request.method, request.target, request.body) == ("GET", "/base/o/1?q=a%26b%3Dc", b"")
    assert "content-type" not in request.headers


@pytest.mark.parametrize("place", ["header", "argument", "none"])
async def test_the_effect_key_goes_where_the_contract_says(place: Any) -> None:
    """R207: header or argument (also one in the path), or nowhere."""
    given = _call({"a": 1}, effect_key="k" * 64, effect_key_in=place, effect_key_name="Idempotency-Key")
    request = await _sent({"path": "/r"}, given)
    assert ("k" * 64 in request.headers.get("idempotency-key", "")) == (place == "header")
    assert ("k" * 64 in request.body.decode()) == (place == "argument")


async def test_trace_context_goes_out_and_baggage_does_not() -> None:
    """W3C trace context only."""
    trace = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "x=1", "baggage": "secret=1"}
    request = await _sent({"path": "/r"}, _call(trace=trace))
    assert request.headers["traceparent"] == trace["traceparent"]
    assert request.headers["tracestate"] == "x=1"
    assert "baggage" not in request.headers


@pytest.mark.parametrize(
    ("tool", "changes", "code"),
    [
        ({"path": "/o/{id}"}, {}, "ARGUMENT_MISSING"),
        ({"path": "/o/{id}"}, {"arguments": {"id": ""}}, "ARGUMENT_NOT_SENDABLE"),
        ({"path": "/o/{id}/x"}, {"arguments": {"id": ".."}}, "ARGUMENT_NOT_SENDABLE"),
        ({"path": "/o/{id}{id}/x"}, {"arguments": {"id": "."}}, "ARGUMENT_NOT_SENDABLE"),
        ({"path": "/o/{id}"}, {"arguments": {"id": ["a"]}}, "ARGUMENT_NOT_SENDABLE"),
        ({"path": "/o", "query": ["q"]}, {"arguments": {"q": {"a": 1}}}, "ARGUMENT_NOT_SENDABLE"),
        (
            {"path": "/o"},
            {"effect_key": "k", "effect_key_in": "meta", "effect_key_name": "x/y"},
            "EFFECT_KEY_MISPLACED",
        ),
        (
            {"path": "/o"},
            {"effect_key": "k", "effect_key_in": "header", "effect_key_name": "Host"},
            "EFFECT_KEY_MISPLACED",
        ),
        (
            {"path": "/o"},
            {"arguments": {"k": 1}, "effect_key": "k", "effect_key_in": "argument", "effect_key_name": "k"},
            "EFFECT_KEY_MISPLACED",
        ),
        (
            {"path": "/o"},
            {"effect_key": "k", "effect_key_in": "header", "effect_key_name": "X\r\nY"},
            "REQUEST_NOT_SENDABLE",
        ),
        ({"path": "/o"}, {"tool": "other"}, "TOOL_UNKNOWN"),
    ],
)
async def test_what_cannot_be_sent_is_not_sent(tool: dict[str, Any], changes: dict[str, Any], code: str) -> None:
    """Nothing is guessed or completed, and no byte leaves."""
    async with opened(tool) as (upstream, server, _):
        outcome = await upstream.write.invoke(replace(call(), **{"arguments": {}, **changes}))
        assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, code)
        assert server.requests == []


POLLED = {
    "path": "/r",
    "operation": "/id",
    "poll": {"method": "GET", "path": "/ops/{operation}"},
    "progress": {"pointer": "/status", "running": ["queued", "running"]},
    "success": {"pointer": "/status", "equals": "done"},
    "cancel": {"method": "DELETE", "path": "/ops/{operation}"},
}


@pytest.mark.parametrize(
    ("status", "body", "sent", "is_error"),
    [
        (200, {"status": "queued"}, Sent.ACCEPTED, False),
        (202, {"status": "running"}, Sent.ACCEPTED, False),
        (200, {"status": "done"}, Sent.ANSWERED, False),
        (202, {"status": "done"}, Sent.ANSWERED, False),
        (200, {"status": "failed"}, Sent.ANSWERED, True),
        (404, {"error": "gone"}, Sent.ANSWERED, True),
        (503, {}, Sent.LOST, True),
        (500, {}, Sent.LOST, True),
    ],
)
async def test_out_10_r204_polls_say_whether_work_goes_on(status: int, body: Any, sent: Sent, is_error: bool) -> None:
    """R204, OUT-10: accepted until the answer says otherwise."""
    async with opened(POLLED) as (upstream, server, app):
        app.reply = Reply(status, JSON, json.dumps(body).encode())
        outcome = await upstream.read.poll("op/1", _call({"a": 1}))
        assert (outcome.sent, outcome.is_error) == (sent, is_error)
        if sent is Sent.ACCEPTED:
            assert outcome.operation == "op/1"
        assert (server.requests[0].method, server.requests[0].target) == ("GET", "/base/ops/op%2F1")
        assert server.requests[0].body == b""


@pytest.mark.parametrize("body", [b"{}", b'{"status":null}', b"null", b"[]", b"", b'{"message":"ok"}'])
async def test_out_10_a_poll_that_does_not_say_whether_work_goes_on_is_no_end(body: bytes) -> None:
    """OUT-10: an answer of something in between, or of a server that is starting, ends no operation."""
    async with opened({**POLLED, "success": None}) as (upstream, _, app):
        app.reply = Reply(200, JSON, body)
        outcome = await upstream.read.poll("op-1", _call())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "ANSWER_INCOMPLETE")


@pytest.mark.parametrize(("body", "sent"), [({"status": None}, Sent.ACCEPTED), ({"status": "done"}, Sent.ANSWERED)])
async def test_out_10_null_can_be_a_word_for_work_that_goes_on(body: Any, sent: Sent) -> None:
    """Where the configuration names it."""
    progress = {"pointer": "/status", "running": [None]}
    async with opened({**POLLED, "success": None, "progress": progress}) as (upstream, _, app):
        app.reply = Reply(200, JSON, json.dumps(body).encode())
        assert (await upstream.read.poll("op-1", _call())).sent is sent


async def test_cancel_asks_once_and_proves_nothing() -> None:
    """An answer to a cancel is an answer, whatever its status."""
    async with opened(POLLED) as (upstream, server, app):
        app.reply = Reply(202, JSON, b"{}")
        assert (await upstream.write.cancel("op-1", _call())).sent is Sent.ANSWERED
        assert [(request.method, request.target) for request in server.requests] == [("DELETE", "/base/ops/op-1")]


async def test_without_poll_or_cancel_nothing_is_sent() -> None:
    """The contract's author learns which setting is missing."""
    async with opened({"path": "/r"}) as (upstream, server, _):
        polled = await upstream.read.poll("op", _call())
        cancelled = await upstream.write.cancel("op", _call())
        assert (polled.sent, polled.code) == (Sent.NOT_SENT, "POLL_NOT_CONFIGURED")
        assert (cancelled.sent, cancelled.code) == (Sent.NOT_SENT, "CANCEL_NOT_CONFIGURED")
        assert server.requests == []


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, b"{}", "HTTP_404"),
        (200, b"<html>", "DEFINITION_NOT_CANONICAL"),
        (200, b'{"a":1,"a":2}', "DEFINITION_NOT_CANONICAL"),
        (200, b'{"paths":{}}', "TOOL_UNKNOWN"),
    ],
)
async def test_a_definition_that_cannot_be_read_is_a_fault(status: int, body: bytes, code: str) -> None:
    """Before anything is consumed."""
    tool = {"path": "/r", "definition": "/paths/refund"}
    async with opened(tool, document={"path": "/openapi.json"}) as (upstream, _, app):
        app.reply = Reply(status, JSON, body)
        with pytest.raises(AdapterFault) as fault:
            await upstream.read.describe("refund", call().deadline)
        assert fault.value.code == code


async def test_the_template_is_part_of_the_definition() -> None:
    """MCP-13 for HTTP: another path, predicate or proof is another definition, without asking the server."""
    found = []
    for tool in ({"path": "/r"}, {"path": "/r2"}, {"path": "/r", "success": {"pointer": "/ok", "equals": True}}):
        async with opened(tool) as (upstream, server, _):
            found.append((await upstream.read.describe("refund", call().deadline)).definition)
            assert server.requests == []
    assert len({json.dumps(definition, sort_keys=True) for definition in found}) == 3


@pytest.mark.parametrize(
    "tool",
    [
        {"path": "r"},
        {"path": "//other.example/r"},
        {"path": "/a/../b"},
        {"path": "/r?x=1"},
        {"path": "/r#x"},
        {"path": "/r\r\nX: y"},
        {"path": "/{a b}"},
        {"path": "/r", "method": "TRACE"},
        {"path": "/r", "headers": {"Authorization": "Bearer x"}},
        {"path": "/r", "headers": {"X": "a\r\nb"}},
        {"path": "/r", "success": {"pointer": "ok", "equals": 1}},
        {"path": "/r", "not_executed_statuses": [409]},
        {"path": "/r", "retries": 3},
    ],
)
def test_settings_that_could_surprise_are_refused(tool: dict[str, Any]) -> None:
    """At the start, by the frozen model."""
    with pytest.raises(ValidationError):
        Settings.model_validate({"tools": {"refund": tool}})


async def test_a_url_with_a_query_is_refused() -> None:
    """Its parameters would be lost silently."""
    config = UpstreamConfig.model_validate({"adapter": "http", "url": "http://127.0.0.1/x?key=1"})
    with pytest.raises(CatalogError, match="must not carry a query"):
        async with open_upstreams({"a": config}, load_plugins(["http"]), max_response_bytes=1):
            pass
