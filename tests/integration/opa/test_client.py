"""Every way in which an OPA, or something in its place, can answer wrongly: denied, with what it was."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kblockd.domain.canonical import canonical
from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.opa.access import Endpoint
from kblockd.policy.opa.client import MAX_ANSWER, Opa
from tests.contract.policy.support import HANG_SECONDS, document
from tests.elsewhere import elsewhere
from tests.integration.opa.stub import ANSWER, REVISION, Respond, Stub, drip, http, raw, silence, stub

GIVEN = canonical(document(memo="ä \U0001f4b6"))
BAD = b"garbage"


def opa(server: Stub, **more: Any) -> Opa:
    return Opa(Endpoint(host="127.0.0.1", port=server.port, **more))


async def failure(respond: Respond, seconds: float = 20.0) -> PolicyFailure:
    """Of one question to a server that responds so; an answer fails the test."""
    async with stub(respond) as server:
        asked = opa(server)
        try:
            with pytest.raises(PolicyFailure) as raised:
                await asked.ask(DECISION, GIVEN, REVISION, seconds)
            assert len(server.requests) <= 1  # nothing is ever asked twice
            return raised.value
        finally:
            await asked.close()


def with_bundles(*revisions: Any) -> dict[str, Any]:
    return {**ANSWER, "provenance": {"bundles": {str(n): {"revision": r} for n, r in enumerate(revisions)}}}


ERRORS: dict[str, Any] = {
    "code": "internal_error",
    "message": "error(s) occurred",
    "errors": [
        {
            "code": "eval_builtin_error",
            "message": "to_number: invalid syntax hunter2",
            "location": {"file": "decision.rego", "row": 7, "col": 2},
        }
    ],
}
CANCELLED = {**ERRORS, "errors": [{**ERRORS["errors"][0], "code": "eval_cancel_error"}]}
BOTH = {**ERRORS, "errors": [*ERRORS["errors"], *CANCELLED["errors"]]}
WRONG: dict[str, tuple[Respond, Reason, str]] = {
    "500": (http(BAD, 500), Reason.POLICY_DOWN, "answered 500"),
    "500 of a rule": (http(ERRORS, 500), Reason.POLICY_ERROR, "decision.rego:7:2: eval_builtin_error"),
    "503 of a rule": (http(ERRORS, 503), Reason.POLICY_DOWN, "decision.rego:7:2: eval_builtin_error"),
    "500 cancelled": (http(CANCELLED, 500), Reason.POLICY_DOWN, "decision.rego:7:2: eval_cancel_error"),
    "500 of both": (http(BOTH, 500), Reason.POLICY_DOWN, "eval_cancel_error"),
    "503": (http(ANSWER, 503), Reason.POLICY_DOWN, "answered 503"),
    "404": (http(ANSWER, 404), Reason.POLICY_DOWN, "answered 404"),
    "201": (http(ANSWER, 201), Reason.POLICY_DOWN, "answered 201"),
    "204": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), Reason.POLICY_DOWN, "answered 204"),
    "401": (http(ANSWER, 401), Reason.POLICY_DOWN, "credential"),
    "403": (http(ANSWER, 403), Reason.POLICY_DOWN, "credential"),
    "garbage": (http(BAD), Reason.POLICY_TYPE, "not a JSON object"),
    "nothing": (http(b""), Reason.POLICY_TYPE, "not a JSON object"),
    "an array": (http(json.dumps([ANSWER]).encode()), Reason.POLICY_TYPE, "not a JSON object"),
    "NaN": (http(b'{"result": NaN}'), Reason.POLICY_TYPE, "not a JSON object"),
    "a key twice": (http(json.dumps(ANSWER)[:-1].encode() + b', "result": {}}'), Reason.POLICY_TYPE, "not a JSON"),
    "nested": (http(b'{"result":' * 100_000), Reason.POLICY_TYPE, "not a JSON object"),
    "packed": (http(gzip.compress(json.dumps(ANSWER).encode())), Reason.POLICY_TYPE, "not a JSON object"),
    "packed and says so": (
        http(gzip.compress(json.dumps(ANSWER).encode()), 200, "Content-Encoding: gzip"),
        Reason.POLICY_TYPE,
        "not a JSON object",
    ),
    "no provenance": (http({"result": ANSWER["result"]}), Reason.POLICY_DOWN, "names no revision"),
    "provenance of no type": (http({**ANSWER, "provenance": []}), Reason.POLICY_DOWN, "names no revision"),
    "no bundle": (http(with_bundles()), Reason.POLICY_DOWN, "names no revision"),
    "bundle without revision": (http(with_bundles("")), Reason.POLICY_DOWN, "names no revision"),
    "revision of no type": (http(with_bundles(["x"])), Reason.POLICY_DOWN, "names no revision"),
    "old revision": (http(with_bundles("b" * 64)), Reason.POLICY_DOWN, f"serves revision {'b' * 64}, {REVISION} is"),
    "strange revision": (http(with_bundles("\x1b[2J")), Reason.POLICY_DOWN, "revision of an unreadable name"),
    "two bundles": (http(with_bundles(REVISION, REVISION)), Reason.POLICY_DOWN, "serves 2 bundles"),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n", close=True), Reason.POLICY_DOWN, "not HTTP"),
    "ended at once": (raw(b"", close=True), Reason.POLICY_DOWN, "ended before the answer"),
    "ended in the middle": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", close=True),
        Reason.POLICY_DOWN,
        "ended before the answer",
    ),
    "too long": (http(b" " * (MAX_ANSWER + 1)), Reason.POLICY_DOWN, "too long"),
}


@pytest.mark.parametrize(("respond", "reason", "says"), WRONG.values(), ids=WRONG.keys())
async def test_pol_05_wrong_answers_are_denied_and_say_what_they_were(
    respond: Respond, reason: Reason, says: str
) -> None:
    """R110: everything but a whole answer of the revision in force denies."""
    found = await failure(respond)
    assert found.reason is reason
    assert says in found.message
    assert "hunter2" not in found.message


async def test_pol_01_undefined_is_told_from_a_value() -> None:
    async with stub(http({"provenance": ANSWER["provenance"]})) as server:
        asked = opa(server)
        assert await asked.ask(DECISION, GIVEN, REVISION, 20.0) == {"undefined": True}
        server.respond = http({**ANSWER, "result": None})
        assert await asked.ask(DECISION, GIVEN, REVISION, 20.0) == {"value": None}
        await asked.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed(status: int) -> None:
    """A 307 would send the input, and the token, to another server."""
    async with stub(http(ANSWER)) as elsewhere:
        found = await failure(http(b"", status, f"Location: {elsewhere.url}/v1/data/kblock/decision/result"))
        assert found.reason is Reason.POLICY_DOWN
        assert "redirect" in found.message
        assert elsewhere.requests == []


@pytest.mark.parametrize("respond", [silence, drip])
async def test_pol_10_no_answer_is_a_denial_in_time(respond: Respond) -> None:
    """One deadline around everything, whatever comes in between, and no second attempt."""
    started = time.monotonic()
    found = await failure(respond, 0.5)
    assert found.reason is Reason.POLICY_TIMEOUT
    assert 0.4 < time.monotonic() - started < HANG_SECONDS / 2


def stopped(respond: Respond, seconds: float) -> Mapping[str, Any]:
    """One question on the daemon's loop, which stands still once OPA has it, until after the deadline; OPA does not."""
    still = threading.Event()

    def stand_still() -> None:
        still.set()
        time.sleep(seconds * 1.25)

    async def play() -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()

        async def told(writer: asyncio.StreamWriter) -> None:
            loop.call_soon_threadsafe(stand_still)
            assert await asyncio.to_thread(still.wait, HANG_SECONDS)
            await respond(writer)

        with elsewhere(stub(told)) as server:
            asked = opa(server)
            try:
                return await asked.ask(DECISION, GIVEN, REVISION, seconds)
            finally:
                await asked.close()

    return uvloop.run(play())


