"""Stage 0: the policy's answer, what is remembered of it, and refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kblockd.domain.errors import FailedPrecondition, PermissionDenied, Reason, Unavailable
from kblockd.domain.principal import View
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import AUTHZ
from kblockd.rpc import identity
from kblockd.rpc.identity import Authorizer, LoopbackListener, UnixListener
from tests.unit.rpc.fakes import AGENT, LEAD, FakeClock, FakeEngine, FakeExecutions

METHOD = "/kblock.v1.ExecutionService/Execute"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def executions() -> FakeExecutions:
    return FakeExecutions()


@pytest.fixture
def authorizer(engine: FakeEngine, executions: FakeExecutions) -> Authorizer:
    return Authorizer(engine, executions, FakeClock())


async def test_the_question_holds_principal_and_method_only(authorizer: Authorizer, engine: FakeEngine) -> None:
    """kblockd/rpc/README.md#who-calls."""
    engine.result = {"allow": True, "tenants": ["acme"], "agents": ["local:agent"], "reasons": []}
    view = await authorizer.authorize(AGENT, METHOD)
    assert view == View(frozenset({"acme"}), frozenset({"local:agent"}))
    ((entrypoint, document),) = engine.asked
    assert entrypoint == AUTHZ
    assert document == {
        "v": "kblockd.policy/1", "now": "2026-11-29T12:00:00.123456Z", "method": METHOD,
        "principal": {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:support-bot", "roles": []},
        "envelope": None, "action": None, "args": None, "contract": None, "binding": None, "approval": None,
        "snapshot": None, "read": None, "outcome": None, "finding": None,
    }  # fmt: skip


async def test_the_policy_is_asked_once_a_principal_method_and_revision(
    authorizer: Authorizer, engine: FakeEngine
) -> None:
    for _ in range(3):
        await authorizer.authorize(AGENT, METHOD)
    assert len(engine.asked) == 1
    await authorizer.authorize(LEAD, METHOD)
    await authorizer.authorize(AGENT, "/kblock.v1.ExecutionService/Get")
    await authorizer.authorize(replace(AGENT, roles=("finance",)), METHOD)
    assert len(engine.asked) == 4
    engine.revision = "r2"
    await authorizer.authorize(AGENT, METHOD)
    assert len(engine.asked) == 5


async def test_every_answer_is_on_record_and_what_is_remembered_is_no_new_one(
    authorizer: Authorizer, engine: FakeEngine, executions: FakeExecutions
) -> None:
    """Allowed or not; with the very document that was asked about."""
    for _ in range(3):
        await authorizer.authorize(AGENT, METHOD)
    engine.result = {"allow": False, "tenants": [], "agents": [], "reasons": []}
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            await authorizer.authorize(LEAD, METHOD)
    made = [(who, method, decision.result["allow"]) for who, method, _, decision in executions.authorizations]
    assert made == [("local:agent", METHOD, True), ("local:lead", METHOD, False)]
    assert [document for *_, document, _ in executions.authorizations] == [document for _, document in engine.asked]


async def test_callers_at_one_moment_share_a_question_and_none_takes_it_away(
    authorizer: Authorizer, engine: FakeEngine, executions: FakeExecutions
) -> None:
    calls = [asyncio.ensure_future(authorizer.authorize(AGENT, METHOD)) for _ in range(8)]
    await asyncio.sleep(0)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(isinstance(answer, View) for answer in answers[1:])
    assert len(engine.asked) == len(executions.authorizations) == 1


async def test_a_question_without_an_answer_fails_all_who_wait_and_is_asked_again(
    authorizer: Authorizer, engine: FakeEngine
) -> None:
    engine.failure = PolicyFailure(Reason.POLICY_DOWN, "x")
    answers = await asyncio.gather(*(authorizer.authorize(AGENT, METHOD) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 3
    engine.failure = None
    assert await authorizer.authorize(AGENT, METHOD)


async def test_what_is_remembered_is_bounded(
    authorizer: Authorizer, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MAX_CACHED", 2)
    for name in ("a", "b", "c"):
        await authorizer.authorize(AGENT, name)
    await authorizer.authorize(AGENT, "c")
    assert len(engine.asked) == 3
    await authorizer.authorize(AGENT, "a")
    assert len(engine.asked) == 4


async def test_nothing_is_remembered_without_a_policy(authorizer: Authorizer, engine: FakeEngine) -> None:
    """kblockd/policy/README.md#the-protocol: no policy, every call is refused."""
    await authorizer.authorize(AGENT, METHOD)
    engine.ready = False
    engine.failure = PolicyFailure(Reason.POLICY_UNDEFINED, "no policy")
    with pytest.raises(Unavailable):
        await authorizer.authorize(AGENT, METHOD)


async def test_a_denial_is_recorded_each_time(
    authorizer: Authorizer, engine: FakeEngine, executions: FakeExecutions
) -> None:
    reasons = [{"code": "NOT_AN_AGENT", "message": "private text"}]
    engine.result = {"allow": False, "tenants": [], "agents": [], "reasons": reasons}
    for _ in range(2):
        with pytest.raises(PermissionDenied) as caught:
            await authorizer.authorize(AGENT, METHOD)
    assert caught.value.reason is Reason.PERMISSION_DENIED
    assert "NOT_AN_AGENT" in caught.value.message
    assert "private" not in caught.value.message
    assert [(who, method) for who, method, _ in executions.refusals] == [("local:agent", METHOD)] * 2
    assert len(engine.asked) == 1


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [
        ("POLICY_UNDEFINED", True),  # nothing is in force yet
        ("POLICY_TYPE", False),
        ("POLICY_ERROR", False),
        ("POLICY_TIMEOUT", True),
        ("POLICY_DOWN", True),
    ],
)
async def test_a_failure_refuses_and_is_not_remembered(
    authorizer: Authorizer, engine: FakeEngine, executions: FakeExecutions, reason: str, retryable: bool
) -> None:
    """Closed means denied."""
    engine.failure = PolicyFailure(Reason(reason), "x")
    with pytest.raises(FailedPrecondition if reason == "POLICY_ERROR" else Unavailable) as caught:
        await authorizer.authorize(AGENT, METHOD)
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)
    assert not executions.refusals
    assert not executions.authorizations
    engine.failure = None
    assert await authorizer.authorize(AGENT, METHOD)


def test_a_development_listener_is_loopback_or_nothing() -> None:
    assert LoopbackListener(AGENT).host == "127.0.0.1"
    assert LoopbackListener(AGENT, "::1").port == 0
    for wrong in ("0.0.0.0", "192.0.2.1", "localhost", "::"):
        with pytest.raises(ValueError, match=r"loopback|address"):
            LoopbackListener(AGENT, wrong)


def test_a_socket_is_for_its_owner_alone_by_default() -> None:
    assert UnixListener(Path("/run/x.sock"), AGENT).mode == 0o600
