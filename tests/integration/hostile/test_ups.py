"""UPS-01 to UPS-09 against a real daemon: what an upstream says proves nothing, and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed, Held, UpstreamError
from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from tests.harness import approve, merged
from tests.integration.hostile.lanes import Lane, configure
from tests.integration.pipeline.local import LocalSite, ask, body, in_background, records, refund_in, types, until
from tests.upstreams import rest_app
from tests.upstreams.messages import Reply, said
from tests.upstreams.misbehaving import Mode, Turn
from tests.upstreams.modes import Behaviour, answering, dropping

_numbers = itertools.count(1)
OWN = {"in": "body", "media_type": rest_app.PROBLEM, "has": "/code"}
CHANGES: dict[str, dict[str, Any]] = {
    "http-free": {"errors": OWN, "errors_are_effect_free": True},
    "http-listed": {"errors": {**OWN, "rejected_before_work": [409]}, "attempts": 3},
    "http-busy": {"errors": {**OWN, "in_progress": [409]}},
    "mcp-one": {"errors": None, "attempts": 1},
    "mcp-free": {"errors": {"in": "tool_result", "has": "/code"}, "errors_are_effect_free": True},
}


@dataclass(frozen=True)
class Declared(Lane):
    """A lane whose contract says what its name stands for."""

    def contract(self) -> dict[str, Any]:
        """With ``CHANGES``."""
        changes = dict(CHANGES[self.name])
        attempts = changes.pop("attempts", 2)
        made: dict[str, Any] = merged(super().contract(), {"execution": {"maximum_attempts": attempts}})
        made["tool"].update(changes)
        return made


@dataclass
class Stage:
    """The daemon and its lanes by name."""

    site: LocalSite
    lanes: dict[str, Lane]

    def play(self, name: str, *script: Behaviour) -> Played:
        """One approved refund whose calls meet the script, and all that is known of it."""
        lane = self.lanes[name]
        number = next(_numbers)
        call = refund_in(name, f"o-{number}", key=f"{name}-{number}")
        approve(self.site, ask(self.site, call).approval_id)
        calls, looks = len(lane.server.calls), self._looks(lane)
        lane.server.script[:] = script
        lane.server.misbehave(Mode.SCRIPTED)
        with self.site.client() as agent:
            answer = agent.execute(call)
        return Played(
            answer,
            len(lane.server.app.refunds.of(f"o-{number}")),
            len(lane.server.calls) - calls,
            self._looks(lane) - looks,
            bodies(self.site, answer.execution_id, "attempt.outcome"),
        )

    @staticmethod
    def _looks(lane: Lane) -> int:
        return sum(lane.server.app.is_lookup(request) for request in list(lane.server.requests))


@dataclass
class Played:
    """``calls`` and ``looks`` are requests that the upstream has read."""

    answer: Answer
    effects: int
    calls: int
    looks: int
    outcomes: list[dict[str, Any]]

    def found(self) -> None:
        """Unknown, looked up by the effect key, and found: one call, one effect."""
        assert isinstance(self.answer, Completed)
        assert self.answer.result_class == "completed_verified"
        assert (self.effects, self.calls) == (1, 1)
        assert self.looks > 0
        (outcome,) = self.outcomes
        assert (outcome["class"], outcome["proof"]) == ("unknown_outcome", "")


def bodies(site: LocalSite, execution_id: str, type_: str) -> list[dict[str, Any]]:
    """Of the records of one type, in order."""
    return [record["body"] for record in records(site, execution_id) if record["type"] == type_]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The daemon in this process, over a lane for each contract; absences are final after 2 s."""
    lanes = {name: Declared(name, name.partition("-")[0], "refund", 2, 2, 10) for name in CHANGES}
    with contextlib.ExitStack() as stack:
        for lane in lanes.values():
            stack.enter_context(lane.server)
        site = stack.enter_context(LocalSite.make())
        configure(site, list(lanes.values()))
        site.start()
        yield Stage(site, lanes)