def test_an_answer_that_came_while_the_loop_stood_still_is_used() -> None:
    """uvloop runs its timers before it reads what came meanwhile: an answer that was in time."""
    assert stopped(http(ANSWER), 2.0)["value"]["effect"] == "allow"


@pytest.mark.parametrize("respond", [silence, drip])
def test_pol_10_no_answer_is_a_denial_also_after_a_standstill(respond: Respond) -> None:
    """What came meanwhile is looked at once, and waited for no longer."""
    started = time.monotonic()
    with pytest.raises(PolicyFailure) as raised:
        stopped(respond, 0.4)
    assert raised.value.reason is Reason.POLICY_TIMEOUT
    assert time.monotonic() - started < HANG_SECONDS / 2


async def test_nobody_listens() -> None:
    async with stub() as server:
        port = server.port
    asked = Opa(Endpoint(host="127.0.0.1", port=port))
    with pytest.raises(PolicyFailure, match="no connection") as raised:
        await asked.ask(DECISION, GIVEN, REVISION, 20.0)
    assert raised.value.reason is Reason.POLICY_DOWN
    await asked.close()


async def test_question_is_the_canonical_input_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte what was digested; neither proxies nor netrc nor cookies take part."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login thief password thief\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with stub(http(ANSWER)) as proxy, stub(http(ANSWER, 200, "Set-Cookie: a=b")) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        asked = opa(server, token="hunter2")
        for _ in range(2):
            assert (await asked.ask(DECISION, GIVEN, REVISION, 20.0))["value"]["effect"] == "allow"
        await asked.close()
        assert proxy.requests == []
    for request in server.requests:
        assert request.body == b'{"input":' + GIVEN + b"}"
        method, target, _ = request.line.split(" ")
        assert method == "POST"
        assert target == "/v1/data/kblock/decision/result?provenance=true&strict-builtin-errors=true"
        assert request.headers["authorization"] == "Bearer hunter2"
        assert request.headers["accept-encoding"] == "identity"
        assert "cookie" not in request.headers


