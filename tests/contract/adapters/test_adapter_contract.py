"""The contract that every HTTP adapter keeps, run for each plugin against a server that misbehaves for real.

What is looked at from outside: the class and code of the outcome, the requests that carried the call, and the
server's own record of effects. A call is never on the wire twice (R188, HTP-01, MCP-02).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from kblockd.upstream.adapter import AdapterFault, Outcome, Sent
from kblockd.upstream.pins import definition_sha256
from tests.contract.adapters.subject import CREDENTIAL, SECRETS, Subject
from tests.upstreams.misbehaving import Mode

PLUGINS: Final = [
    name for name in ("http", "mcp") if importlib.util.find_spec(f"tests.contract.adapters.{name}_fixture")
]

# Sent, code, calls on the wire, effects. A plugin's own ``outcomes`` replace class and code where that is allowed.
MODES: Final[Mapping[Mode, tuple[Sent, str, int, int]]] = {
    Mode.OK: (Sent.ANSWERED, "", 1, 1),
    Mode.REFUSE: (Sent.NOT_SENT, "CONNECT_FAILED", 0, 0),
    Mode.DROP_BEFORE_EFFECT: (Sent.LOST, "CONNECTION_LOST", 1, 0),
    Mode.DROP_AFTER_EFFECT: (Sent.LOST, "CONNECTION_LOST", 1, 1),
    Mode.STALL_BEFORE_EFFECT: (Sent.LOST, "UPSTREAM_TIMEOUT", 1, 0),
    Mode.STALL_AFTER_EFFECT: (Sent.LOST, "UPSTREAM_TIMEOUT", 1, 1),
    Mode.HALF_BODY: (Sent.LOST, "CONNECTION_LOST", 1, 1),
    Mode.REDIRECT_SAME: (Sent.LOST, "REDIRECT_REFUSED", 1, 1),
    Mode.REDIRECT_OTHER: (Sent.LOST, "REDIRECT_REFUSED", 1, 1),
    Mode.TOO_LARGE: (Sent.LOST, "RESPONSE_TOO_LARGE", 1, 1),
    Mode.GZIP_BOMB: (Sent.LOST, "RESPONSE_TOO_LARGE", 1, 1),
    Mode.HEADER_FLOOD: (Sent.LOST, "CONNECTION_LOST", 1, 1),
    Mode.DRIP: (Sent.LOST, "UPSTREAM_TIMEOUT", 1, 1),
}
# Classes that depend on what the protocol can tell; the fixture says which, the suite says what is never allowed.
OPEN_MODES: Final = (Mode.ERROR_AFTER_EFFECT, Mode.GATEWAY_TIMEOUT, Mode.GARBAGE)


@pytest.fixture(params=PLUGINS)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    fixture = importlib.import_module(f"tests.contract.adapters.{request.param}_fixture")
    async with fixture.open_subject(tmp_path) as opened:
        yield opened


def _seconds(mode: Mode) -> float:
    slow = (Mode.STALL_BEFORE_EFFECT, Mode.STALL_AFTER_EFFECT, Mode.DRIP, Mode.LATE)
    return 1.0 if mode in slow else 20.0


async def _invoke(subject: Subject, mode: Mode) -> Outcome:
    subject.server.misbehave(mode)
    return await asyncio.wait_for(subject.upstream.write.invoke(subject.call(_seconds(mode))), 40)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
async def test_out_05_class_code_wire_and_effects(subject: Subject, mode: Mode) -> None:
    """R179, R181, R182, R188, R201; HTP-01, HTP-06, OUT-02, OUT-06, MCP-01, MCP-02."""
    sent, code, calls, effects = MODES[mode]
    sent, code = subject.outcomes.get(mode, (sent, code))
    outcome = await _invoke(subject, mode)
    assert (outcome.sent, outcome.code) == (sent, code), outcome
    assert len(subject.server.calls) == calls
    assert len(subject.server.effects) == effects
    assert not any(request.target == "/redirected" for request in subject.server.requests)


@pytest.mark.parametrize("mode", OPEN_MODES, ids=lambda mode: mode.value)
async def test_htp_08_an_error_is_never_success_nor_proof_of_nothing(subject: Subject, mode: Mode) -> None:
    """HTP-08, MCP-06, C26: one call on the wire; not success; never "not executed" after an effect."""
    outcome = await _invoke(subject, mode)
    assert (outcome.sent, outcome.code) == subject.outcomes[mode], outcome
    assert len(subject.server.calls) <= 1
    assert outcome.sent is Sent.LOST or outcome.is_error or outcome.sent is Sent.NOT_SENT
    if subject.server.effects:
        assert outcome.sent in (Sent.LOST, Sent.ANSWERED)


async def test_out_05_a_connection_that_dies_at_once_is_never_success(subject: Subject) -> None:
    """OUT-05: whether the reset meets connect, handshake or call is a race; each has its own honest answer."""
    outcome = await _invoke(subject, Mode.DROP_ON_ACCEPT)
    assert outcome.sent in (Sent.NOT_SENT, Sent.LOST)
    assert outcome.code in ("CONNECT_FAILED", "CONNECTION_LOST")
    assert subject.server.calls == []


async def test_ok_carries_arguments_key_trace_and_credential(subject: Subject) -> None:
    """R177, R199, R207: exactly the arguments, the effect key, traceparent and the write identity's credential."""
    outcome = await _invoke(subject, Mode.OK)
    assert outcome.sent is Sent.ANSWERED
    assert not outcome.is_error
    assert outcome.output is not None
    (call,) = subject.server.calls
    assert subject.effect_key_of(call) == subject.effect_key
    assert subject.traceparent_of(call).split("-")[1] == subject.traceparent.split("-")[1]
    assert call.headers["authorization"] == CREDENTIAL
    for value in subject.arguments.values():
        assert json.dumps(value) in call.body.decode() or str(value) in unquote(call.target)