def rpc_error(code: int, message: str, status: int = 200, **members: Any) -> Behaviour:
    """Acts, and answers this error; ``members`` replace those of the message."""

    def reply(turn: Turn) -> Reply:
        message_id = turn.request.document["id"]
        error = {"code": code, "message": message}
        return said(status, {"jsonrpc": "2.0", "id": message_id, "error": error, **members})

    return answering(reply)


def http_error(status: int, body: bytes, kind: str, *, acts: bool = True) -> Behaviour:
    """Acts or not, and answers this."""
    return answering(lambda turn: Reply(status, {"content-type": kind}, body), acts=acts)


def test_ups_01_an_unknown_tool_after_the_effect_is_looked_up_and_found(stage: Stage) -> None:
    """One attempt; JSON-RPC -32602 "Unknown tool: refund"."""
    stage.play("mcp-one", rpc_error(-32602, "Unknown tool: refund")).found()


def test_ups_02_a_sentence_that_sounds_like_a_refusal_allows_no_second_attempt(stage: Stage) -> None:
    """Two attempts, and the snapshot shows nothing yet."""
    sentence = "refund: the tool charged the card, but the receipt address was not found"
    stage.play("mcp-free", rpc_error(-32602, sentence)).found()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(rpc_error(-32602, "Unknown tool: refund", id=None), id="null"),
        pytest.param(rpc_error(-32020, "header mismatch", 400, id=None), id="null-400"),
        pytest.param(rpc_error(-32602, "Unknown tool", result={"content": [], "isError": True}), id="both"),
        pytest.param(rpc_error(-32602, "Unknown tool: refund", id=4711), id="other"),
    ],
)
def test_ups_03_what_does_not_answer_this_call_is_lost(stage: Stage, answer: Behaviour) -> None:
    """Id null, both members, another id: no answer to this call."""
    played = stage.play("mcp-free", answer)
    played.found()
    assert played.outcomes[0]["sent"] == "lost"


@pytest.mark.parametrize("lane", ["http-free", "mcp-free"])
@pytest.mark.parametrize("status", [520, 522, 524, 530, 598])
def test_ups_04_an_edges_status_after_the_effect_is_lost(stage: Stage, lane: str, status: int) -> None:
    """With HTML, an effect-free contract and two attempts."""
    played = stage.play(lane, http_error(status, b"<h1>A timeout occurred</h1>", "text/html"))
    played.found()
    assert played.outcomes[0]["sent"] == "lost"


@pytest.mark.parametrize("lane", ["http-free", "mcp-free"])
def test_ups_05_a_500_in_the_tools_own_shape_proves_nothing(stage: Stage, lane: str) -> None:
    """A 5xx is never the tool's word that it did nothing."""
    played = stage.play(lane, http_error(500, b'{"code":"no_funds"}', rest_app.PROBLEM))
    played.found()
    assert played.outcomes[0]["sent"] == "lost"


@pytest.mark.parametrize("lane", ["http-free", "mcp-free"])
@pytest.mark.parametrize("status", [400, 403, 413, 429, 451])
@pytest.mark.parametrize(
    ("page", "kind"),
    [(b"<h1>No</h1>", "text/html"), (b'{"message":"no"}', "application/json"), (b'{"title":"no"}', rest_app.PROBLEM)],
    ids=["html", "json", "problem"],
)
def test_ups_06_the_answer_of_something_in_between_proves_nothing(
    stage: Stage, lane: str, status: int, page: bytes, kind: str
) -> None:
    """An effect-free contract; gateways send JSON, too."""
    stage.play(lane, http_error(status, page, kind)).found()