@pytest.mark.parametrize("entrypoint", ["kblock/decision/result#x", "kblock/../x", "kblock/decision", "", "x?y=z"])
async def test_only_the_entry_points_are_asked(entrypoint: str) -> None:
    """The client does not escape paths: ``a#b`` would ask ``a``."""
    async with stub(http(ANSWER)) as server:
        asked = opa(server)
        with pytest.raises(PolicyFailure) as raised:
            await asked.ask(entrypoint, GIVEN, REVISION, 20.0)
        assert raised.value.reason is Reason.POLICY_UNDEFINED
        assert server.requests == []
        await asked.close()


async def test_whoever_stops_waiting_ends_the_evaluation() -> None:
    """The connection is closed, which is what tells OPA to stop."""
    ended = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            ended.set()

    async with stub(wait) as server:
        asked = opa(server)
        question = asyncio.create_task(asked.ask(DECISION, GIVEN, REVISION, HANG_SECONDS))
        while not server.requests:
            await asyncio.sleep(0.01)
        question.cancel()
        async with asyncio.timeout(HANG_SECONDS):
            await ended.wait()
        await asked.close()


async def test_after_close_nothing_is_sent() -> None:
    async with stub(http(ANSWER)) as server:
        asked = opa(server)
        await asked.close()
        await asked.close()
        with pytest.raises(PolicyFailure) as raised:
            await asked.ask(DECISION, GIVEN, REVISION, 20.0)
        assert raised.value.reason is Reason.POLICY_DOWN
        assert server.requests == []


@pytest.mark.parametrize("host", ["10.0.0.1", "opa.example.com", "localhost", "[::2]", "0.0.0.0"])
def test_plain_http_goes_nowhere_but_to_loopback_addresses(host: str) -> None:
    """Not to a name either, which can stand for anything tomorrow."""
    with pytest.raises(ValueError, match="loopback"):
        Endpoint(host=host, port=8181, token="hunter2")


def test_token_is_in_no_representation() -> None:
    assert "hunter2" not in repr(Endpoint(host="127.0.0.1", port=1, token="hunter2"))