async def test_credential_never_comes_back(subject: Subject) -> None:
    """R478, R640: an echoing server gets nothing of the credential into output, detail or identifiers."""
    outcome = await _invoke(subject, Mode.ECHO_CREDENTIAL)
    assert outcome.sent is Sent.ANSWERED
    assert "credential removed" in json.dumps(outcome.output)
    text = repr(outcome)
    assert not any(secret in text for secret in (*SECRETS, CREDENTIAL))


async def test_deadline_bounds_everything_and_the_next_call_works(subject: Subject) -> None:
    """R179, R186; MCP-01: after a stall the same adapter serves the next action."""
    before = time.monotonic()
    outcome = await _invoke(subject, Mode.STALL_AFTER_EFFECT)
    assert outcome.code == "UPSTREAM_TIMEOUT"
    assert time.monotonic() - before < 15
    outcome = await _invoke(subject, Mode.OK)
    assert outcome.sent is Sent.ANSWERED
    assert len(subject.server.calls) == 2


async def test_a_deadline_that_has_passed_sends_nothing(subject: Subject) -> None:
    """R179: the deadline also holds before the first byte."""
    outcome = await subject.upstream.write.invoke(subject.call(-1))
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "UPSTREAM_TIMEOUT")
    assert subject.server.accepted == 0


async def test_an_unknown_tool_is_answered_not_raised(subject: Subject) -> None:
    """Nothing raises."""
    call = subject.call(20)
    unknown = type(call)(
        "no such tool", call.arguments, call.effect_key, call.effect_key_in, call.effect_key_name, call.deadline,
        None, call.trace,
    )  # fmt: skip
    outcome = await subject.upstream.write.invoke(unknown)
    assert outcome.sent is not Sent.ACCEPTED
    assert outcome.sent is not Sent.ANSWERED or outcome.is_error


async def test_rpc_09_a_late_answer_is_evidence(subject: Subject) -> None:
    """OUT-02, R186: LOST at the deadline; what comes a little later is handed over, once."""
    if not subject.late_evidence:
        # The protocol ends the request at its deadline (a closed stream is a cancellation): nothing can come late.
        assert (await _invoke(subject, Mode.LATE)).code == "UPSTREAM_TIMEOUT"
        return
    late: asyncio.Queue[Outcome] = asyncio.Queue()
    subject.server.misbehave(Mode.LATE)
    outcome = await subject.upstream.write.invoke(subject.call(1), on_late=late.put_nowait)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    subject.server.release()
    evidence = await asyncio.wait_for(late.get(), 20)
    assert evidence.sent is Sent.ANSWERED
    assert len(subject.server.calls) == 1


async def test_concurrent_calls_do_not_disturb_each_other(subject: Subject) -> None:
    """One dropped call takes no sibling with it (plugins/mcp/README.md#what-the-sdks-client-makes-of-it)."""
    outcomes = await asyncio.gather(*(subject.upstream.write.invoke(subject.call(20)) for _ in range(8)))
    assert [outcome.sent for outcome in outcomes] == [Sent.ANSWERED] * 8
    assert len(subject.server.effects) == 8


async def test_mcp_13_definition_digest(subject: Subject) -> None:
    """MCP-13, R179: stable when keys change places, different when the description changes; read fresh each time."""
    deadline = time.monotonic() + 20
    reviewed = definition_sha256(await subject.upstream.read.describe(subject.tool, deadline))
    subject.describe_otherwise()
    assert definition_sha256(await subject.upstream.read.describe(subject.tool, deadline)) == reviewed
    subject.change_description()
    assert definition_sha256(await subject.upstream.read.describe(subject.tool, deadline)) != reviewed


async def test_describe_raises_only_adapter_faults(subject: Subject) -> None:
    """An unknown tool, and a server that is away."""
    deadline = time.monotonic() + 20
    with pytest.raises(AdapterFault) as unknown:
        await subject.upstream.read.describe("no such tool", deadline)
    assert unknown.value.code == "TOOL_UNKNOWN"
    subject.server.misbehave(Mode.REFUSE)
    with pytest.raises(AdapterFault):
        await subject.upstream.read.describe(subject.tool, deadline)