def test_ups_06_the_tools_own_error_allows_the_next_attempt_at_once(stage: Stage) -> None:
    """What the contract declares does act: no look-up between the attempts, and the record says why."""
    played = stage.play("http-free", http_error(422, b'{"code":"later"}', f"{rest_app.PROBLEM}; q=1", acts=False))
    assert isinstance(played.answer, Completed)
    assert (played.effects, played.calls, played.looks) == (1, 2, 0)
    assert played.outcomes[0]["proof"] == "effect_free"


def test_ups_07_a_lost_attempt_is_looked_up_once_more_before_it_is_sealed_as_absent(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempt 1 is lost and becomes visible later than the contract says; attempts 2 and 3 get a listed 409."""
    lost: list[Turn] = []

    def loses(turn: Turn) -> bool:
        lost.append(turn)
        return dropping(acts=False)(turn)

    def shows(turn: Turn) -> bool:
        lost[0].act()
        return refuses(turn)

    refuses = http_error(409, b'{"code":"conflict"}', rest_app.PROBLEM, acts=False)
    played = stage.play("http-listed", loses, refuses, shows)
    assert isinstance(played.answer, Completed)
    assert (played.effects, played.calls, played.answer.executed) == (1, 3, True)
    assert [outcome["proof"] for outcome in played.outcomes] == ["", "rejected_before_work", "rejected_before_work"]
    findings = bodies(stage.site, played.answer.execution_id, "finding.reconciled")
    assert [(found["finding"], found["by"]) for found in findings] == [
        ("absent", "effect_key"),
        ("present", "effect_key"),
    ]
    assert "the run stopped" not in caplog.text  # its own records are not on disk yet when it looks back at them


def test_ups_07_what_is_absent_again_is_sealed(stage: Stage) -> None:
    """The look-up costs a second or two, and the answer stays what it was."""
    refuses = http_error(409, b'{"code":"conflict"}', rest_app.PROBLEM, acts=False)
    played = stage.play("http-listed", dropping(acts=False), refuses, refuses)
    assert isinstance(played.answer, UpstreamError)
    assert (played.answer.result_class, played.answer.executed) == ("failed_before_side_effect", False)
    assert (played.effects, played.calls) == (0, 3)
    findings = bodies(stage.site, played.answer.execution_id, "finding.reconciled")
    assert [found["finding"] for found in findings] == ["absent", "absent"]


def test_in_progress_is_looked_up_again_and_never_sent_again(stage: Stage) -> None:
    """409 for a repeated key: an earlier attempt arrived. Nothing is proved until it is there, so it is held."""
    busy = http_error(409, b'{"code":"busy"}', rest_app.PROBLEM, acts=False)
    played = stage.play("http-busy", busy)
    assert isinstance(played.answer, Held)
    assert (played.answer.code, played.answer.outcome_unknown) == ("IN_PROGRESS", True)
    assert (played.effects, played.calls) == (0, 1)
    assert played.looks > 3
    (finding,) = bodies(stage.site, played.answer.execution_id, "finding.reconciled")
    assert (finding["finding"], finding["code"]) == ("unprovable", "WORK_GOES_ON")


def test_out_10_an_error_that_refuses_the_poll_ends_no_operation(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted, and asked after too often, in the tool's own shape: the work goes on, whatever a look-up shows."""
    app: Any = stage.lanes["http-free"].server.app
    accepted: list[Turn] = []
    polls: list[str] = []
    read = app.read

    def accepts(turn: Turn) -> bool:
        accepted.append(turn)
        return answering(lambda _: said(202, {"ok": True, "operation": "op-7"}), acts=False)(turn)

    def polled(path: str, query: Any) -> Reply:
        polls.append(path)
        if not path.startswith("/operations/"):
            return read(path, query)
        refusals = [rest_app.problem(429, "too_often"), rest_app.problem(404, "not_here_yet")]
        if (asked := sum(p == path for p in polls)) <= len(refusals):
            return refusals[asked - 1]
        accepted[0].act()
        return said(200, {"ok": True})

    monkeypatch.setattr(app, "read", polled)
    played = stage.play("http-free", accepts)
    assert isinstance(played.answer, Completed), played.answer
    assert (played.effects, played.calls, played.looks) == (1, 1, 0)


@contextlib.contextmanager
def invoking(stage: Stage, name: str, invoke: Callable[[Any, ToolCall], Any]) -> Iterator[None]:
    """The lane's plugin acts so; the wrapper around it is the real one."""
    assert stage.site.daemon is not None
    parts: Any = stage.site.daemon.parts
    adapter = parts.upstreams[name].write._adapter
    adapter.invoke = lambda call: invoke(adapter._context, call)
    try:
        yield
    finally:
        del adapter.invoke


def test_ups_08_nothing_is_absent_while_the_call_still_runs(stage: Stage) -> None:
    """A synchronous SDK in a thread sends long after its time-out of 2 s, and after four looks that found nothing."""
    lane, go = stage.lanes["http-free"], threading.Event()
    app, sent = lane.server.app, []

    def sdk(call: ToolCall) -> Outcome:
        sent.append(call)
        assert go.wait(60)
        app.refunds.add(call.arguments, call.effect_key)
        return Outcome(Sent.LOST, code="CONNECTION_LOST")

    async def invoke(context: Any, call: ToolCall) -> Outcome:
        return await asyncio.to_thread(sdk, call)

    call = refund_in("http-free", "o-thread", key="thread")
    pending = ask(stage.site, call)
    approve(stage.site, pending.approval_id)
    with invoking(stage, "http-free", invoke):
        looks = Stage._looks(lane)
        running = in_background(stage.site, call)
        until(lambda: Stage._looks(lane) >= looks + 4)
        assert "execution.sent" in types(stage.site, pending.execution_id)
        go.set()
        running.join(60)
    with stage.site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert (len(sent), len(app.refunds.of("o-thread"))) == (1, 1)
    assert body(stage.site, done.execution_id, "finding.reconciled")["finding"] == "present"


@pytest.mark.parametrize("marked", [False, True])
def test_ups_09_an_exchange_that_was_taken_and_not_used_proves_nothing(stage: Stage, marked: bool) -> None:
    """The plugin acts over its own socket, then raises: lost, looked up, found."""
    app = stage.lanes["http-free"].server.app

    async def invoke(context: Any, call: ToolCall) -> Outcome:
        exchange = context.exchange(call.deadline)
        if marked:
            exchange.mark()
        app.refunds.add(call.arguments, call.effect_key)
        raise RuntimeError("the SDK broke")

    with invoking(stage, "http-free", invoke):
        played = stage.play("http-free")
    assert isinstance(played.answer, Completed)
    assert (played.effects, played.outcomes[0]["sent"], played.outcomes[0]["code"]) == (1, "lost", "PLUGIN_RAISED")
    assert len(played.outcomes) == 1


def test_ups_14_a_verification_reads_only_where_the_action_was_agreed(stage: Stage) -> None:
    """The upstream is another place by the time the effect is verified: nothing is asked there, nothing is proved."""
    assert stage.site.daemon is not None
    found: Any = stage.site.daemon.parts.upstreams._upstreams
    real = found["http-free"]

    def moves(turn: Turn) -> bool:
        url = f"{real.config.url}/elsewhere"
        found["http-free"] = dataclasses.replace(real, config=real.config.model_copy(update={"url": url}))
        return answering(lambda turn: turn.good())(turn)

    try:
        played = stage.play("http-free", moves)
    finally:
        found["http-free"] = real
    assert isinstance(played.answer, Held)
    assert (played.answer.code, played.effects, played.calls) == ("VERIFICATION_INCONCLUSIVE", 1, 1)
    (verified,) = bodies(stage.site, played.answer.execution_id, "finding.verified")
    assert (verified["verdict"], verified["code"], verified["read_sha256"]) == ("inconclusive", "UPSTREAM_CHANGED", "")
